"""What a container says as it ends is why the kubelet backs off: it holds for those complaints too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.entities import Entity
from app.core.signals import Signal

_ENDED = frozenset({"Error", "OOMKilled"})
_BACKS_OFF = frozenset({"CrashLoopBackOff", "BackOff"})


def with_last_words(signals: Sequence[Signal]) -> list[Signal]:
    """The signals, where one tells that a workload's containers are held back with why they ended."""
    ended = {_home(signal): signal for signal in signals if signal.facts["reason"] in _ENDED and not signal.spread}
    return [
        replace(signal, text=f"{signal.text} | {last.text}", cause=last.cause)
        if signal.facts["reason"] in _BACKS_OFF and (last := ended.get(_home(signal)))
        else signal
        for signal in signals
    ]


def _home(signal: Signal) -> Entity:
    """Whose complaint a narrow one is."""
    return next(iter(signal.about))
