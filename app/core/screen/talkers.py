"""Who talks to the API server: calls of two stretches of time side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.counted import Calls
from app.core.model import CallKey
from app.core.screen.told_apart import BY, USUAL


@dataclass(frozen=True, slots=True)
class Side:
    """The calls of one stretch of time: how many, those of them that failed (code 400 and above), and the sum of their
    latencies in seconds, from request to answer. Watches count without latency: they last."""

    calls: int
    failed: int
    latency_seconds: float

    @property
    def mean_latency_ms(self) -> float:
        """0 where there are no calls."""
        return 1000 * self.latency_seconds / self.calls if self.calls else 0.0


NOTHING = Side(0, 0, 0.0)


WEIGHTS: dict[str, Callable[[Side], float]] = {
    "calls": lambda side: side.calls,
    "latency": lambda side: side.latency_seconds,
}
"""What callers can be compared by."""


@dataclass(frozen=True, slots=True)
class Talker:
    """Calls that are alike in ``of`` (the parts of a CallKey that were asked for), now and before.

    ``seconds`` is how long each of the two stretches is.
    """

    of: dict[str, Any]
    now: Side
    before: Side
    seconds: float


def talkers(
    counts: Calls,
    *,
    boundary: float,
    seconds: float,
    most: int,
    by: Sequence[str] = USUAL,
    weight: Callable[[Side], float] = WEIGHTS["calls"],
) -> list[Talker]:
    """The ``most`` whose ``weight`` rose most, then the heaviest. Slots from ``boundary`` (epoch seconds) on are now.

    ``by`` are keys of BY: calls that are alike in those are added up. ``seconds`` is how long each of the two stretches
    is.
    """
    parts = tuple(dict.fromkeys(part for name in by for part in BY[name]))
    sides: dict[tuple[Any, ...], tuple[list[int], list[int]]] = {}
    for place, some in enumerate((counts.during(boundary), counts.during(end=boundary))):
        for key, count, latency_us in some.totals():
            side = sides.setdefault(_values(key, parts), ([0, 0, 0], [0, 0, 0]))[place]
            side[0] += count
            side[1] += count if key.code >= 400 else 0
            side[2] += latency_us
    found = [
        Talker(dict(zip(parts, values, strict=True)), _side(now), _side(before), seconds)
        for values, (now, before) in sides.items()
    ]
    found.sort(key=lambda t: (weight(t.before) - weight(t.now), -weight(t.now), *map(str, t.of.values())))
    return found[:most]


def _values(key: CallKey, parts: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(key, part) for part in parts)


def _side(sums: list[int]) -> Side:
    calls, failed, latency_us = sums
    return Side(calls, failed, latency_us / 1e6)
