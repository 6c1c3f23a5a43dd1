"""Call counts -> who calls how often.

Kubernetes' own metrics have no client label, so this is where "who" comes from. Counts come in slots of SLOT_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from app.core.counted import Calls, Ints, firsts
from app.core.entities import Entity, workload
from app.core.findings import CallerRow
from app.core.model import SLOT_SECONDS, CallKey
from app.core.objects.actors import service_account
from app.core.onset import Floats

K = TypeVar("K", bound=Hashable)

MIN_EXTRA_PER_SECOND = 0.5
NOTICEABLE = 0.25
"""Extra calls count in full from this share of all usual calls on; a rise of a quarter is felt by everybody."""
UNFELT = 3.0
"""So many extra calls a second beside are felt by no API server, however few there were before: it serves hundreds."""


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
    sorts = map(key, calls.keys)
    of = np.array([-1 if sort is None else groups.setdefault(sort, len(groups)) for sort in sorts], dtype=np.int64)
    size = max(0, slots.size)
    inside = (of >= 0)[calls.key] & (calls.slot >= slots.start) & (calls.slot < slots.epoch(size))
    rows = np.flatnonzero(inside)  # few, where most calls are left out
    group, index = of[calls.key[rows]], (calls.slot[rows] - slots.start) // SLOT_SECONDS
    weights = (calls.count if column is None else column)[rows]
    cells = np.bincount(group * size + index, weights=weights, minlength=len(groups) * size)
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
