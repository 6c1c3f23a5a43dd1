"""Alerts -> incidents: bundled, resolved, opened again, with the scope that their labels tell.

Alertmanager's label names are those of the Prometheus ecosystem (kube-state-metrics and the kubernetes-mixin):
namespace, pod, deployment, statefulset, daemonset, job_name, cronjob, container, node, service, job.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple, TypeVar

from msgspec.structs import asdict, replace

from app.core import alerted, severities
from app.core.entities import workload_of_pod
from app.core.findings import Incident, Origin, Scope, Unlisted
from app.core.incidents.tellings import merged
from app.core.model import Symptom

TOGETHER = timedelta(minutes=15)
"""Whatever starts this soon after an incident began belongs to it: alerts wait for as long before they fire (``for:
15m`` is what most of the kubernetes-mixin's say), so that one failure is told over so long a time."""
JOINS_WITHIN = timedelta(minutes=30)
"""An alert that starts this close to one of an incident belongs to it where the two may be about the same: they share
a namespace, a node, the control plane or the group that Alertmanager sent them in, or one is about no namespace."""
FIRES_ON = timedelta(hours=4)
"""How long what fires goes on to be news: those that share something with it join it. Alertmanager tells again of what
still fires as often by default (``repeat_interval``). What fires for longer is how things stand: somebody knows."""
REOPENS_WITHIN = timedelta(minutes=30)
"""An incident whose own alert fires again this soon after all was over is the same incident: the alert flaps. As long
as JOINS_WITHIN, after which nothing new joins either."""
REOPENS_FOR = timedelta(hours=24)
"""An incident is opened again for a day at most: what flaps for longer is how things stand."""

HEARTBEATS = frozenset({"Watchdog", "DeadMansSwitch", "InfoInhibitor"})
"""Alerts that always fire, to show that alerting works or to hold back others; as all of severity none."""

GRAFANA_LABEL = "grafana_folder"
"""Every alert that Grafana itself manages has it:
https://grafana.com/docs/grafana/latest/alerting/fundamentals/alert-rules/annotation-label/ ."""

LOOKS_BACK = timedelta(hours=24)
"""How far before an alert a change may lie: a quarter of incidents are noticed more than 88 minutes after."""
LOOKS_AHEAD = timedelta(hours=1)
"""What is recorded of later times tells nothing more of what began an incident."""

CONTROL_PLANE = re.compile(
    r"api-?server|kubeapi|etcd|kube-?scheduler|kube-?controller-?manager|admission|webhook|control.?plane",
    re.IGNORECASE,
)
T = TypeVar("T")


def bundle(alerts: Iterable[Symptom], open_incidents: Iterable[Incident], *, cluster: str) -> list[Incident]:
    """The incidents that these alerts open, extend or resolve. Alerts seen before change nothing.

    ``open_incidents`` are those that had not ended when the first of the alerts began. An alert is known by its
    fingerprint and its start, in whatever order its firing and its end are told (``merged``). While it fires its start
    may move; one that starts after the end is another alert. Heartbeats are left out.
    """
    incidents = {incident.id: incident for incident in open_incidents}
    told = [alert for alert in alerts if alert.reason not in HEARTBEATS and alert.severity.lower() != "none"]
    named = {alert.fingerprint for alert in told}
    held: dict[str, dict[str, list[Symptom]]] = {name: {} for name in named}
    for incident in incidents.values():
        for known in incident.alerts:
            if known.fingerprint in named:
                held[known.fingerprint].setdefault(incident.id, []).append(known)
    touched: dict[str, Incident] = {}
    kins = _Kins()

    def put(home: Incident, known: Symptom | None, alert: Symptom) -> None:
        """The incident has the alert now, in the place of what it held of it."""
        own = held[alert.fingerprint].setdefault(home.id, [])
        own[:] = sorted([*(one for one in own if one is not known), alert], key=_place)
        incidents[home.id] = touched[home.id] = _with(home, known, alert)
        kins.put(home, known, alert)

    for alert in sorted(told, key=lambda a: (a.at, a.fingerprint, a.ended_at is None)):
        own = held[alert.fingerprint]
        for number, some in own.items():
            for known in [one for one in some if _fires_anew(alert, one)]:
                put(incidents[number], known, replace(known, ended_at=alert.at))
        home = _home(alert, incidents.values(), own, kins) or _opened(alert, cluster)
        known_alert = _told_before(alert, own.get(home.id, ()))
        is_flapping = home.id in own and _flaps(alert, home)
        put(_awake(home) if is_flapping else home, known_alert, merged(known_alert, alert) if known_alert else alert)
    return [settled(incident) for incident in touched.values()]


def _place(alert: Symptom) -> tuple[datetime, str]:
    return alert.at, alert.fingerprint


def _home(
    alert: Symptom,
    incidents: Iterable[Incident],
    own: Mapping[str, Sequence[Symptom]],
    kins: _Kins,
) -> Incident | None:
    """The incident that has the alert, else the one that it is most likely a part of; ``own`` are the alerts with its
    fingerprint of those that have any, by their ids."""
    known = list(incidents)
    holding = [incident for incident in known if incident.id in own] if own else []
    found = [incident for incident in holding if _told_before(alert, own[incident.id])]
    if found:
        return next((i for i in found if any(_is_exactly(a, alert) for a in own[i.id])), found[0])
    flapping = [incident for incident in holding if _flaps(alert, incident)]
    if flapping:
        return max(flapping, key=lambda i: i.started_at)
    beginning = _beginning(alert)
    during = [incident for incident in known if _overlaps(alert, incident)]
    akin = (i for i in during if kins.is_akin(beginning, i))
    return next(akin, next((i for i in during if abs(alert.at - i.started_at) <= TOGETHER), None))


def _flaps(alert: Symptom, incident: Incident) -> bool:
    """Whether an alert that the incident has fires again shortly after all of it was over."""
    over = incident.resolved_at
    return (
        over is not None and over < alert.at <= over + REOPENS_WITHIN and alert.at - incident.started_at <= REOPENS_FOR
    )


def gone(fingerprints: Collection[str], incidents: Iterable[Incident], *, asked: datetime) -> list[Unlisted]:
    """The ends of Alertmanager's alerts that fire as far as we know, and did not any more when it was ``asked`` what
    fires: they ended by then at the latest.

    Alerts of pagers and of Grafana are not its to tell of: theirs have a fingerprint with a colon, or a folder.
    """
    return [
        Unlisted(**asdict(alert) | {"ended_at": asked})
        for incident in incidents
        for alert in incident.alerts
        if alert.ended_at is None and alert.at < asked and alert.fingerprint not in fingerprints
        if ":" not in alert.fingerprint and GRAFANA_LABEL not in dict(alert.labels)
    ]


def _awake(incident: Incident) -> Incident:
    """The incident that a person had resolved, as open as its alerts are, for one fires after that."""
    if incident.said.status == "resolved":
        return replace(incident, said=replace(incident.said, status=None, resolved_at=None))
    return incident


def _told_before(alert: Symptom, own: Iterable[Symptom]) -> Symptom | None:
    """What an incident holds of the alert already, among ``own`` with its fingerprint."""
    found = [known for known in own if _is_same(known, alert)]
    return next((known for known in found if _is_exactly(known, alert)), found[0] if found else None)


def _is_exactly(known: Symptom, told: Symptom) -> bool:
    return (known.fingerprint, known.at) == (told.fingerprint, told.at)


def _is_same(known: Symptom, told: Symptom) -> bool:
    """One alert told twice. Its start moves where another replica of Prometheus tells of it, or one that restarted."""
    if known.fingerprint != told.fingerprint or known.at == told.at:
        return known.fingerprint == told.fingerprint
    first, second = sorted((known, told), key=lambda a: a.at)
    return second.at - first.at <= FIRES_ON and (first.ended_at is None or second.at < first.ended_at)


def _fires_anew(alert: Symptom, known: Symptom) -> bool:
    """Whether an alert begins so long after its last beginning that its end in between was not told."""
    if known.fingerprint != alert.fingerprint or known.ended_at is not None:
        return False
    return alert.at - known.at > FIRES_ON


def _overlaps(alert: Symptom, incident: Incident) -> bool:
    return (incident.resolved_at is None or alert.at <= incident.resolved_at) and (
        alert.ended_at is None or alert.ended_at >= incident.started_at
    )


class _Beginning(NamedTuple):
    """When something began, when it ended, and what it is about."""

    at: datetime
    ended_at: datetime | None
    scope: Scope
    group: str


def _beginning(alert: Symptom) -> _Beginning:
    return _Beginning(alert.at, alert.ended_at, scope((alert,)), alert.group)


class _Kin:
    """What began in an incident, by what it may share with an alert: of thousands that come at once each would be
    compared with all others."""

    def __init__(self, incident: Incident) -> None:
        self._by_share: dict[Hashable, list[_Beginning]] = {}
        self._wide: list[_Beginning] = []
        self._all: list[_Beginning] = []
        for one in _beginnings(incident):
            self.add(one)

    def add(self, one: _Beginning) -> None:
        self._all.append(one)
        for share in _shares(one):
            self._by_share.setdefault(share, []).append(one)
        if _is_wide(one.scope):
            self._wide.append(one)

    def has(self, alert: _Beginning) -> bool:
        """Whether anything in the incident is akin to it."""
        if _is_wide(alert.scope):
            return any(_is_akin(alert, other) for other in self._all)
        near = (self._by_share.get(share, ()) for share in _shares(alert))
        return any(_is_akin(alert, other) for other in chain(self._wide, *near))


class _Kins:
    """That of each incident that was asked for."""

    def __init__(self) -> None:
        self._of: dict[str, _Kin] = {}

    def is_akin(self, alert: _Beginning, incident: Incident) -> bool:
        if incident.id not in self._of:
            self._of[incident.id] = _Kin(incident)
        return self._of[incident.id].has(alert)

    def put(self, home: Incident, known: Symptom | None, alert: Symptom) -> None:
        """The incident has the alert now, in the place of what was ``known`` of it."""
        if known is None and home.origin is Origin.ALERTS and home.id in self._of:
            self._of[home.id].add(_beginning(alert))
        else:  # what else opened one begins elsewhere with each alert
            self._of.pop(home.id, None)


def _shares(one: _Beginning) -> Iterator[Hashable]:
    """What two that are akin have in common, but for being wide."""
    yield from (("namespace", name) for name in one.scope.namespaces)
    yield from (("node", name) for name in one.scope.nodes)
    if one.group:
        yield "group", one.group
    if one.scope.control_plane:
        yield ("control plane",)


def _beginnings(incident: Incident) -> Iterator[_Beginning]:
    """Those of its alerts, and its own where something else opened it."""
    yield from map(_beginning, incident.alerts)
    if incident.origin is not Origin.ALERTS:
        yield _Beginning(incident.started_at, incident.resolved_at, incident.scope, "")


def _is_akin(alert: _Beginning, other: _Beginning) -> bool:
    """Whether two alerts started close enough, for what they share, to be told as one incident."""
    first, second = sorted((alert, other), key=lambda a: a.at)
    apart = second.at - first.at
    if apart > FIRES_ON:
        return False
    one, two = alert.scope, other.scope
    shares = (
        bool(alert.group and alert.group == other.group)
        or not {*one.namespaces}.isdisjoint(two.namespaces)
        or not {*one.nodes}.isdisjoint(two.nodes)
        or (one.control_plane and two.control_plane)
    )
    if apart <= JOINS_WITHIN:
        return shares or _is_wide(one) or _is_wide(two)
    return shares and (first.ended_at is None or first.ended_at >= second.at)


def _is_wide(scope: Scope) -> bool:
    return scope.control_plane or not scope.namespaces


def _opened(alert: Symptom, cluster: str) -> Incident:
    digest = blake2b(f"{cluster}\0{alert.fingerprint}\0{alert.at.isoformat()}".encode(), digest_size=6)
    return Incident(id=digest.hexdigest(), cluster=cluster, title="", status="open", severity="", started_at=alert.at)


def _with(incident: Incident, known: Symptom | None, alert: Symptom) -> Incident:
    """The incident with an alert, in the place of what was known of it; what alerts alone opened is called by all of
    them, and is about all of them, once no more are added: thousands come at once."""
    alerts = list(incident.alerts) if known is None else [one for one in incident.alerts if one is not known]
    insort(alerts, alert, key=_place)
    incident = replace(incident, alerts=tuple(alerts))
    return _timed(incident) if incident.origin is Origin.ALERTS else settled(incident)


def settled(incident: Incident) -> Incident:
    """The incident as its alerts make it, and as people said: that counts for more. What has neither stays."""
    incident = _timed(incident)
    alerts, said = incident.alerts, incident.said
    if alerts:
        worst = min((a.severity for a in alerts), key=severities.rank)
        incident = replace(incident, title=title(alerts), severity=worst, scope=scope(alerts))
    return replace(
        incident,
        title=_first(said.title, incident.title),
        severity=_first(said.severity, incident.severity),
        scope=Scope(
            _first(said.namespaces, incident.scope.namespaces),
            _first(said.workloads, incident.scope.workloads),
            _first(said.nodes, incident.scope.nodes),
            _first(said.control_plane, incident.scope.control_plane),
        ),
    )


def _timed(incident: Incident) -> Incident:
    """The incident with since when it is, whether it is over, and since when: by these alerts belong to it or not."""
    alerts, said = incident.alerts, incident.said
    if alerts:
        resolved = all(a.ended_at for a in alerts)
        ended = (a.ended_at for a in alerts if a.ended_at)
        incident = replace(
            incident,
            started_at=min(incident.started_at, alerts[0].at),
            status="resolved" if resolved else "open",
            resolved_at=max(ended) if resolved else None,
        )
    return replace(
        incident,
        started_at=_first(said.started_at, incident.started_at),
        status=_first(said.status, incident.status),
        resolved_at=said.resolved_at if said.status else incident.resolved_at,
    )


def _first(said: T | None, otherwise: T) -> T:
    return otherwise if said is None else said


def worst_first(alerts: Iterable[Symptom]) -> list[Symptom]:
    """Alerts by how severe they are, those of one severity by when they began."""
    return sorted(alerts, key=lambda a: (severities.rank(a.severity), a.at))


def title(alerts: Iterable[Symptom]) -> str:
    """The alerts' names in words, the worst first, at most three."""
    names = list(dict.fromkeys(_words(a.reason) for a in worst_first(alerts) if a.reason.strip()))
    if not names:
        return "Incident"
    first = names[0]
    rest = [name if _is_spelled(name.partition(" ")[0]) else name[:1].lower() + name[1:] for name in names[1:3]]
    return " and ".join([first, *rest]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


_WORD = re.compile(
    r"IPv[46]"
    r"|[A-Za-z]{1,2}\d+[a-z]*"  # S3, p99, K8s
    r"|\d+[a-z]*"  # 5xx
    r"|[A-Z]{2,}s(?![a-z])"  # CPUs
    r"|[A-Z]+(?=[A-Z][a-z]|[^A-Za-z]|$)"  # HTTP of HTTPServer, A of AVeryLong
    r"|[A-Z]?[a-z]+|[A-Z]+"
)
"""A word of a name in camel case, as an engineer reads it."""


def _words(name: str) -> str:
    """TyphaPingLatencyHigh -> Typha ping latency high; KubeAPIDown -> Kube API down. What is words already, or in
    letters of which we do not know how they are written together, stays as it is."""
    parts = _WORD.findall(name)
    if not parts or " " in name or not name.isascii():
        return name
    words = [part if _is_spelled(part) else part.lower() for part in parts]
    words[0] = words[0][:1].upper() + words[0][1:]
    return " ".join(words)


def _is_spelled(word: str) -> bool:
    """Whether a word is no word of the language: HTTP, CPUs, IPv6, S3."""
    return len(word) > 1 and (word[:2].isupper() or word[-1].isdigit())


def scope(alerts: Iterable[Symptom]) -> Scope:
    """What the labels say the incident is about. Nothing said is an empty scope: then measurements decide."""
    namespaces: dict[str, None] = {}
    workloads: dict[str, None] = {}
    nodes: dict[str, None] = {}
    control_plane = False
    for alert in alerts:
        labels = alerted.about(alert.labels)
        # Of the API server itself it is that of its Service, "default".
        namespace = labels.get("namespace") if labels.get("job") != "apiserver" else None
        if namespace:
            namespaces[namespace] = None
        named = [labels[name] for name in alerted.WORKLOADS if labels.get(name)]
        if labels.get("pod"):
            named.append(workload_of_pod(labels["pod"]))
        if labels.get("container"):
            named.append(labels["container"])
        if labels.get("service") and namespace:
            named.append(labels["service"])
        for name in named:
            workloads[f"{namespace or ''}/{name}"] = None
        if labels.get("node"):
            nodes[labels["node"]] = None
        said = f"{alert.reason} {labels.get('job', '')} {labels.get('component', '')}"
        if CONTROL_PLANE.search(said):
            control_plane = True
    return Scope(tuple(namespaces), tuple(workloads), tuple(nodes), control_plane)
