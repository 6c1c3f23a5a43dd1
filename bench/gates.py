"""Figures beside their limits, and whether they hold."""

from __future__ import annotations

import time
from dataclasses import dataclass

ADDITIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class Gate:
    """A measured figure that must be at least (``at_least``) or at most (``at_most``) a limit."""

    name: str
    figure: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        above = self.at_least is None or self.figure >= self.at_least
        return above and (self.at_most is None or self.figure <= self.at_most)

    def __str__(self) -> str:
        limit = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        return f"{'pass' if self.holds else 'FAIL'}  {self.name}: {self.figure:.3g} {self.unit} (gate {limit})"


def yardstick() -> float:
    """Milliseconds of a million additions of Python's, just now: on a shared machine they may take twice as long an
    hour later, and so does all else that Python does."""
    began, total = time.perf_counter(), 0
    for number in range(ADDITIONS):
        total += number
    return (time.perf_counter() - began) * 1000
