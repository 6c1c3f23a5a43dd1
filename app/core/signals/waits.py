"""Slow calls -> what they began to wait for: admission webhooks, etcd, their turn."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from app.core.counted import Calls
from app.core.entities import CLUSTER, Entity, asked
from app.core.model import SLOT_SECONDS, CallKey
from app.core.phrases import many
from app.core.signals.calls import Slots, grouped
from app.core.signals.errors import failure_onset
from app.core.signals.signal import Signal, SignalKind, moment

PARTS = {
    "validating-webhook": "validating webhooks",
    "mutating-webhook": "mutating webhooks",
    "apf-queue-wait": "their turn (API priority and fairness)",
    "etcd": "etcd",
}
"""Parts of a call that can be waited for, as annotations.py tells them, in words."""
_WEBHOOKS = frozenset({"validating-webhook", "mutating-webhook"})


def wait_signals(calls: Calls, slots: Slots) -> list[Signal]:
    """Parts of the API server that calls began to wait for, one signal each."""
    slow = grouped(calls, slots, lambda key: key.waited_for if key.waited_for in PARTS else None)
    begun = {part: first for part, counts in slow.items() if (first := failure_onset(counts)) is not None}
    everything = grouped(calls, slots, _sort) if begun else {}
    found = []
    for part, first in begun.items():
        counts = slow[part]
        low, number = slots.epoch(first), counts[first:].sum()
        sorts = _sorts(calls.during(low, slots.epoch(slots.size)), part)  # the last slot may not be whole
        total = sum(everything[sort][first:].sum() for sort in sorts)
        before = counts[:first].sum()
        found.append(
            Signal(
                kind=SignalKind.ERROR,
                low=moment(low),
                high=moment(low + SLOT_SECONDS),
                strength=float(number / total * min(1.0, np.log1p(number) / np.log(100))),
                about=_about(part),
                spread=_spread(part, sorts) if part in _WEBHOOKS else {},
                sentence=f"{many(round(number), 'call')} took over half a second, most of it waiting for {PARTS[part]},"
                f" {f'{before:,.0f} before' if before else 'never before'}",
                facts={"waited_for": part},
            )
        )
    return sorted(found, key=lambda signal: -signal.strength)


def _sort(key: CallKey) -> tuple[str, str, str] | None:
    return None if key.verb == "watch" else (key.api_group, key.resource, key.verb)


def _sorts(calls: Calls, part: str) -> Counter[tuple[str, str, str]]:
    """What sorts of calls waited for a part, and how many of each."""
    found: Counter[tuple[str, str, str]] = Counter()
    for key, count in calls.sums():
        if key.waited_for == part and (sort := _sort(key)):
            found[sort] += count
    return found


def _about(part: str) -> dict[Entity, float]:
    if part == "apf-queue-wait":
        return {("throttle",): 0.8, CLUSTER: 0.3}
    return {} if part in _WEBHOOKS else {CLUSTER: 0.4}


def _spread(part: str, sorts: Counter[tuple[str, str, str]]) -> dict[Entity, float]:
    total = sorts.total()
    found: dict[Entity, float] = defaultdict(float)
    for (group, resource, verb), count in sorts.items():
        found[asked(part, group, resource, verb)] += count / total
    return dict(found)
