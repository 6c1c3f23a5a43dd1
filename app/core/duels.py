"""Two callers that began to write the same sort of object in turn: a fight over what no field diff shows, a status.

A write fight over desired fields is found from the changes themselves (fights.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.core.onset import Step
from app.core.signals import Signal

Write = tuple[str, str, str, str]  # user, verb, api group, resource
WRITES = frozenset({"update", "patch"})
AT_ONCE = 1
"""Slots within which both began."""
ALIKE = 1.5
"""One answers the other: neither writes more than so many times as often."""


def duels(steps: Mapping[Write, Step], extra: Mapping[Write, float], *, least: float) -> list[tuple[Write, Write]]:
    """The pairs of callers of which both, and nobody else, began at once to write one resource about as often."""
    by_sort: dict[tuple[str, ...], list[Write]] = defaultdict(list)
    for write in steps:
        if write[1] in WRITES and extra[write] >= least:
            by_sort[write[1:]].append(write)
    pairs = [(writes[0], writes[1]) for writes in by_sort.values() if len(writes) == 2]
    return [
        (a, b)
        for a, b in pairs
        if abs(steps[a].index - steps[b].index) <= AT_ONCE
        and max(extra[a], extra[b]) <= ALIKE * min(extra[a], extra[b])
    ]


def as_one(found: Iterable[Signal], pair: tuple[Write, Write], told: str, *, strength: float) -> list[Signal]:
    """The signals with those of both callers, who do it to each other, as one."""
    users = {pair[0][0], pair[1][0]}
    of_them = [signal for signal in found if users & set(signal.users)]
    others = [signal for signal in found if not users & set(signal.users)]
    if len({user for signal in of_them for user in signal.users}) < len(users):
        return [*others, *of_them]
    first = min(of_them, key=lambda signal: signal.low)
    about = {entity: weight for signal in of_them for entity, weight in signal.about.items()}
    whole = replace(first, strength=strength, about=about, sentence=told, users=tuple(sorted(users)), facts={})
    return [*others, whole]
