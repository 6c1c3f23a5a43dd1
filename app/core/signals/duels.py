"""Two callers that began to write the same statuses, one as often as the other: a fight that no field diff shows.

A write fight over desired fields is found from the changes themselves (fights.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

from app.core.model import SLOT_SECONDS
from app.core.onset import Step
from app.core.signals.signal import Signal

Write = tuple[str, str, str, str]  # user, verb, api group, resource
WRITES = frozenset({"update", "patch"})
STATUS = "/status"
AT_ONCE = 1
"""Slots within which both began."""
TOGETHER = timedelta(seconds=2 * SLOT_SECONDS)
"""How far apart all that belongs to it began."""
ALIKE = 1.5
"""One answers the other: neither writes more than so many times as often."""


def duels(
    steps: Mapping[Write, Step],
    extra: Mapping[Write, float],
    *,
    least: float,
    places: Callable[[Write], Counter[str]],
) -> list[tuple[Write, Write]]:
    """The pairs of callers of which both, and nobody else, began at once to write statuses of one resource about as
    often, in the same namespaces (``places``: how often in each). A caller is in one pair at the most."""
    by_sort: dict[tuple[str, ...], list[Write]] = defaultdict(list)
    for write in steps:
        if write[1] in WRITES and write[3].endswith(STATUS) and extra[write] >= least:
            by_sort[write[1:]].append(write)
    found: list[tuple[Write, Write]] = []
    for writes in by_sort.values():
        apart = abs(steps[writes[0]].index - steps[writes[-1]].index)
        rates = sorted(extra[write] for write in writes)
        if len(writes) != 2 or apart > AT_ONCE or rates[1] > ALIKE * rates[0]:
            continue
        one, other = writes
        here, there = places(one), places(other)
        shared = (here & there).total()
        taken = {write[0] for pair in found for write in pair}
        if 2 * shared >= max(here.total(), there.total()) and not {one[0], other[0]} & taken:
            found.append((one, other))
    return found


def as_one(found: Iterable[Signal], duel: Signal) -> list[Signal]:
    """The signals with those of both callers that began when their ``duel`` did as part of it."""
    theirs = [one for one in found if set(one.users) <= set(duel.users) and abs(one.low - duel.low) <= TOGETHER]
    about = {entity: weight for signal in theirs for entity, weight in signal.about.items()}
    whole = replace(duel, about=about | duel.about, strength=min(1.0, sum(signal.strength for signal in theirs)))
    return [*(one for one in found if one not in theirs), whole]
