"""Programs of several namespaces that call nothing in common, and serve worse at once: it is below all of them.

Of what kubelets and programs say complaints.py makes one wide signal; what requests tell is told of each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.core.edges.served import FAILS, SLOW
from app.core.edges.topology import Topology
from app.core.entities import Entity
from app.core.phrases import many
from app.core.signals.complaints import AT_ONCE, WIDE
from app.core.signals.fellows import below
from app.core.signals.signal import Signal, SignalKind

APART = 2
"""So many of them, at the least, have nothing to do with each other: the others may fail for calling these."""


def with_common_ground(signals: Sequence[Signal], top: Topology) -> list[Signal]:
    """The signals, and one more of each time at which programs that rest on nothing together begin to serve worse."""
    served = [s for s in signals if s.kind is SignalKind.SYMPTOM and s.facts.get("reason") in (FAILS, SLOW)]
    return [*signals, *(_together(group) for group in _at_once(served) if _is_wide(group, top))]


def _at_once(served: Sequence[Signal]) -> Iterator[list[Signal]]:
    group: list[Signal] = []
    for signal in sorted(served, key=lambda s: s.low):
        if group and signal.low - group[-1].low > AT_ONCE:
            yield group
            group = []
        group.append(signal)
    yield group


def _is_wide(group: Sequence[Signal], top: Topology) -> bool:
    homes = {home: signal.strength for signal in group if (home := _home(signal)) is not None}
    if len(homes) < WIDE:
        return False
    rests = {
        home: below(home, top) | {("outside", server) for server in top.outside.get((home[1], home[2]), ())}
        for home in homes
    }
    apart: list[Entity] = []
    for home in sorted(homes, key=lambda one: -homes[one]):
        if rests[home].isdisjoint(homes) and all(rests[home].isdisjoint(rests[other]) for other in apart):
            apart.append(home)
    return len(apart) >= APART and len({home[1] for home in apart}) >= APART


def _home(signal: Signal) -> Entity | None:
    return next((entity for entity in signal.about if entity[0] == "workload"), None)


def _together(group: Sequence[Signal]) -> Signal:
    first, strongest = min(group, key=lambda s: s.low), max(group, key=lambda s: s.strength)
    homes = list(dict.fromkeys(home for signal in group if (home := _home(signal)) is not None))
    share = 1 / len(homes)
    return replace(
        strongest,
        low=first.low,
        high=first.high,
        about=dict.fromkeys(homes, 0.1 + 0.6 * share),
        spread=dict.fromkeys(homes, share),
        by_pod={},
        fellows=frozenset(),
        place=None,
        facts={"reason": strongest.facts["reason"], "chronic": "False", "refused": ""},
        sentence=f"{homes[0][2]} and {many(len(homes) - 1, 'other')} in several namespaces serve worse at once",
        text=" | ".join(sorted({signal.text for signal in group})),
    )
