"""Workloads that begin to fail together and call the same server outside: likelier it than what one of them got."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from app.core.edges.topology import Named, Topology
from app.core.signals.complaints import AT_ONCE
from app.core.signals.outside import named_outside, names_inside
from app.core.signals.signal import Signal, SignalKind

MOST = 0.5
"""Of those that are told of a server so many must fail, at the least: nearly all are told where to send traces."""
HOPS = 3
"""So far whoever calls the one that fails is taken to fail because of it."""


def with_fellows(signals: Sequence[Signal], top: Topology) -> list[Signal]:
    """The signals, those of one workload with the others that began to complain at about the same time and call the
    same server outside: by what they are told, or by what their messages name. Nor callers of each other."""
    told: dict[str, set[Named]] = defaultdict(set)
    for client, servers in top.outside.items():
        for server in servers:
            told[server].add(client)
    homes = ((signal, _home(signal)) for signal in signals)
    of = {id(signal): home for signal, home in homes if home is not None}
    inside = names_inside(top)
    for signal in signals:
        for server in named_outside(signal.text, inside) if id(signal) in of else ():
            told[server].add(of[id(signal)])
    complaining = set(of.values())
    failing = ((homes & complaining, MOST * len(homes)) for homes in told.values())
    shared = [together for together, enough in failing if len(together) >= max(2, enough)]
    return [_told(one, of, signals, shared, top) if id(one) in of else one for one in signals]


def _told(
    signal: Signal, of: dict[int, Named], signals: Sequence[Signal], shared: Sequence[set[Named]], top: Topology
) -> Signal:
    home = of[id(signal)]
    fellows = set[Named]().union(*(homes for homes in shared if home in homes)) - {home}
    near = {of[id(o)] for o in signals if id(o) in of and abs(o.low - signal.low) <= AT_ONCE} & fellows
    alike = {one for one in near if home not in _below(one, top) and one not in _below(home, top)}
    return replace(signal, fellows=frozenset(("workload", *one) for one in alike)) if alike else signal


def _home(signal: Signal) -> Named | None:
    """The one workload that complains."""
    homes = [(entity[1], entity[2]) for entity in signal.about if entity[0] == "workload"]
    return homes[0] if signal.kind is SignalKind.SYMPTOM and len(homes) == 1 else None


def _below(home: Named, top: Topology) -> set[Named]:
    """Whom it rests on, and whom they do."""
    found, edge = set[Named](), {home}
    for _ in range(HOPS):
        edge = set[Named]().union(*(top.rests_on.get(one, set()) for one in edge)) - found
        found |= edge
    return found
