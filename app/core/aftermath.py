"""What moved after a change: the calls of those who belong to it, and the control plane as a whole.

A line moved where onset.py finds its best split, upwards or downwards, within SOON after the change. Nothing here
says that the change is to blame: it is what a person looks at first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from app.core.calls import MIN_EXTRA_PER_SECOND, Slots, caller_name, grouped
from app.core.counted import Calls
from app.core.entities import only_reacts
from app.core.families import FAMILIES
from app.core.findings import Spark
from app.core.lines import LEVELS, addable, laid
from app.core.model import SLOT_SECONDS, ActorSource, CallKey, Change, MetricSeries, ObjectState
from app.core.onset import MIN_BEFORE, Floats, level_step
from app.core.reach import reach
from app.core.series import sparks
from app.core.topology import topology

SOON = timedelta(minutes=10)
"""How long after a change, and before it, its consequences are looked for."""
MOST = 4
MOST_OF_CALLERS = 2
"""Lines of callers that are shown while the control plane has others to show."""
METRICS = frozenset(
    name
    for family in FAMILIES
    for metric in family.metrics
    for name in ((f"{metric}_sum", f"{metric}_count") if family.measure == "mean" else (metric,))
)
"""Names of the series that are looked at."""


TOLD_APART = ("verb", "code", "job", "instance")
"""Labels by which a family chooses among its series or splits its means, and where they were scraped; by all others
they are added up."""
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was counted and measured around a moment.

    ``slots`` are the first and the last slot in which any call of the cluster was counted (epoch seconds), None
    where none was; ``calls`` are those of the users that were asked for.
    """

    slots: tuple[int, int] | None
    calls: Calls
    series: tuple[MetricSeries, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A line that moved at ``at``. ``who`` is the caller, "" the whole cluster; the means are in the line's unit.

    ``harm``: what rose is a failure or a load of the control plane.
    """

    who: str
    line: Spark
    at: datetime
    before: float
    after: float
    harm: bool


def told_apart(labels: Iterable[Iterable[str]]) -> Labels:
    """Those of a series' labels, (name, value), that some line tells apart."""
    return tuple((name, value) for name, value in labels if name in TOLD_APART)


def added_up(name: str, labels: Labels, *, times: tuple[float, ...], values: Floats) -> Iterator[MetricSeries]:
    """Series that were scraped together and that no line tells apart, as one: of a thousand, a tenth is left.

    ``values`` has the shape (series, times); what was reset stays by itself, and what ended with what ended then.
    """
    number = addable(values, counts=name not in LEVELS)
    for which in np.unique(number):
        yield MetricSeries(name, labels, "", times, tuple(values[number == which].sum(axis=0).tolist()))


def users_of(change: Change, state: ObjectState | None) -> tuple[str, ...]:
    """The callers that belong to a change: the accounts that it acts on, and who made it if that is known for sure.

    ``state`` is the object's last known state. A controller that only reacts is left out: others make it call.
    """
    top = topology([] if state is None else [state])
    found = {entity[1] for entity in reach(change, top) if entity[0] == "user"}
    if change.actor.source is ActorSource.AUDIT and not only_reacts(change.actor.name):
        found.add(change.actor.name)
    return tuple(sorted(found - {""}))


def moved(change_at: datetime, measured: Measured) -> tuple[Moved, ...]:
    """What moved within SOON after ``change_at``, at most MOST lines: callers first, then the control plane."""
    callers = sorted(_callers(change_at, measured), key=lambda one: -abs(one.after - one.before))
    whole = sorted(_control_plane(change_at, measured.series), key=lambda one: (not one.harm, one.at))
    own = callers[: max(MOST_OF_CALLERS, MOST - len(whole))]
    return (*own, *whole[: MOST - len(own)])


def _callers(change_at: datetime, measured: Measured) -> Iterable[Moved]:
    if measured.slots is None:
        return
    first, last = measured.slots
    slots = Slots(first + SLOT_SECONDS, (last - first) // SLOT_SECONDS - 1)  # the outer two may be cut off
    for key, counts in _lines(measured.calls, slots).items():
        user, verb, resource, code = key
        # Anscombe's transform, as onset.py has it for counts
        index = _turn(2.0 * np.sqrt(counts + 0.375), floor=1.0)
        found = _moved(
            change_at,
            caller_name(user),
            counts / SLOT_SECONDS,
            index=index,
            line=Spark(
                title=f"{verb.upper()} {resource}".rstrip() + (f" answered {code}" if code else ""),
                unit="/s",
                start=slots.start,
                step=SLOT_SECONDS,
                values=tuple((counts / SLOT_SECONDS).tolist()),
            ),
            fails=bool(code),
        )
        if found is not None and abs(found.after - found.before) >= MIN_EXTRA_PER_SECOND:
            yield found


Line = tuple[str, str, str, int]  # user, verb, resource, the code of what failed or 0 for all calls


def _lines(calls: Calls, slots: Slots) -> dict[Line, Floats]:
    return grouped(calls, slots, _all) | grouped(calls, slots, _failed)


def _all(key: CallKey) -> Line | None:
    return None if key.verb == "watch" else (key.user, key.verb, key.resource, 0)


def _failed(key: CallKey) -> Line | None:
    return None if key.verb == "watch" or key.code < 400 else (key.user, key.verb, key.resource, key.code)


def _control_plane(change_at: datetime, series: Iterable[MetricSeries]) -> Iterable[Moved]:
    told = laid(series, until=(change_at + SOON).timestamp())
    if told is None:
        return
    floors = {family.title: family.floor for family in FAMILIES}
    for spark in sparks(told, most=len(FAMILIES)):
        values = np.array([np.nan if value is None else value for value in spark.values])
        floor = floors[spark.title]
        found = _moved(change_at, "", values, index=_turn(values, floor=floor / 3.0), line=spark, fails=True)
        if found is not None and abs(found.after - found.before) >= floor:
            yield found


def _turn(values: Floats, *, floor: float) -> int | None:
    """The bin from which the line is another one, higher or lower; None when it stays as it was."""
    steps = [step for step in (level_step(values, floor=floor), level_step(-values, floor=floor)) if step]
    return max(steps, key=lambda step: step.t).index if steps else None


def _moved(
    change_at: datetime, who: str, values: Floats, *, index: int | None, line: Spark, fails: bool
) -> Moved | None:
    """The line as one that moved after the change; None when it did not, or nothing is known from before it."""
    if index is None or line.start + MIN_BEFORE * line.step > change_at.timestamp():
        return None
    at = line.start + index * line.step
    # A bin holds what happened until its end: one that began just before the change may be of its making.
    if not change_at.timestamp() - line.step < at <= (change_at + SOON).timestamp():
        return None
    before, after = float(np.nanmean(values[:index])), float(np.nanmean(values[index:]))
    return Moved(who, line, datetime.fromtimestamp(at, UTC), before, after, harm=fails and after > before)
