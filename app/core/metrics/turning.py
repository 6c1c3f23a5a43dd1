"""A line that is another one after a change: where it turned, and how it was before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import lt

import numpy as np

from app.core.findings import Spark
from app.core.onset import MIN_BEFORE, Floats, level_step

SOON = timedelta(minutes=10)
"""How long after a change, and before it, its consequences are looked for."""
Tells = Callable[[float, float], bool]
"""Whether the means before and after say something."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A line that moved at ``at``. ``who`` is the app or the caller, "" the whole cluster; the means are in the line's
    unit.

    ``harm``: what rose is a failure, a delay or a load of the control plane, or an app is not asked any more.
    """

    who: str
    line: Spark
    at: datetime
    before: float
    after: float
    harm: bool


def turn(values: Floats, *, floor: float) -> int | None:
    """The bin from which the line is another one, higher or lower; None when it stays as it was."""
    steps = [step for step in (level_step(values, floor=floor), level_step(-values, floor=floor)) if step]
    return max(steps, key=lambda step: step.t).index if steps else None


def moved_after(
    change_at: datetime,
    who: str,
    values: Floats,
    *,
    index: int | None,
    line: Spark,
    harms: Tells = lt,
    end: int | None = None,
) -> Moved | None:
    """The line as one that moved after the change, and was as before again from bin ``end`` on where that is given;
    None when it did not move, or nothing is known from before it."""
    if index is None:
        return None
    until = max(0, int((change_at.timestamp() - line.start) // line.step))
    if np.count_nonzero(~np.isnan(values[:until])) < MIN_BEFORE:
        return None
    at = line.start + index * line.step
    # A bin holds what happened until its end: one that began just before the change may be of its making.
    if not change_at.timestamp() - line.step < at <= (change_at + SOON).timestamp():
        return None
    before, after = float(np.nanmean(values[:index])), float(np.nanmean(values[index:end]))
    return Moved(who, line, datetime.fromtimestamp(at, UTC), before, after, harm=harms(before, after))
