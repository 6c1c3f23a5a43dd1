"""Who begins to fail together, and calls the same server outside or says the very same: likelier what they have in
common than what one of them got."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.core.edges.topology import Named, Topology
from app.core.entities import Entity
from app.core.signals.complaints import AT_ONCE
from app.core.signals.outside import named_outside, names_inside
from app.core.signals.signal import Signal, SignalKind

MOST = 0.5
"""Of those that are told of a server so many must fail, at the least: nearly all are told where to send traces."""
_OWN_WORDS = "Error"
"""What a program ended of, or logs, it says itself; most else the kubelet, the scheduler and controllers say, of all
alike."""
HOPS = 3
"""So far whoever calls the one that fails is taken to fail because of it."""


_WORD = re.compile(r"[A-Za-z][\w'-]*")
RUN = 5
"""So many words one after the other, numbers left out, others hardly say by accident."""


def with_fellows(signals: Sequence[Signal], top: Topology) -> list[Signal]:
    """The signals, those of one object with the others that began to complain at about the same time and call the same
    server outside, by what they are told or by what their messages name, or say the same. Nor callers of each other."""
    told: dict[str, set[Entity]] = defaultdict(set)
    for client, servers in top.outside.items():
        for server in servers:
            told[server].add(("workload", *client))
    homes = ((signal, _home(signal)) for signal in signals)
    of = {id(signal): home for signal, home in homes if home is not None}
    inside = names_inside(top)
    for signal in signals:
        if id(signal) not in of:
            continue
        for server in named_outside(signal.text, inside):
            told[server].add(of[id(signal)])
        if of[id(signal)][0] == "object" or signal.facts.get("reason") == _OWN_WORDS:
            about = " ".join(sorted("/".join(entity) for entity in signal.about if entity[0] == "api"))
            for run in _runs(signal):
                told[f"{run} {about}"].add(of[id(signal)])
    complaining = set(of.values())
    failing = ((homes & complaining, MOST * len(homes)) for homes in told.values())
    shared = [together for together, enough in failing if len(together) >= max(2, enough)]
    return [_told(one, of, signals, shared, top) if id(one) in of else one for one in signals]


def _runs(signal: Signal) -> Iterator[str]:
    """What a complaint says, in runs of words."""
    words = _WORD.findall(signal.facts.get("says", signal.text))
    return (" ".join(words[n : n + RUN]) for n in range(len(words) - RUN + 1))


def _told(
    signal: Signal, of: dict[int, Entity], signals: Sequence[Signal], shared: Sequence[set[Entity]], top: Topology
) -> Signal:
    home = of[id(signal)]
    fellows = set[Entity]().union(*(homes for homes in shared if home in homes)) - {home}
    near = {of[id(o)] for o in signals if id(o) in of and abs(o.low - signal.low) <= AT_ONCE} & fellows
    alike = {one for one in near if home not in below(one, top) and one not in below(home, top)}
    return replace(signal, fellows=frozenset(alike)) if alike else signal


def _home(signal: Signal) -> Entity | None:
    """The one workload that complains; what is none, the one object."""
    if signal.kind is not SignalKind.SYMPTOM:
        return None
    homes = [entity for entity in signal.about if entity[0] == "workload"] or [
        entity for entity in signal.about if entity[0] == "object"
    ]
    return homes[0] if len(homes) == 1 else None


def below(home: Entity, top: Topology) -> set[Entity]:
    """Whom it rests on, and whom they do."""
    found = set[Named]()
    edge = {(home[1], home[2])} if home[0] == "workload" else set[Named]()
    for _ in range(HOPS):
        edge = set[Named]().union(*(top.rests_on.get(one, set()) for one in edge)) - found
        found |= edge
    return {("workload", *one) for one in found}
