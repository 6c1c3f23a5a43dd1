"""Call counts -> callers whose calls began to cost the API server more time each, called as often as before.

How often somebody calls does not tell what it costs: one LIST of all pods is worth a thousand GETs. The time that the
API server took for calls (from its audit log: stageTimestamp less requestReceivedTimestamp) does, as do its seats:
https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#seats-occupied-by-a-request .
"""

from __future__ import annotations

import numpy as np

from app.core.counted import Calls
from app.core.entities import only_reacts
from app.core.model import SLOT_SECONDS
from app.core.onset import Floats, level_steps
from app.core.phrases import measure, percent
from app.core.signals.calls import NOTICEABLE, Loads, Slots, caller_name, grouped, load_key, program
from app.core.signals.signal import Signal, SignalKind, moment

FLOOR = 0.05
"""Seconds of calls in a slot: the noise that is always there, a hundredth of one core's time."""
DEARER = 3.0
"""A call costs so many times what it did, and so many times more than others' reads, or writes, do at the same time:
when the API server or its store is slow, everybody's are dear."""
READS = frozenset({"get", "list"})
"""They are served from memory; writes wait for the store and for webhooks."""


def cost_signals(calls: Calls, slots: Slots, counts: Loads) -> list[Signal]:
    """One signal for each caller and sort of call whose single calls became dearer than others' did."""
    seconds = {key: spent / 1e6 for key, spent in grouped(calls, slots, load_key, column=calls.latency_us).items()}
    steps = level_steps(seconds, floor=FLOOR)
    extra = sum(step.after - step.before for step in steps.values()) or 1.0
    costs = {key: _dearer(seconds[key], counts[key], steps[key].index) for key in steps if not only_reacts(key[0])}
    dear = {key: own for key, own in costs.items() if own >= DEARER}
    usual = float(np.median(sum(seconds.values()))) if dear else 0.0
    found = []
    for key, own in dear.items():
        step = steps[key]
        alike = [other for other in seconds if other != key and (other[1] in READS) is (key[1] in READS)]
        if own < DEARER * _dearer(sum(seconds[o] for o in alike), sum(counts[o] for o in alike), step.index):
            continue
        user, verb, group, resource = key
        low, more = slots.epoch(step.index), step.after - step.before
        before, after = step.before / SLOT_SECONDS, step.after / SLOT_SECONDS
        took = f"{measure(before, 's')} to {measure(after, 's')}"
        found.append(
            Signal(
                kind=SignalKind.LOAD,
                low=moment(low),
                high=moment(low + SLOT_SECONDS),
                strength=min(1.0, more / extra) * min(1.0, more / (NOTICEABLE * usual + FLOOR)),
                about={("user", user): 1.0, **program(user), ("api", group, resource.split("/")[0], verb): 0.7},
                sentence=f"{caller_name(user)}'s {verb.upper()} {resource} went from {took} of the API server's time a"
                f" second ({percent(min(1.0, more / extra))} of the extra time), each call {own:.0f} times as dear",
                users=(user,),
                rate_before=float(counts[key][: step.index].mean()) / SLOT_SECONDS,
                rate_after=float(counts[key][step.index :].mean()) / SLOT_SECONDS,
                active=True,
            )
        )
    return found


def _dearer(seconds: Floats | int, counts: Floats | int, index: int) -> float:
    """How many times what it cost before a call costs since; 1 where there were none on either side."""
    if isinstance(seconds, int) or isinstance(counts, int):
        return 1.0
    before, after = counts[:index].sum(), counts[index:].sum()
    spent = seconds[:index].sum()
    return float(seconds[index:].sum() / after / (spent / before)) if before and after and spent else 1.0
