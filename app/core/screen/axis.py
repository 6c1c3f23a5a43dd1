"""A window of time laid over 1000 units, so that a drawing scales without knowing the time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

WIDTH = 1000.0
"""Units of every axis."""
EDGE = 35.0
"""No tick nearer to an end than this: its text would be cut off."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A window of time laid over WIDTH units. ``to_at`` must be after ``from_at`` (ValueError)."""

    from_at: datetime
    to_at: datetime

    def __post_init__(self) -> None:
        if self.from_at >= self.to_at:
            raise ValueError("a window must end after it begins")

    @property
    def seconds(self) -> float:
        return (self.to_at - self.from_at).total_seconds()

    def x(self, at: datetime) -> float:
        """The place of a time, clipped to the axis, to a tenth of a unit."""
        share = (at - self.from_at) / (self.to_at - self.from_at)
        return round(min(max(share, 0.0), 1.0) * WIDTH, 1)

    def holds(self, at: datetime) -> bool:
        return self.from_at <= at <= self.to_at


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    text: str


TICK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)


def ticks(axis: Axis, *, wanted: int = 8) -> tuple[Tick, ...]:
    """At most ``wanted`` round times; with seconds only where the step needs them, with dates from a day on."""
    step = next((step for step in TICK_STEPS if axis.seconds / step <= wanted), int(axis.seconds / wanted) + 1)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%b %d"
    first = int(axis.from_at.timestamp() // step + 1) * step
    times = (datetime.fromtimestamp(seconds, UTC) for seconds in range(first, int(axis.to_at.timestamp()) + 1, step))
    return tuple(Tick(axis.x(at), at.strftime(form)) for at in times if EDGE < axis.x(at) < WIDTH - EDGE)
