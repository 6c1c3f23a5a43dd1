"""Who calls more often than before: load steps per caller, what they are about, and how they grew.

A step is found by best split (onset.py).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial

import numpy as np

from app.core.counted import Calls
from app.core.entities import Entity, altered, only_reacts
from app.core.model import SLOT_SECONDS, Rollout
from app.core.onset import MIN_AFTER, MIN_BEFORE, Floats, Step, count_step, count_steps
from app.core.phrases import many, percent, rise
from app.core.signals.calls import (
    MIN_EXTRA_PER_SECOND,
    NOTICEABLE,
    UNFELT,
    Load,
    Loads,
    Slots,
    caller_name,
    grouped,
    load_key,
    program,
)
from app.core.signals.duels import as_one, duels
from app.core.signals.errors import refusers
from app.core.signals.fed import NOT_FED, Fed, fed
from app.core.signals.growth import Growth, growth, replaced
from app.core.signals.retries import is_tried_again, retried
from app.core.signals.signal import Signal, SignalKind, moment
from app.core.signals.worked import NOBODY_RUNS, Runs, last_rollout

MOVES = frozenset(
    (verb, "", resource)
    for verb, resource in (
        *(("create", "pods"), ("delete", "pods")),
        *(("deletecollection", "pods"), ("create", "pods/eviction")),
    )
)
"""Calls that move pods."""
TOGETHER = 2
"""Slots within which a caller's calls rose at once."""
MIN_EXTRA_SHARE = 0.02
HEARD, QUIET = 20, 0.25
"""Calls of a slot, in all, from which on a quarter of the usual says that servers are down."""
LATE = 20 * 60 // SLOT_SECONDS
"""Slots: an incident is ranked for the last time ten minutes after its alert, which may be late itself."""
_REPEATED = frozenset({"create", "update", "patch"})
"""What a controller writes again, when what is stored is not what it wrote."""


class Apart(StrEnum):
    """What is told apart in a rise of calls."""

    FIRST_MOVER = "first mover"  # who began, from those who merely try again
    VERSION = "actor version"  # whose pods call more, new ones or old ones
    CLIENTS = "more clients"  # more clients, or more calls of each
    OBJECTS = "more objects"  # more objects that others make, or more writes of each
    REFUSER = "refuser"  # who is refused, and comes again, from what refuses


APART = frozenset(Apart)


def load_signals(
    calls: Calls,
    slots: Slots,
    made: Loads,
    rollouts: Sequence[Rollout] = (),
    *,
    runs: Runs = NOBODY_RUNS,
    apart: frozenset[Apart] = APART,
) -> list[Signal]:
    """Callers whose rate of one kind of call stepped up, with their share of all the extra load. ``rollouts`` are those
    of the window, ``runs`` who runs as whom, ``apart`` what is told apart in a rise."""
    done = _done(made, calls, slots)
    heard = np.sum(list(made.values()), axis=0) if made else np.zeros(1)
    end = _quiet(heard)  # who brought a server down is not heard of while it is
    steps = (count_steps({key: counts[:end] for key, counts in done.items()}) if end else {}) | count_steps(done)
    steps = {key: _since_its_first(step, done[key]) for key, step in steps.items()}
    extra = {key: (step.after - step.before) / SLOT_SECONDS for key, step in steps.items()}
    rose = {key: steps[key] for key in steps if extra[key] >= MIN_EXTRA_PER_SECOND and not only_reacts(key[0])}
    failed = grouped(calls.where(lambda one: is_tried_again(one.code)), slots, load_key)
    again = retried(rose, failed) if Apart.FIRST_MOVER in apart else {}
    extra = {key: more * (1.0 - again.get(key, 0.0)) for key, more in extra.items()}
    total = sum(extra.values()) or 1.0
    usual = float(np.median(heard)) / SLOT_SECONDS

    def told(key: Load, *, share: float, others: int) -> Signal:
        at = slots.epoch(steps[key].index)
        last = last_rollout((key[0],), rollouts, by=moment(at + SLOT_SECONDS), runs=runs)
        same = calls.where(lambda one: load_key(one) == key)
        more = fed(key, steps) if Apart.OBJECTS in apart else NOT_FED
        grown = _told_apart(_growth(same, key[0], last, boundary=at), apart)
        signal = _load_signal(key, steps[key], at, grown, more, share=share, others=others, again=again.get(key, 0.0))
        refusing = _refusers(same.during(at)) if Apart.REFUSER in apart else {}
        signal = replace(signal, about=signal.about | refusing | more.about)
        mine = calls.where(lambda one: one.user == key[0]).during(end=at)
        if not len(mine):
            return signal
        about: dict[Entity, float] = {altered(key[2], key[3].split("/")[0], key[1]): 0.7} if key[1] in _REPEATED else {}
        if not len(same.during(end=at).where(lambda one: one.code < 400)):
            about["gained", key[0], key[2], key[3], key[1]] = 1.0
        return replace(signal, about=signal.about | about, active=True)

    found = []
    by_caller: dict[str, list[Load]] = defaultdict(list)
    for key in sorted(steps, key=lambda key: -extra[key]):
        if not only_reacts(key[0]) and extra[key] >= MIN_EXTRA_PER_SECOND and extra[key] / total >= MIN_EXTRA_SHARE:
            by_caller[key[0]].append(key)
    for keys in by_caller.values():
        most = keys[0]
        # A caller that began several kinds of calls at once began one thing.
        alike = [key for key in keys if abs(steps[key].index - steps[most].index) <= TOGETHER]
        together = sum(extra[key] for key in alike)
        signal = told(most, share=together / total, others=len(alike) - 1)
        found.append(replace(signal, strength=_felt(together / total, together, usual)))
        for key in keys:
            if key not in alike:
                share = extra[key] / total
                found.append(replace(told(key, share=share, others=0), strength=_felt(share, extra[key], usual)))
    own = {key: step for key, step in steps.items() if not only_reacts(key[0])}
    for pair in duels(own, extra, least=MIN_EXTRA_PER_SECOND, places=partial(_places, calls)):
        found = as_one(found, _duel(pair, steps, slots))
    reaction = _reaction({k: s for k, s in steps.items() if only_reacts(k[0])}, extra, slots, usual=usual, total=total)
    found += [replace(signal, about=signal.about | _movers(steps, extra)) for signal in reaction]
    return sorted(found, key=lambda s: -s.strength)


def _since_its_first(step: Step, counts: Floats) -> Step:
    """A rise that has several steps is one since the first of them, where that is the greater one by how many times."""
    earlier = count_step(counts[: step.index])
    if earlier is None or _times(earlier) < _times(step):
        return step
    return replace(step, index=earlier.index, before=earlier.before)


def _times(step: Step) -> float:
    return step.after / max(step.before, 1.0)


def _quiet(heard: Floats) -> int | None:
    """The first slot of late in which hardly anybody was heard, as where no API server answers; None where there is
    none."""
    told, earliest = heard.tolist(), max(MIN_BEFORE + MIN_AFTER, len(heard) - LATE)
    before = sorted(told[:earliest])
    for slot, count in enumerate(told[earliest:], earliest):
        usual = before[slot // 2]
        if usual >= HEARD and count <= QUIET * usual:
            return slot
        insort(before, count)
    return None


def _done(made: Loads, calls: Calls, slots: Slots) -> Loads:
    """The calls less those that Kubernetes' own controllers were refused: they try these again, and no pod moves."""
    refused = grouped(calls.where(lambda one: one.code >= 400 and only_reacts(one.user)), slots, load_key)
    return made | {key: made[key] - counts for key, counts in refused.items()}


def _places(calls: Calls, write: Load) -> Counter[str]:
    """How often, by namespace, calls of one kind were made."""
    found: Counter[str] = Counter()
    for one, count in calls.where(lambda key: load_key(key) == write).sums():
        found[one.namespace] += count
    return found


def _duel(pair: tuple[Load, Load], steps: dict[Load, Step], slots: Slots) -> Signal:
    """Two that write the same statuses, one as often as the other."""
    _, verb, _, resource = pair[0]
    before, after = (sum(getattr(steps[key], when) for key in pair) / SLOT_SECONDS for when in ("before", "after"))
    users = [key[0] for key in pair]
    low = slots.epoch(min(steps[key].index for key in pair))
    return Signal(
        kind=SignalKind.LOAD,
        low=moment(low),
        high=moment(low + SLOT_SECONDS),
        strength=0.0,
        about=dict.fromkeys((("user", user) for user in users), 1.0),
        sentence=f"{' and '.join(map(caller_name, users))} began at once to write {resource},"
        f" one as often as the other: together they went {rise(before, after, f'{verb.upper()} {resource}')}",
        users=tuple(sorted(users)),
        rate_before=before,
        rate_after=after,
    )


def _movers(steps: dict[Load, Step], extra: dict[Load, float]) -> dict[Entity, float]:
    """Who began to make, delete or evict pods, and so makes the controllers work: each caller's share of that."""
    moves: dict[str, float] = defaultdict(float)
    for user, verb, group, resource in steps:
        if (verb, group, resource) in MOVES and not only_reacts(user):
            moves[user] += extra[user, verb, group, resource]
    total = sum(moves.values())
    return {("user", user): 0.8 * rate / total for user, rate in moves.items() if rate > 0}


def _felt(share: float, extra: float, usual: float) -> float:
    """How strong a rise is: its share of the extra load, less where all of it would hardly be noticed."""
    return min(1.0, share) * min(1.0, extra / (NOTICEABLE * usual + UNFELT))


def _reaction(
    steps: dict[Load, Step], extra: dict[Load, float], slots: Slots, *, usual: float, total: float
) -> list[Signal]:
    """The load of all callers that only react, as one signal: who made them work is one question, not twenty."""
    if not steps:
        return []
    enough = max(extra[key] for key in steps) / 4
    first = min((key for key in steps if extra[key] >= enough), key=lambda key: (steps[key].index, -extra[key]))
    together = sum(extra[key] for key in steps)
    if together < MIN_EXTRA_PER_SECOND or together / total < MIN_EXTRA_SHARE:
        return []
    user, verb, group, resource = first
    step, low = steps[first], slots.epoch(steps[first].index)
    return [
        Signal(
            kind=SignalKind.LOAD,
            low=moment(low),
            high=moment(low + SLOT_SECONDS),
            strength=_felt(together / total, together, usual),
            about={("api", group, resource.split("/")[0], verb): 0.3},
            sentence=f"Kubernetes' own controllers have more to do ({percent(together / total)} of the extra API load):"
            f" {caller_name(user)} went"
            f" {rise(step.before / SLOT_SECONDS, step.after / SLOT_SECONDS, f'{verb.upper()} {resource}')}",
            users=tuple(sorted({key[0] for key in steps})),
            rate_before=step.before / SLOT_SECONDS,
            rate_after=step.after / SLOT_SECONDS,
        )
    ]


def _growth(same: Calls, user: str, last: Rollout | None, *, boundary: float) -> Growth | None:
    named = same.where(lambda one: bool(one.pod))
    return growth(named, user, boundary=boundary) if len(named) else replaced(same, last, boundary=boundary)


def _refusers(since: Calls) -> dict[Entity, float]:
    """What refuses calls that are made more often: who is refused comes again."""
    said = Counter[tuple[str, str]]()
    for one, count in since.sums():
        said[one.error, one.namespace] += count
    return refusers(said)


def _told_apart(grown: Growth | None, apart: frozenset[Apart]) -> Growth | None:
    if grown and Apart.VERSION not in apart:
        grown = grown._replace(by_pod={})
    if grown and Apart.CLIENTS not in apart:
        grown = grown._replace(by_clients=None, said="")
    return grown


def _load_signal(
    key: Load, step: Step, low: int, grown: Growth | None, more: Fed, *, share: float, others: int, again: float
) -> Signal:
    user, verb, group, resource = key
    before, after = step.before / SLOT_SECONDS, step.after / SLOT_SECONDS
    about = {("user", user): 1.0, **program(user), ("api", group, resource.split("/")[0], verb): 0.3}
    beside = f" and {many(others, 'other sort')} of call" if others else ""
    said = (
        grown.said if grown else "",
        more.said,
        f"{percent(again)} of it is refused and tried again" if again else "",
    )
    return Signal(
        kind=SignalKind.LOAD,
        low=moment(low),
        high=moment(low + SLOT_SECONDS),
        strength=min(1.0, share),
        about=about,
        sentence=f"{caller_name(user)} went {rise(before, after, f'{verb.upper()} {resource}')}{beside}"
        f" ({'; '.join(filter(None, (f'{percent(share)} of the extra API load', *said)))})",
        users=(user,),
        rate_before=before,
        rate_after=after,
        by_pod=grown.by_pod if grown else {},
        facts={} if grown is None or grown.by_clients is None else {"by_clients": f"{grown.by_clients:.2f}"},
    )
