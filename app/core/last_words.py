"""What a container says as it ends is why the kubelet backs off: it holds for those complaints too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.entities import Entity
from app.core.signals import Signal

ENDED = frozenset({"Error", "OOMKilled"})
_BACKS_OFF = frozenset({"CrashLoopBackOff", "BackOff"})


def with_last_words(signals: Sequence[Signal]) -> list[Signal]:
    """The signals, where one tells that a workload's containers are held back with why they ended."""
    ended = {_home(signal): signal for signal in signals if signal.facts["reason"] in ENDED and not signal.spread}
    return [
        replace(signal, text=f"{signal.text} | {last.text}", cause=last.cause, facts=signal.facts | _said(last))
        if signal.facts["reason"] in _BACKS_OFF and (last := ended.get(_home(signal)))
        else signal
        for signal in signals
    ]


def last_words(message: str) -> str:
    """What a container said, of the message of its end (pod_states.endings); "" where it said nothing."""
    return message.partition(": ")[2]


def _said(signal: Signal) -> dict[str, str]:
    return {"says": signal.facts["says"]} if "says" in signal.facts else {}


def _home(signal: Signal) -> Entity:
    """Whose complaint a narrow one is."""
    return next(iter(signal.about))
