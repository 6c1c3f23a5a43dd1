"""Plots as SVG path data: a path for each curve, over a width that is stretched to the page's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.core.screen.plots import Plot, Trace
from app.web.drawing import Stroke, runs

HUES = 6
"""Colours that can be told apart on either ground (static/graphs.css); behind them they come again, dashed."""
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
    return "curve others" if trace.others else f"curve hue{number % HUES}{' again' if number // HUES % 2 else ''}"


def _path(pieces: Iterable[Sequence[tuple[float, float]]]) -> str:
    """A piece of a single point is a dot: a line without length under a round cap."""
    return "".join(
        "M" + "L".join(f"{x:g} {y:.1f}" for x, y in piece) + ("h0" if len(piece) == 1 else "") for piece in pieces
    )
