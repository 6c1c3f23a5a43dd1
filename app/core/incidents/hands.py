"""Incidents by hand: opened, amended and merged by a person or a program that was told to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b

from msgspec.structs import asdict, replace

from app.core.clusters import unknown
from app.core.findings import Incident, Origin, Said
from app.core.incidents.bundles import settled


class CannotError(ValueError):
    """What is asked of an incident cannot be; ``field`` is what is to blame, the message says why."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


def unknown_cluster(name: str, known: Iterable[str]) -> CannotError:
    """What is said of a cluster of which nothing is recorded, to who may know of the ``known`` ones."""
    return CannotError("cluster", unknown(name, known))


def opened(cluster: str, said: Said, *, by: str, request: str, now: datetime) -> Incident:
    """An incident that somebody opens. ``request`` names the request that did, and no other. Raises CannotError."""
    digest = blake2b(f"{cluster}\0by hand\0{request}".encode("utf-8", "replace"), digest_size=6)
    incident = Incident(
        digest.hexdigest(), cluster, "", "open", "", said.started_at or now, origin=Origin.HAND, opened_by=by
    )
    return amended(incident, replace(said, status="open"), now=now)


def amended(incident: Incident, told: Said, *, now: datetime) -> Incident:
    """The incident with what is told of it now; of the rest, what was said before stays. Raises CannotError.

    Resolved is as of ``now``, or since when it is resolved already.
    """
    if incident.merged_into is not None:
        raise CannotError("id", f"this incident is a part of {incident.merged_into} since they were merged")
    said = replace(incident.said, **{name: value for name, value in asdict(told).items() if value is not None})
    if told.status is not None:
        over = incident.resolved_at or now if told.status == "resolved" else None
        said = replace(said, resolved_at=over)
    found = settled(replace(incident, said=said))
    if found.resolved_at is not None and found.started_at > found.resolved_at:
        raise CannotError("started_at", f"the incident was over before that, at {found.resolved_at.isoformat()}")
    return found


def merged(one: Incident, into: Incident, *, now: datetime) -> tuple[Incident, Incident]:
    """Both after the merge: ``one``, which is a part of the other now, and ``into``, which has its alerts, and is open
    again where that part is open.

    Done again, it changes nothing. Raises CannotError.
    """
    if one.merged_into == into.id:
        return one, into
    if one.id == into.id:
        raise CannotError("into", "an incident cannot be merged into itself")
    if one.merged_into is not None:
        raise CannotError("id", f"this incident is a part of {one.merged_into} already")
    if into.merged_into is not None:
        raise CannotError("into", f"that incident is a part of {into.merged_into}: merge into that one")
    if one.cluster != into.cluster:
        raise CannotError("into", f"that incident is of the cluster {into.cluster}, this one of {one.cluster}")
    if into.status == "suspected" != one.status:  # what somebody is called for does not become quiet
        into = replace(into, status=one.status, resolved_at=one.resolved_at)
    if (one.status, into.status) == ("open", "resolved"):  # a part that goes on does not end: as was said of it, if so
        said = replace(into.said, status=one.said.status, resolved_at=None)
        into = replace(into, status="open", resolved_at=None, said=said)
    known = {(alert.fingerprint, alert.at) for alert in into.alerts}
    alerts = [*into.alerts, *(alert for alert in one.alerts if (alert.fingerprint, alert.at) not in known)]
    whole = replace(
        into,
        alerts=tuple(sorted(alerts, key=lambda alert: (alert.at, alert.fingerprint))),
        started_at=min(one.started_at, into.started_at),
    )
    part = replace(one, alerts=(), status="merged", resolved_at=one.resolved_at or now, merged_into=into.id)
    return part, settled(whole)
