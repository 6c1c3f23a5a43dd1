"""What moved after a change: requests of the apps that it acts on, calls of its accounts, the control plane.

A line moved where onset.py finds its best split, upwards or downwards, within SOON after the change. Nothing here
says that the change is to blame: it is what a person looks at first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import lt

import numpy as np

from app.core.counted import Calls
from app.core.edges.served import SERVED
from app.core.edges.served import TOLD_APART as APPS_APART
from app.core.edges.touched import NOBODY, Touched
from app.core.findings import Spark
from app.core.metrics.families import FAMILIES
from app.core.metrics.lines import LEVELS, TARGET, addable, laid
from app.core.metrics.turning import SOON, Moved, moved_after, turn
from app.core.model import SLOT_SECONDS, CallKey, MetricSeries
from app.core.onset import Floats, stabilised
from app.core.screen import served_after
from app.core.signals.calls import MIN_EXTRA_PER_SECOND, Slots, caller_name, grouped
from app.core.signals.series import sparks

MOST = 4
"""Lines of callers and the control plane."""
MOST_OF_CALLERS = 2
"""Lines of callers that are shown while the control plane has others to show."""
METRICS = frozenset(
    name
    for family in FAMILIES
    for metric in family.metrics
    for name in ((f"{metric}_sum", f"{metric}_count") if family.measure == "mean" else (metric,))
)
"""Names of the series that are looked at of the control plane."""
TOLD_APART = ("verb", "code", "job", "instance")
"""Labels by which a family chooses among its series or splits its means, and where they were scraped; by all others
they are added up."""
_APPS_APART = frozenset((*APPS_APART, *TARGET))
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


def told_apart(series: str, labels: Iterable[Iterable[str]]) -> Labels:
    """Those of a series' labels, (name, value), that some line tells apart."""
    kept = _APPS_APART if series in SERVED else TOLD_APART
    return tuple((name, value) for name, value in labels if name in kept)


def added_up(name: str, labels: Labels, *, times: tuple[float, ...], values: Floats) -> Iterator[MetricSeries]:
    """Series that were scraped together and that no line tells apart, as one: of a thousand, a tenth is left.

    ``values`` has the shape (series, times); what was reset stays by itself, and what ended with what ended then.
    """
    number = addable(values, counts=name not in LEVELS)
    for which in np.unique(number):
        yield MetricSeries(name, labels, "", times, tuple(values[number == which].sum(axis=0).tolist()))


def moved(change_at: datetime, measured: Measured, who: Touched = NOBODY) -> tuple[Moved, ...]:
    """What moved within SOON after ``change_at``: a few lines of apps, then at most MOST of callers, which come first,
    and the control plane."""
    of_apps = [one for one in measured.series if one.name in SERVED]
    others = [one for one in measured.series if one.name not in SERVED]
    callers = sorted(_callers(change_at, measured), key=lambda one: -abs(one.after - one.before))
    whole = sorted(_control_plane(change_at, others), key=lambda one: (not one.harm, one.at))
    own = callers[: max(MOST_OF_CALLERS, MOST - len(whole))]
    return (*served_after.moved(change_at, of_apps, who), *own, *whole[: MOST - len(own)])


def _callers(change_at: datetime, measured: Measured) -> Iterable[Moved]:
    if measured.slots is None:
        return
    first, last = measured.slots
    slots = Slots(first + SLOT_SECONDS, (last - first) // SLOT_SECONDS - 1)  # the outer two may be cut off
    for key, counts in _lines(measured.calls, slots).items():
        user, verb, resource, code = key
        index = turn(stabilised(counts), floor=1.0)
        found = moved_after(
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
            harms=lt if code else _never,
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
        found = moved_after(change_at, "", values, index=turn(values, floor=floor / 3.0), line=spark)
        if found is not None and abs(found.after - found.before) >= floor:
            yield found


def _never(_before: float, _after: float) -> bool:
    return False
