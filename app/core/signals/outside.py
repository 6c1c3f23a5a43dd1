"""Complaints that tell of a server outside the cluster which does not answer: not of what was rolled out just then."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime

from app.core.edges.causes import EXPIRED, OUTSIDE, ROOTS, THEIRS
from app.core.edges.mechanism import WHILE_RUNNING
from app.core.edges.program_causes import TRUST
from app.core.edges.references import references
from app.core.edges.topology import Topology
from app.core.entities import Entity
from app.core.findings import Incident
from app.core.signals.signal import Signal, SignalKind

_HOST = re.compile(
    r"(?:(?://|@|\btcp |\blookup |\bhost[ =][\"']?"
    r"|\b(?:upstream|server|connect(?:ion)?|to|from|reach|contact|at|on) [\"']?)|(?=\S+:\d))"
    r"((?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.){2,}[a-z]{2,})(?![\w.-])"
)
"""Where a message names a host of three words or more: in a URL, dialled, looked up or spoken of, or before a port."""
_DIALLED = re.compile(r"(?:\bdial (?:tcp|udp) |\bserver at \"?)(\d{1,3}(?:\.\d{1,3}){3})\b")
"""As Go says it, and libpq."""
_SERVICE = re.compile(
    r"operation error (\w[\w ]*): (\w+)|when calling the (\w+) operation|\(Service: (?:Amazon ?|AWS)?(\w+)[;,]"
)
"""As the SDKs of AWS name a service, or what was asked of it: for Go, Python and Java
(https://docs.aws.amazon.com/sdkref/latest/guide/overview.html)."""
_OURS = re.compile(
    r"(?:0|10|127)\.|169\.254\.|172\.(?:1[6-9]|2\d|3[01])\.|192\.168\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\."
)
"""Addresses that nobody has in public (RFC 1918, 6598, 3927, 1122)."""
_INSIDE = frozenset({"local", "internal", "svc", "cluster"})
"""Last words of names that no public server of names knows."""


_FAILS = re.compile(r"\bfail|\berror|unreachable|unavailable|not answer|\bdown\b|timed? ?out|timeout", re.IGNORECASE)
"""What an alert says of calls."""


def with_outside(signals: Iterable[Signal], top: Topology, incident: Incident) -> list[Signal]:
    """The signals, those with that cause whose messages name an unwell host outside; those of workloads that an
    alert names which itself says so, as probes only say that a pod is not ready; and those of a custom
    resource whose source says so, as the repository does to which a HelmRelease refers."""
    inside = names_inside(top)
    said = any(_FAILS.search(alert.message) and _names_one(alert.message, inside) for alert in incident.alerts)
    meant = {tuple(name.split("/", 1)) for name in incident.scope.workloads} if said else set()
    told = [_told(one, inside, meant) for one in signals]
    unwell: dict[Entity, datetime] = {}
    for one in (one for one in told if one.cause is OUTSIDE):
        for entity in one.about:
            unwell[entity] = min(one.low, unwell.get(entity, one.low))
    return [_for_its_source(one, unwell, top) for one in told] if unwell else told


def _for_its_source(signal: Signal, unwell: Mapping[Entity, datetime], top: Topology) -> Signal:
    """A signal of a custom resource with the cause of one to which it refers, and which was unwell before."""
    if signal.kind is not SignalKind.SYMPTOM or signal.cause is not None:
        return signal
    named = [entity[1:] for entity in signal.about if entity[0] == "object"]
    sources = [
        reference
        for kind, namespace, name in named
        for one in top.customs_named.get((namespace, name), ())
        for reference in (references(top.states[one], namespace) if one.kind == kind else ())
    ]
    is_theirs = any(unwell.get(("object", *source), signal.high) < signal.high for source in sources)
    return replace(signal, cause=OUTSIDE) if is_theirs else signal


def _told(signal: Signal, inside: AbstractSet[str], meant: AbstractSet[tuple[str, ...]]) -> Signal:
    if signal.kind is SignalKind.SYMPTOM and signal.cause is EXPIRED:
        return replace(signal, cause=THEIRS) if _is_theirs(signal.text, inside) else signal
    if signal.kind is SignalKind.SYMPTOM and signal.cause is TRUST:
        is_public = ROOTS.told.search(signal.text) and _hosts(signal.text, inside)
        return replace(signal, cause=ROOTS) if is_public else signal
    if signal.kind is not SignalKind.SYMPTOM or signal.cause is not None:
        return signal
    if OUTSIDE.told.search(signal.text) and _names_one(signal.text, inside):
        return replace(signal, cause=OUTSIDE)
    homes = {entity[1:] for entity in signal.about if entity[0] == "workload"}
    if signal.facts.get("reason") in WHILE_RUNNING and homes and homes <= meant:
        return replace(signal, cause=OUTSIDE, about=signal.about | {("agent", "cni"): 0.5})
    return signal


_VERIFIED = re.compile(r"\bverif|x509: certificate has expired")
"""What whoever calls says of the certificate that it is shown, not of its own, of which it is told."""


def _is_theirs(text: str, inside: AbstractSet[str]) -> bool:
    """Whether it is the certificate of a server outside that ran out."""
    return bool(_VERIFIED.search(text)) and "remote error" not in text and bool(_hosts(text, inside))


def named_outside(text: str, inside: AbstractSet[str]) -> set[str]:
    """The servers that a message names: hosts that are not ``inside``, addresses that are dialled, whoever has them,
    and services of a cloud, or what was asked of these."""
    return (
        _hosts(text, inside)
        | set(_DIALLED.findall(text))
        | {one for found in _SERVICE.findall(text) for one in found if one}
    )


def names_inside(top: Topology) -> AbstractSet[str]:
    """Last words of names of the cluster, and the hosts that it serves itself."""
    return _INSIDE | {namespace for namespace, _ in top.labels} | top.doors.keys()


def _names_one(text: str, inside: AbstractSet[str]) -> bool:
    """Whether a host or a service outside is named, or its address dialled."""
    return (
        _SERVICE.search(text) is not None
        or any(not _OURS.match(address) for address in _DIALLED.findall(text))
        or bool(_hosts(text, inside))
    )


def _hosts(text: str, inside: AbstractSet[str]) -> set[str]:
    hosts = set(_HOST.findall(text)) - inside
    return {host for host in hosts if host.rpartition(".")[2] not in inside and "svc" not in host.split(".")}
