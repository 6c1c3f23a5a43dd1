"""What moved, after a change, of the requests that the workloads answer on which it acts: what is looked at first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import itemgetter, lt

import numpy as np

from app.core.edges.served import Outcome
from app.core.edges.touched import Touched
from app.core.entities import Entity
from app.core.findings import Spark
from app.core.metrics.answers import LEAST, LONGER, SLOWER, Requests, homes, means, rates, requests, shares
from app.core.metrics.lines import Laid, laid
from app.core.metrics.turning import SOON, Moved, Tells, moved_after, turn
from app.core.model import MetricSeries
from app.core.onset import Floats, level_burst, stabilised

TITLES = FAILED, REFUSED, TIME, ASKED = (
    "Requests failed",
    "Requests refused",
    "Mean time to answer",
    "Requests answered",
)
"""In the order in which they are shown."""
MOST = 4
MOST_WORKLOADS = 2
HALVED = 2.0
"""So many times as many requests, or as few, tell something."""
SILENT = 0.1
"""Who is asked no more than this of what was asked before was cut off."""
OVER = 3.0
"""So many times the least noise is taken for that of what is over again, as few requests may be much of all."""
LAPSE = 4
"""Who is not told of for so many times as long as ever before is not told of any more: a scrape may fail."""


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """A line of what a server answered. ``scaled`` is what a turn is looked for in, ``floor`` its least noise."""

    server: Entity
    title: str
    unit: str
    values: Floats
    scaled: Floats
    floor: float
    tells: Tells
    harms: Tells = lt


def moved(change_at: datetime, series: Iterable[MetricSeries], who: Touched) -> list[Moved]:
    """At most MOST lines of the MOST_WORKLOADS that the change acts on most strongly, what does harm first."""
    found = list(_moved(change_at, series, who))
    harmed = {home for home, one in found if one.harm}
    order = sorted({home for home, _ in found}, key=lambda home: (who.workloads[home], home not in harmed, home))
    nearest = order[:MOST_WORKLOADS]
    shown = [
        (not one.harm, nearest.index(home), TITLES.index(one.line.title), one) for home, one in found if home in nearest
    ]
    return [one for *_, one in sorted(shown, key=itemgetter(0, 1, 2))[:MOST]]


def _moved(change_at: datetime, series: Iterable[MetricSeries], who: Touched) -> Iterator[tuple[Entity, Moved]]:
    """What moved of the workloads that the change acts on; of what is counted under several names, the clearest."""
    told = laid(series, until=(change_at + SOON).timestamp())
    if told is None:
        return
    of, best = homes(who.edges), dict[tuple[str, Entity], Moved]()
    for one in _answers(told):
        for home in of(one.server):
            if home not in who.workloads:
                continue
            index, end = turn(one.scaled, floor=one.floor), None
            if index is None and (over := level_burst(one.scaled, floor=OVER * one.floor)):
                index, end = over.start, over.end
            found = moved_after(
                change_at,
                home[2],
                one.values,
                index=index,
                end=end,
                line=Spark(
                    title=one.title,
                    unit=one.unit,
                    start=told.axis.start,
                    step=told.axis.step,
                    values=tuple(None if np.isnan(value) else float(value) for value in one.values),
                ),
                harms=one.harms,
            )
            if found is None or not one.tells(found.before, found.after):
                continue
            known = best.get((one.title, home))
            if known is None or abs(known.after - known.before) < abs(found.after - found.before):
                best[one.title, home] = found
    yield from ((home, found) for (_, home), found in best.items())


def _answers(told: Laid) -> Iterator[_Answers]:
    """All that is known of who served."""
    counted = requests(told)
    for one in shares(told, counted):
        title = FAILED if one.ended is Outcome.FAILED else REFUSED
        least = 100.0 * LEAST[one.ended]
        values = 100.0 * one.values
        yield _Answers(one.server, title, "%", values, values, least / 3, partial(_apart, least=least))
    for mean in means(told):
        scaled = np.log(np.maximum(mean.values, 1e-4))
        tells = partial(_apart, least=LONGER, times=SLOWER)
        yield _Answers(mean.server, TIME, "s", mean.values, scaled, np.log(SLOWER) / 3, tells)
    for server, values in _asked(counted):
        scaled = stabilised(values * told.axis.step)
        tells = partial(_apart, least=0.0, times=HALVED)
        yield _Answers(server, ASKED, "/s", values, scaled, 1.0, tells, harms=_silent)


def _apart(before: float, after: float, *, least: float, times: float = 1.0) -> bool:
    low, high = sorted((before, after))
    return high - low >= least and high >= times * low


def _silent(before: float, after: float) -> bool:
    return after <= SILENT * before


def _asked(counted: Requests) -> Iterator[tuple[Entity, Floats]]:
    """Requests a second of each server. Who is not told of any more while others are, as what has no pods, gets none.

    That goes for all names together: what was counted under one may be counted under another from then on.
    """
    found = [(server, values, np.flatnonzero(~np.isnan(values))) for server, values in rates(counted)]
    last: dict[Entity, int] = defaultdict(int)
    for server, _, known in found:
        last[server] = max(last[server], known[-1] if len(known) else 0)
    until = max(last.values(), default=0)
    for server, values, known in found:
        if len(known) > 1 and known[-1] == last[server] and until - known[-1] > LAPSE * np.diff(known).max():
            values[known[-1] + 1 : until + 1] = 0.0
        yield server, values
