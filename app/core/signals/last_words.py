"""What a container says as it ends is why the kubelet backs off, and why probes fail: it holds for these, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from app.core.entities import Entity
from app.core.objects.pod_states import DIED, NOT_SCALED_UP
from app.core.signals.signal import Signal

NO_NODES = frozenset({NOT_SCALED_UP, "FailedScaleUp"})
"""What an autoscaler says where it makes no more nodes."""
_PENDING = frozenset({"Pending", "Unschedulable"})
_WAITS = {
    "ErrImagePull": frozenset({"ImagePullBackOff"}),
    "FailedScheduling": _PENDING,
    **dict.fromkeys(NO_NODES, _PENDING | {"FailedScheduling"}),
}
"""Why it is, and what is said as long as it is so."""
_BACKS_OFF = frozenset({"CrashLoopBackOff", "BackOff"})
_PROBED = frozenset({"Unhealthy", "Unready"})
SOON = timedelta(seconds=30)
"""How long after a probe failed a container may say why."""


def with_last_words(signals: Sequence[Signal]) -> list[Signal]:
    """The signals, where one tells that a workload's containers are held back, or fail probes, with why they ended."""
    tell = DIED | _WAITS.keys()
    telling = [signal for signal in signals if signal.facts["reason"] in tell and not signal.spread]
    ended = {_home(signal): signal for signal in sorted(telling, key=lambda s: s.facts["reason"] in NO_NODES)}
    return [
        replace(signal, text=f"{signal.text} | {last.text}", cause=last.cause, facts=signal.facts | _said(last))
        if (last := ended.get(_home(signal))) and _is_due(signal, last)
        else signal
        for signal in signals
    ]


def _is_due(signal: Signal, last: Signal) -> bool:
    """Whether a complaint is of the same trouble as a container's end."""
    if (why := last.facts["reason"]) in _WAITS:
        return signal.facts["reason"] in _WAITS[why]
    if signal.facts["reason"] in _BACKS_OFF:
        return True
    return signal.facts["reason"] in _PROBED and not signal.spread and last.low <= signal.low + SOON


def last_words(message: str) -> str:
    """What a container said, of the message of its end (pod_states.endings); "" where it said nothing."""
    return message.partition(": ")[2]


def _said(signal: Signal) -> dict[str, str]:
    return {"says": signal.facts["says"]} if "says" in signal.facts else {}


def _home(signal: Signal) -> Entity:
    """Whose complaint a narrow one is."""
    return next(iter(signal.about))
