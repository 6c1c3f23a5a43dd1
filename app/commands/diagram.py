"""The reliability diagram: what was said to be how likely, and how often it was right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.core.evaluation.accuracy import Reliability

SIZE, EDGE = 320, 40
"""Pixels of the plot, and around it."""
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 400" width="400" height="400" role="img"
 font-family="sans-serif" font-size="12" fill="#64748b" stroke-width="1.5">
<title>Reliability: what was said to be how likely, and how often it was right</title>"""


def svg(bins: Sequence[Reliability]) -> str:
    """A dot for each bin where what was said and what was right meet, with its 95 % interval and how many cases it has.
    Odds hold where the interval crosses the diagonal. In colours that can be read on light and on dark."""
    return "\n".join([_HEAD, *_axes(), *(line for one in bins for line in _bin(one)), "</svg>\n"])


def _at(said: float, right: float) -> tuple[float, float]:
    return round(EDGE + said * SIZE, 1), round(EDGE + (1 - right) * SIZE, 1)


def _axes() -> Iterator[str]:
    left, bottom = _at(0, 0)
    right, top = _at(1, 1)
    yield f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#94a3b8"/>'
    yield f'<path d="M{left} {bottom}L{right} {top}" fill="none" stroke="#94a3b8" stroke-dasharray="4 4"/>'
    for tick in (0, 0.5, 1):
        x, y = _at(tick, tick)
        yield f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>'
        yield f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{tick:g}</text>'
    yield f'<text x="{(left + right) / 2}" y="{bottom + 32}" text-anchor="middle">said to be likely</text>'
    yield f'<text x="{left}" y="{top - 12}">was right</text>'


def _bin(one: Reliability) -> Iterator[str]:
    x, y = _at(one.said, one.right)
    low, high = (_at(one.said, end)[1] for end in one.right_interval)
    yield f'<path d="M{x} {low}V{high}" fill="none" stroke="#3b82f6"/><circle cx="{x}" cy="{y}" r="5" fill="#3b82f6"/>'
    yield f'<text x="{x + 9}" y="{y + 4}">{one.cases}</text>'
