"""Plots as SVG path data: a path for each curve, over a width that is stretched to the page's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.core.screen.plots import Plot, Trace
from app.web.drawing import Stroke, runs

HUES, DASHES, WEIGHTS = 6, 5, 4
"""Colours, patterns and widths of lines (static/graphs.css). Each two lines have a pattern, and two hues that are told
apart without red and green; thirty differ in hue and pattern, and the next thirty in width."""
SMALL, LARGE = 84, 300
"""Pixels of a small multiple and of a graph that stands alone."""
EDGE = 6.0


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """A plot with the strokes of its traces, in their order. ``base`` and ``top`` are the heights of 0 and of the
    peak, by which a script reads values off the drawing. ``dots`` are the points that no line leads to, once more:
    as thick as a line nobody would see them.
    """

    plot: Plot
    height: int
    strokes: tuple[Stroke, ...]
    dots: tuple[Stroke, ...]
    base: float
    top: float


def draw(plot: Plot, *, height: int = SMALL) -> DrawnGraph:
    """The plot as paths."""
    base, top = height - 2.0, EDGE
    strokes, dots = [], []
    for number, trace in enumerate(plot.traces):
        style, pieces = _style(trace, number), list(runs(trace.points, base=base, top=top))
        strokes.append(Stroke(style, _path(pieces)))
        if alone := [piece for piece in pieces if len(piece) == 1]:
            dots.append(Stroke(f"{style} dots", _path(alone)))
    return DrawnGraph(plot, height, tuple(strokes), tuple(dots), base, top)


def _style(trace: Trace, number: int) -> str:
    if trace.others:
        return "curve others"
    pair = number // 2
    weight = pair // (HUES // 2 * DASHES) % WEIGHTS
    parts = (f"hue{number % HUES}", f"dash{pair % DASHES}", f"weight{weight}")
    return " ".join(("curve", *(part for part in parts if part not in ("dash0", "weight0"))))


def _path(pieces: Iterable[Sequence[tuple[float, float]]]) -> str:
    """A piece of a single point is a dot: a line without length under a round cap."""
    return "".join(
        "M" + "L".join(f"{x:g} {y:.1f}" for x, y in piece) + ("h0" if len(piece) == 1 else "") for piece in pieces
    )
