"""What is remembered beyond an incident's window -> more evidence for and against its suspects.

How a change went before: in other clusters, in other weeks, and by what people said of such changes. It is looked up
for the suspects alone, once they are ranked, and moves them by odds, as all evidence does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.core.findings import Evidence, Opinion, Ranking
from app.core.model import Change, Verb
from app.core.phrases import many
from app.core.ranking.case import say
from app.core.ranking.flips import with_flips
from app.core.ranking.same_edit import wrote
from app.core.traits import trait

REMEMBERED = timedelta(days=90)
"""So far back precedents are looked for."""
MOST = 50
"""So many of one object are looked at, the newest."""
ELSEWHERE_RULE = "elsewhere"
"""Evidence that names other clusters and their incidents: who may not see these is not told of it."""
ELSEWHERE = 10
"""So many of an object of its name in another cluster: there can be dozens of clusters."""
HARM = timedelta(hours=1)
"""An incident that began so soon after a change counts against it; without one it is said to have gone well."""
LONG_ENOUGH = timedelta(days=7)
"""What was recorded for less cannot say that a change is the first of its sort."""
CHANGED = 3
"""Nor can an object that was changed less often: whatever is done to it is the first of its sort."""
WELL = -0.1
"""Times ln(1 + clusters), what it weighs that the same change went well elsewhere: in the first two tests with a past
that was said of ten culprits and four others (decision 0038)."""
WEEKS, DAYS = 5, 7
AT_THE_TIME = timedelta(minutes=90)
"""What is done by the clock of a place with summer time is an hour off for a part of the year."""
OFTEN = {WEEKS: 2, DAYS: 4}
"""Of so many weeks or days, in so many at the least a habit was kept."""


@dataclass(frozen=True, slots=True)
class Precedent:
    """An earlier change of an object that a suspect changed, or of the one of its name in another cluster: what it did
    and when, not who wrote it.

    ``incident`` is the title of one that began within HARM after it ("" for none), ``alerted`` whether its cluster ever
    had one and is recorded until HARM after it, as else none would be known, ``said`` what people said of it as a
    suspect of any incident.
    """

    change: Change
    incident: str
    alerted: bool
    said: tuple[Opinion, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of the suspects: ``precedents`` of their objects, ``said`` of themselves in other incidents,
    by change id, and since when changes of their cluster are seen (None: not known)."""

    precedents: tuple[Precedent, ...] = ()
    said: tuple[tuple[str, Opinion], ...] = ()
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """A suspect's change with the precedents of its object: here (``own``) and in other clusters, and of the own those
    of its sort (``before``); what people said of such changes, since when changes are seen, and when it is ranked."""

    change: Change
    own: Sequence[Precedent]
    others: Sequence[Precedent]
    before: Sequence[Precedent]
    said: Sequence[Opinion]
    since: datetime | None
    now: datetime


Recall = Callable[[Remembered], Evidence | None]


_Object = tuple[str, str, str | None, str]


def _object(change: Change) -> _Object:
    """An object, in whichever cluster."""
    resource = change.resource
    return resource.api_group, resource.kind, resource.namespace, resource.name


def elsewhere(asked: Remembered) -> Evidence | None:
    """The same change in other clusters, which are well or are not."""
    values = wrote(asked.change)
    if not values:
        return None
    same = [one for one in asked.others if wrote(one.change) == values]
    harmed = next((one for one in same if one.incident), None)
    if harmed is not None:
        where = harmed.change.resource.cluster
        return say(
            ELSEWHERE_RULE, 0.8, f'The same change was made in {where}, and there "{harmed.incident}" began soon after.'
        )
    well = sorted({one.change.resource.cluster for one in same if one.alerted and asked.now - one.change.at >= HARM})
    if not well:
        return None
    named = ", ".join(well[:3]) + (f" and {len(well) - 3} more" if len(well) > 3 else "")
    return say(
        ELSEWHERE_RULE,
        WELL * math.log1p(len(well)),
        f"The same change was made in {named}: no incident began there in the hour after.",
    )


def habit(asked: Remembered) -> Evidence | None:
    """What is made at this time every week, or every day, and did no harm."""
    change, kept = asked.change, asked.before
    for every, times in ((timedelta(days=7), WEEKS), (timedelta(days=1), DAYS)):
        moments = [change.at - n * every for n in range(1, times + 1)]
        regular = [[one for one in kept if abs(at - one.change.at) <= AT_THE_TIME] for at in moments]
        held = [some for some in regular if some]
        if len(held) >= OFTEN[times] and not any(one.incident for some in held for one in some):
            when, period = (f"{change.at:%A}", "weeks") if times == WEEKS else ("day", "days")
            sentence = f"It is made every {when} at about this time, in {len(held)} of the last {times} {period}"
            return say("habit", -0.5 * math.log1p(len(held)), f"{sentence}: no incident began in the hour after.")
    return None


def first_ever(asked: Remembered) -> Evidence | None:
    """The first of its sort ever, where the object was changed often enough, and for long enough, to say so."""
    change, since = asked.change, asked.since
    if since is None or change.at - since < LONG_ENOUGH:
        return None
    if asked.before or change.verb is not Verb.UPDATE or not CHANGED <= len(asked.own) < MOST:
        return None
    others, days = many(len(asked.own), "other change"), many((change.at - since).days, "day")
    return say("first ever", 0.3, f"It is the first of its sort of this object in {days}, after {others}.")


def verdicts(asked: Remembered) -> Evidence | None:
    """What people said of such changes."""
    was, was_not = (sum(one is opinion for one in asked.said) for opinion in (Opinion.IT, Opinion.NOT_IT))
    if not was and not was_not:
        return None
    weight = 0.8 * math.log2(1 + was) - 0.3 * math.log2(1 + was_not)
    times = [f"{many(n, 'time')} that it {what}" for n, what in ((was, "was it"), (was_not, "was not")) if n]
    return say(
        "verdicts", max(-1.2, min(1.6, weight)), f"Of such a change of this object people said {' and '.join(times)}."
    )


RECALLS: tuple[Recall, ...] = (elsewhere, habit, first_ever, verdicts)


def remembered(ranking: Ranking, memory: Memory, *, recalls: Sequence[Recall] = RECALLS) -> Ranking:
    """The ranking with what is remembered of each suspect. Those that were not shown keep their weight.

    ``recalls`` lets an ablation leave some out.
    """
    known: dict[_Object, list[Precedent]] = defaultdict(list)
    for precedent in memory.precedents:
        known[_object(precedent.change)].append(precedent)
    asked = [_of(one.change, known[_object(one.change)], memory, now=ranking.ranked_at) for one in ranking.suspects]
    more = [[e for recall in recalls if (e := recall(one)) is not None] for one in asked]
    if not any(more):
        return ranking
    gains = [sum(e.weight for e in some) for some in more]
    rest = 1.0 - ranking.none_of_these - sum(one.probability for one in ranking.suspects)
    weights = [one.probability * math.exp(gain) for one, gain in zip(ranking.suspects, gains, strict=True)]
    total = ranking.none_of_these + max(0.0, rest) + sum(weights)
    found = [
        replace(
            one,
            probability=weight / total,
            score=round(one.score + gain, 3),
            evidence=tuple(sorted((*one.evidence, *some), key=lambda e: -abs(e.weight))),
        )
        for one, some, gain, weight in zip(ranking.suspects, more, gains, weights, strict=True)
    ]
    found.sort(key=lambda one: -one.score)  # equals stay as they were
    placed = tuple(replace(one, rank=place) for place, one in enumerate(found, 1))
    return with_flips(replace(ranking, suspects=placed, none_of_these=ranking.none_of_these / total))


def _of(change: Change, alike: list[Precedent], memory: Memory, *, now: datetime) -> Remembered:
    own = [one for one in alike if one.change.resource.cluster == change.resource.cluster]
    others = [one for one in alike if one.change.resource.cluster != change.resource.cluster]
    sort = trait(change)
    same = [one for one in alike if trait(one.change) == sort]
    said = [opinion for one in same for opinion in one.said]
    said += [opinion for change_id, opinion in memory.said if change_id == change.id]
    before = [one for one in same if one.change.resource.cluster == change.resource.cluster]
    return Remembered(change, own, others, before, said, memory.since, now)
