"""Call counts -> who calls how often, since when: load steps per caller.

Kubernetes' own metrics have no client label, so this is where "who" comes from. Counts come in slots of
SLOT_SECONDS; a step is found by best split (onset.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from app.core.counted import Calls, Ints, firsts
from app.core.entities import Entity, altered, only_reacts, workload
from app.core.findings import CallerRow
from app.core.model import SLOT_SECONDS, CallKey
from app.core.objects.actors import service_account
from app.core.onset import Floats, Step, count_steps
from app.core.phrases import many, percent, rise
from app.core.signals.duels import as_one, duels
from app.core.signals.growth import growth
from app.core.signals.retries import is_tried_again, retried
from app.core.signals.signal import Signal, SignalKind, moment

K = TypeVar("K", bound=Hashable)

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
MIN_EXTRA_PER_SECOND = 0.5
MIN_EXTRA_SHARE = 0.02
NOTICEABLE = 0.25
"""Extra calls count in full from this share of all usual calls on; a rise of a quarter is felt by everybody."""

_REPEATED = frozenset({"create", "update", "patch"})
"""What a controller writes again, when what is stored is not what it wrote."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The time axis of the counts: slot starts ``start + i * SLOT_SECONDS``, the last one whole."""

    start: int
    size: int

    def index(self, slot: int) -> int:
        return (slot - self.start) // SLOT_SECONDS

    def epoch(self, index: int) -> int:
        return self.start + index * SLOT_SECONDS


def axis(calls: Calls, *, until: float) -> Slots | None:
    """The axis that holds these counts up to ``until``; the first and an unfinished last slot are left out."""
    starts = calls.slot[calls.slot + SLOT_SECONDS <= until]
    if not len(starts):
        return None
    first = int(starts.min()) + SLOT_SECONDS
    return Slots(first, max(0, (int(starts.max()) - first) // SLOT_SECONDS + 1))


def grouped(
    calls: Calls, slots: Slots, key: Callable[[CallKey], K | None], *, column: Ints | None = None
) -> dict[K, Floats]:
    """Counts, or what another ``column`` says, per slot of each group, in the order in which they are first counted.

    A key of None leaves a call out.
    """
    groups: dict[K, int] = {}
    sorts = (key(one) for one in calls.keys)
    of = np.array([-1 if sort is None else groups.setdefault(sort, len(groups)) for sort in sorts], dtype=np.int64)
    group, index = of[calls.key], (calls.slot - slots.start) // SLOT_SECONDS
    size = max(0, slots.size)
    inside = (group >= 0) & (index >= 0) & (index < size)
    group, index = group[inside], index[inside]
    cells = np.bincount(
        group * size + index, weights=(calls.count if column is None else column)[inside], minlength=len(groups) * size
    )
    series = cells.reshape(len(groups), size)
    first = firsts(group, len(groups))
    names = list(groups)
    return {names[n]: series[n] for n in np.argsort(first, kind="stable").tolist() if first[n] < len(group)}


def who(key: CallKey) -> Entity:
    """The caller as an entity: its user name (every kubelet is its own user, every agent pod shares one)."""
    return ("user", key.user)


def caller_name(user: str) -> str:
    """A caller's short name: the ServiceAccount, the node, or the user as it is."""
    account = service_account(user)
    return account[1] if account else user.removeprefix("system:")


def program(user: str) -> dict[Entity, float]:
    """The workload that a signal about a caller is about, too: by convention it is named like its account."""
    account = service_account(user)
    return {workload(*account): 0.8} if account else {}


Load = tuple[str, str, str, str]  # user, verb, api group, resource
Loads = dict[Load, Floats]
"""Counts per slot."""


def load_key(key: CallKey) -> Load | None:
    return None if key.verb == "watch" else (key.user, key.verb, key.api_group, key.resource)


def loads(calls: Calls, slots: Slots) -> Loads:
    """How often each caller makes each kind of call: what most that is found in calls begins with."""
    return grouped(calls, slots, load_key)


def load_signals(calls: Calls, slots: Slots, made: Loads) -> list[Signal]:
    """Callers whose rate of one kind of call stepped up, with their share of all the extra load."""
    steps = count_steps(_done(made, calls, slots))
    extra = {key: (step.after - step.before) / SLOT_SECONDS for key, step in steps.items()}
    rose = {key: steps[key] for key in steps if extra[key] >= MIN_EXTRA_PER_SECOND and not only_reacts(key[0])}
    failed = grouped(calls.where(lambda one: is_tried_again(one.code)), slots, load_key)
    again = retried(rose, failed)
    extra = {key: more * (1.0 - again.get(key, 0.0)) for key, more in extra.items()}
    total = sum(extra.values()) or 1.0
    usual = float(np.median(np.sum(list(made.values()), axis=0))) / SLOT_SECONDS if made else 0.0
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
        signal = _load_signal(
            most, steps[most], slots, calls, share=together / total, others=len(alike) - 1, again=again.get(most, 0.0)
        )
        found.append(replace(signal, strength=_felt(together / total, together, usual)))
        for key in keys:
            if key not in alike:
                share = extra[key] / total
                later = _load_signal(key, steps[key], slots, calls, share=share, others=0, again=again.get(key, 0.0))
                found.append(replace(later, strength=_felt(share, extra[key], usual)))
    own = {key: step for key, step in steps.items() if not only_reacts(key[0])}
    for pair in duels(own, extra, least=MIN_EXTRA_PER_SECOND, places=_places(calls, own)):
        found = as_one(found, _duel(pair, steps, slots))
    reaction = _reaction({k: s for k, s in steps.items() if only_reacts(k[0])}, extra, slots, usual=usual, total=total)
    found += [replace(signal, about=signal.about | _movers(steps, extra)) for signal in reaction]
    return sorted(found, key=lambda s: -s.strength)


def _done(made: Loads, calls: Calls, slots: Slots) -> Loads:
    """The calls less those that Kubernetes' own controllers were refused: they try these again, and no pod moves."""
    refused = grouped(calls.where(lambda one: one.code >= 400 and only_reacts(one.user)), slots, load_key)
    return made | {key: made[key] - counts for key, counts in refused.items()}


def _places(calls: Calls, steps: dict[Load, Step]) -> dict[Load, Counter[str]]:
    """How often, by namespace, each kind of call was made."""
    found: dict[Load, Counter[str]] = {key: Counter() for key in steps}
    for one, count in calls.sums():
        if (key := load_key(one)) in found:
            found[key][one.namespace] += count
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
    return min(1.0, share) * min(1.0, extra / (NOTICEABLE * usual + 1.0))


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


def _load_signal(
    key: Load, step: Step, slots: Slots, calls: Calls, *, share: float, others: int, again: float
) -> Signal:
    user, verb, group, resource = key
    before, after = step.before / SLOT_SECONDS, step.after / SLOT_SECONDS
    low = slots.epoch(step.index)
    about = {("user", user): 1.0, **program(user), ("api", group, resource.split("/")[0], verb): 0.3}
    grown = growth(calls.where(lambda one: load_key(one) == key and bool(one.pod)), user, boundary=low)
    active = bool((calls.where(lambda one: one.user == user).slot < low).any())
    if active and verb in _REPEATED:
        about[altered(group, resource.split("/")[0], verb)] = 0.7
    more = f" and {many(others, 'other sort')} of call" if others else ""
    return Signal(
        kind=SignalKind.LOAD,
        low=moment(low),
        high=moment(low + SLOT_SECONDS),
        strength=min(1.0, share),
        about=about,
        sentence=f"{caller_name(user)} went {rise(before, after, f'{verb.upper()} {resource}')}{more}"
        f" ({percent(share)} of the extra API load{f'; {grown.said}' if grown and grown.said else ''}"
        f"{f'; {percent(again)} of it is refused and tried again' if again else ''})",
        users=(user,),
        rate_before=before,
        rate_after=after,
        by_pod=grown.by_pod if grown else {},
        facts={} if grown is None or grown.by_clients is None else {"by_clients": f"{grown.by_clients:.2f}"},
        active=active,
    )


def caller_rows(made: Loads, slots: Slots, *, onset: float, most: int = 8) -> list[CallerRow]:
    """The callers for the heat lane: first those whose calls grew most after the onset, then the loudest."""
    split = min(max(1, slots.index(int(onset))), max(1, slots.size - 1))
    names, counted = list(made), np.array(list(made.values())).reshape(len(made), slots.size)
    before, after = (_per_second(part) for part in (counted[:, :split], counted[:, split:]))
    total = counted.sum(axis=1)
    grown = np.lexsort((-total, before - after)).tolist()
    loud = sorted(grown[most // 2 :], key=lambda place: -total[place])
    return [
        CallerRow(
            user=user,
            verb=verb,
            resource=resource,
            start=float(slots.start),
            step=float(SLOT_SECONDS),
            counts=tuple(counted[place].astype(int).tolist()),
            before_per_second=float(before[place]),
            after_per_second=float(after[place]),
        )
        for place in [*grown[: most // 2], *loud][:most]
        for user, verb, _group, resource in [names[place]]
    ]


def _per_second(counts: Floats) -> Floats:
    """The mean rate of each row; 0 where there is no slot."""
    return np.asarray(counts.mean(axis=1) / SLOT_SECONDS) if counts.shape[1] else np.zeros(len(counts))
