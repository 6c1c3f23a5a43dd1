"""Where what happens is told: rules from a cluster, a namespace, labels, a kind or a severity to a channel or a target.

Pure. The file that holds them is read by notify/routes_file.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, time, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from app.core.model import Resource
from app.core.severities import meant
from app.core.targets import Target, TargetName

ChannelId = Annotated[str, Meta(pattern=r"^[CG][A-Z0-9]{6,20}\Z", description="a channel's ID like C0123456789")]
Clock = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]\Z", description="a time of day like 22:00")]
Patterns = tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...]
"""Names with ``*`` and ``?`` as a shell takes them; none: any."""


class What(StrEnum):
    """What a route tells."""

    CHANGES = "changes"
    INCIDENTS = "incidents"


class Quiet(Struct, frozen=True, forbid_unknown_fields=True, rename={"begins": "from", "ends": "to"}):
    """Hours of each day in which changes wait: [from, to) in a time zone. To before from: over midnight."""

    begins: Clock
    ends: Clock
    zone: str = "UTC"

    def until(self, now: datetime) -> datetime | None:
        """When the quiet hours that it is in now end; None outside of them."""
        here = now.astimezone(ZoneInfo(self.zone))
        begins, ends = time.fromisoformat(self.begins), time.fromisoformat(self.ends)
        clock = here.time().replace(tzinfo=None)
        over_midnight = ends <= begins
        inside = (clock >= begins or clock < ends) if over_midnight else begins <= clock < ends
        if not inside:
            return None
        day = here.date() + timedelta(days=1 if over_midnight and clock >= begins else 0)
        end = datetime.combine(day, ends, tzinfo=here.tzinfo)
        first, second = (end.replace(fold=fold).astimezone(now.tzinfo) for fold in (0, 1))
        return first if first > now else second  # where clocks go back, an hour comes twice


class Route(Struct, frozen=True, forbid_unknown_fields=True):
    """What fits all that is said here is told in ``channel``, or to ``target``: one of both.

    ``labels`` are those of the object, or of its namespace where the object has no such label; of an incident those of
    one of the workloads and namespaces that it is about. ``namespaces`` ask of an incident where its alerts are.
    ``kinds`` are of changes alone, ``severities`` of incidents. ``quiet`` holds back changes, never incidents.
    """

    channel: ChannelId | None = None
    tell: tuple[What, ...] = (What.CHANGES,)
    clusters: Patterns = ()
    namespaces: Patterns = ()
    kinds: Patterns = ()
    labels: Mapping[str, str] = {}
    severities: Patterns = ()
    quiet: Quiet | None = None
    target: TargetName | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if (self.channel is None) == (self.target is None):
            raise ValueError("a route needs one of channel and target")

    @property
    def place(self) -> str:
        """Where it tells: the ID of a channel, or the name of a target."""
        return self.channel or self.target or ""

    @property
    def tells_whole_clusters(self) -> bool:
        """Whether every change of its clusters fits."""
        return not (self.namespaces or self.kinds or self.labels)


class Labels(Struct, frozen=True):
    """Labels of an object, and of the namespace that it is in; None where they are not known."""

    own: Mapping[str, str] | None = None
    of_namespace: Mapping[str, str] | None = None

    def get(self, name: str) -> str | None:
        """The object's own label, else its namespace's."""
        own = (self.own or {}).get(name)
        return own if own is not None else (self.of_namespace or {}).get(name)


class Routes(Struct, frozen=True, forbid_unknown_fields=True):
    """All rules, in their order, and the ``targets`` that they may name. Each that fits tells, each place once."""

    routes: tuple[Route, ...] = ()
    targets: Mapping[TargetName, Target] = {}

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if unknown := [one.target for one in self.routes if one.target and one.target not in self.targets]:
            raise ValueError(f"targets: a route names {unknown[0]!r}, which is not among them")

    def of(self, what: What) -> tuple[Route, ...]:
        """Those that tell of this."""
        return tuple(route for route in self.routes if what in route.tell)

    def ask_labels(self, what: What) -> bool:
        """Whether any of what tells of this asks for labels, which have to be read."""
        return any(route.labels for route in self.of(what))

    @property
    def places(self) -> frozenset[str]:
        """The channels and targets that anything is told in."""
        return frozenset(route.place for route in self.routes)

    @property
    def channels(self) -> frozenset[str]:
        """Of Slack, that anything is told in."""
        return frozenset(route.channel for route in self.routes if route.channel)

    def may_ask(self, channel: str, cluster: str) -> bool:
        """Whether who is in a channel may ask of a cluster, too: where every change of it is told, or every incident
        that no route before tells by its namespaces or its severity."""
        own = [one for one in self.routes if one.channel and fits(cluster, one.clusters)]
        of_changes = {one.channel for one in own if What.CHANGES in one.tell and one.tells_whole_clusters}
        every = (one for one in own if What.INCIDENTS in one.tell and not one.namespaces and not one.severities)
        first = next(every, None)
        of_incidents = {first.channel} if first and first.tells_whole_clusters else set()
        return channel in of_changes | of_incidents


NO_ROUTES = Routes()


def why_not(route: Route, resource: Resource, labels: Labels) -> str:
    """Why a change of this object is not told by a route, in words; "" where it is."""
    return next(_misses(route, resource, labels), "")


def _misses(route: Route, resource: Resource, labels: Labels) -> Iterator[str]:
    if What.CHANGES not in route.tell:
        yield "it does not tell of changes"
    if not fits(resource.cluster, route.clusters):
        yield f"the cluster is not {_any_of(route.clusters)}"
    if route.namespaces and resource.namespace is None:
        yield f"it is in no namespace, and only {_any_of(route.namespaces)} is told"
    elif resource.namespace is not None and not fits(resource.namespace, route.namespaces):
        yield f"the namespace is not {_any_of(route.namespaces)}"
    if not fits_kind(resource.kind, route.kinds):
        yield f"the kind is not {_any_of(route.kinds)}"
    for name, wanted in route.labels.items():
        has = labels.get(name)
        if has is None:
            yield f"neither it nor its namespace has the label {name}"
        elif not fnmatchcase(has, wanted):
            yield f"its label {name} is {has}, not {wanted}"


def wanted_by(routes: Routes, resource: Resource, labels: Labels, now: datetime) -> list[tuple[str, datetime | None]]:
    """The channels and targets that are told of a change of an object, each with the end of its quiet hours where it is
    in them: one route that is not quiet is enough."""
    fitting: dict[str, list[Route]] = {}
    for route in routes.routes:
        if not why_not(route, resource, labels):
            fitting.setdefault(route.place, []).append(route)
    found: list[tuple[str, datetime | None]] = []
    for place, own in fitting.items():
        ends = [route.quiet.until(now) if route.quiet else None for route in own]
        found.append((place, None if None in ends else min(end for end in ends if end)))
    return found


class OfIncident(Struct, frozen=True):
    """What is asked of an incident: its cluster, its severity, the namespaces of its alerts, and the labels of each
    namespace and workload that it is about."""

    cluster: str
    severity: str
    namespaces: tuple[str, ...] = ()
    labels: tuple[Labels, ...] = ()


def why_no_incident(route: Route, told: OfIncident) -> str:
    """Why an incident is not told by a route, in words; "" where it is. Where its alerts name no namespace, only routes
    that ask for none, and for no labels, tell of it."""
    return next(_misses_incident(route, told), "")


def _misses_incident(route: Route, told: OfIncident) -> Iterator[str]:
    if What.INCIDENTS not in route.tell:
        yield "it does not tell of incidents"
    if not fits(told.cluster, route.clusters):
        yield f"the cluster is not {_any_of(route.clusters)}"
    if route.namespaces and not any(fits(one, route.namespaces) for one in told.namespaces):
        yield f"no namespace of its alerts is {_any_of(route.namespaces)}"
    if route.labels and not any(_has(one, route.labels) for one in told.labels):
        asked = ", ".join(f"{name}={wanted}" for name, wanted in route.labels.items())
        yield f"no namespace or workload that it is about has {asked}"
    if not fits_severity(told.severity, route.severities):
        yield f"the severity is not {_any_of(route.severities)}"


def _has(labels: Labels, wanted: Mapping[str, str]) -> bool:
    found = ((labels.get(name), pattern) for name, pattern in wanted.items())
    return all(has is not None and fnmatchcase(has, pattern) for has, pattern in found)


def incident_places(routes: Routes, told: OfIncident, *, otherwise: str) -> list[str]:
    """Where an incident is told: in the channel of the first route that tells of it, for in Slack one incident has one
    thread, or ``otherwise`` ("" for none); and at each target."""
    fits = [one for one in routes.routes if not why_no_incident(one, told)]
    channel = next((one.channel for one in fits if one.channel), otherwise)
    return [*([channel] if channel else []), *dict.fromkeys(one.target for one in fits if one.target)]


def fits(name: str, patterns: Patterns) -> bool:
    """Whether it is one of them; where there are none, any is."""
    return not patterns or any(fnmatchcase(name, one) for one in patterns)


def fits_severity(severity: str, patterns: Patterns) -> bool:
    """Whether it is called as one of them, in any case, or means one: P1 is critical, too."""
    asked = tuple(one.lower() for one in patterns)
    return fits(severity.lower(), asked) or fits(meant(severity), asked)


def fits_kind(kind: str, patterns: Patterns) -> bool:
    """Whether it is a kind that is named, in any case, or in the plural, as kubectl takes it."""
    one = kind.lower()
    plural = re.sub("y$", "ie", one) + ("es" if one.endswith("s") else "s")  # apimachinery: UnsafeGuessKindToResource
    return not patterns or any(fnmatchcase(name, asked.lower()) for asked in patterns for name in (one, plural))


def _any_of(patterns: Patterns) -> str:
    return " or ".join(patterns)
