"""What complains that there is too little, of what a change leaves less or uses up bit by bit."""

from __future__ import annotations

from app.core.edges.amounts import KILLED, left_of
from app.core.edges.program_causes import EXHAUSTED
from app.core.entities import WORKLOADS, workload
from app.core.model import Change, Verb
from app.core.ranking.ways import SCARCE
from app.core.signals.signal import Signal, SignalKind

HALF = 0.5
"""What is left of it at most."""
AT_MOST = frozenset({"TooManyReplicas"})
"""An autoscaler says so that would make more pods than it may."""


def is_short(change: Change, signal: Signal) -> bool:
    """Whether a change leaves half, or less, of what a signal may say there is too little of."""
    left = left_of(change) if signal.kind is SignalKind.SYMPTOM else None
    if left is None or left[0] > HALF:
        return False
    return _of_memory(signal) if left[1].path[-1] == "memory" else _of_anything(signal)


def comes_later(change: Change, signal: Signal) -> bool:
    """Whether what is complained of shows long after a change as a rule: as more is asked of what it left less, or as
    what its new program takes, and does not give back, is used up."""
    return is_short(change, signal) or _fills(change, signal)


def _fills(change: Change, signal: Signal) -> bool:
    home = workload(change.resource.namespace, change.resource.name)
    if change.resource.kind not in WORKLOADS or home not in signal.about:
        return False
    is_new = change.verb is Verb.UPDATE and any(diff.path[-1:] == ("image",) for diff in change.diffs)
    return is_new and (signal.cause is EXHAUSTED or _of_memory(signal))


def _of_memory(signal: Signal) -> bool:
    return signal.facts.get("reason") == "OOMKilled" or KILLED.search(signal.text) is not None


def _of_anything(signal: Signal) -> bool:
    return signal.facts.get("reason") in AT_MOST or SCARCE.search(signal.text) is not None
