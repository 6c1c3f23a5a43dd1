"""Complaints that name a server of the cluster: the client only suffers, and a new image of it is seldom to blame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.core.causes import OUTSIDE
from app.core.dependencies import Named, hosts
from app.core.phrases import names
from app.core.signals import Signal, SignalKind
from app.core.topology import Topology

BLAMES = "blames"
"""The fact that says whom: the names of Services."""


def with_blamed(signals: Iterable[Signal], top: Topology) -> list[Signal]:
    """The signals, those of one workload with the Services, not its own, that its messages say not to answer."""
    known = frozenset(
        (resource.namespace or "", resource.name) for resource in top.states if resource.kind == "Service"
    )
    return [_told(one, top, known) for one in signals]


def _told(signal: Signal, top: Topology, known: frozenset[Named]) -> Signal:
    homes = [(entity[1], entity[2]) for entity in signal.about if entity[0] == "workload"]
    if signal.kind is not SignalKind.SYMPTOM or len(homes) != 1 or not OUTSIDE.told.search(signal.text):
        return signal
    called = {service for server in top.upstream.get(homes[0], ()) for service in top.fronts.get(server, ())}
    named = {one for one in called if names(signal.text, one[1])}
    named |= set(hosts("", signal.text, homes[0][0], known=known))
    named -= top.fronts.get(homes[0], set())
    if not named:
        return signal
    return replace(signal, facts=signal.facts | {BLAMES: ", ".join(sorted(name for _, name in named))})
