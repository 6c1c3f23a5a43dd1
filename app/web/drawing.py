"""Turns a Picture into SVG path data: one path a lane and tone, however many spots it holds.

All x are in the axis' units and stretched to the page's width; strokes do not scale, so a zero-length line with a
round or square cap stays a true circle or square at any width.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from app.core.screen.axis import WIDTH
from app.core.screen.lanes import Lane, Spot
from app.core.screen.timeline import Braid, Heat, Line, Picture

ROW = 11
"""Pixels between the rows of a lane."""
LINE_HEIGHT = 40
DENSITY_HEIGHT = 34
HEAT_HEIGHT = 14
BRAID_HEIGHT = 32
ROUND = 12
"""Units of the axis that the round end of a bar takes at the most, on the narrowest screen."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """One path: its CSS class and its data."""

    style: str
    d: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """One row of the drawing. ``spots`` is JSON ``[[x, until, y, change id, label], ...]`` for hovering.

    ``notes`` are the small lines under the title; ``subtitle`` tells all of it to who points or listens.
    """

    key: str
    title: str
    subtitle: str
    height: int
    strokes: tuple[Stroke, ...]
    notes: tuple[str, ...]
    spots: str = "[]"


def rows(picture: Picture) -> tuple[Drawn, ...]:
    """Every row of the drawing from top to bottom."""
    return (
        *lines(picture.lines),
        _density(picture),
        *(_lane(lane) for lane in picture.lanes),
        *(_heat(heat) for heat in picture.heats),
        *(_braid(braid) for braid in picture.braids if braid.x < WIDTH and braid.until > 0),  # else it is not in view
    )


def lines(some: Sequence[Line]) -> tuple[Drawn, ...]:
    """Sparklines alone, as they stand on top of the drawing."""
    return tuple(_line(line, number) for number, line in enumerate(some))


def _lane(lane: Lane) -> Drawn:
    height = max(lane.rows * ROW + 12, 32)
    top = (height - (lane.rows - 1) * ROW) / 2
    paths: dict[str, list[str]] = defaultdict(list)
    for spot in lane.spots:
        y = top + spot.row * ROW
        if lane.shape == "diamond":
            paths[f"diamond {spot.tone}"].append(f"M{spot.x:g} {y - 5:g}l5 5l-5 5l-5-5z")
        elif lane.shape == "bar":
            for style, x, until in _bar(spot):
                paths[f"{style} {spot.tone}"].append(f"M{x:g} {y:g}H{until:g}")
        else:
            paths[f"{lane.shape} {spot.tone}"].append(f"M{spot.x:g} {y:g}H{spot.until:g}")
    spots = [(spot.x, spot.until, top + spot.row * ROW, spot.change_id, spot.label) for spot in lane.spots]
    strokes = tuple(Stroke(style, "".join(paths[style])) for style in sorted(paths, key=_above))
    return Drawn(lane.key, lane.title, lane.subtitle, height, strokes, (lane.subtitle,), orjson.dumps(spots).decode())


def _bar(spot: Spot) -> Iterator[tuple[str, float, float]]:
    """The pieces of a bar, each of a style and from here to there. Its ends are round, but one that lies outside the
    axis: there it is cut, so that it shows that it began before, or goes on."""
    x, until = spot.x, min(spot.until, WIDTH)
    if x < until and x <= 0:
        yield "bar cut", 0, min(until, ROUND)
        x = ROUND
    if spot.x < until and until >= WIDTH:
        yield "bar cut", max(spot.x, WIDTH - ROUND), WIDTH
        until = WIDTH - ROUND
    if x <= until:
        yield "bar", x, until


def _above(style: str) -> tuple[bool, str]:
    """The suspect is drawn last, over everything."""
    return style.endswith("suspect"), style


def _line(line: Line, number: int) -> Drawn:
    base, top = LINE_HEIGHT - 5, 7
    stroke, area = "", ""
    for piece in runs(line.points, base=base, top=top):
        path = "L".join(f"{x:g} {y:.1f}" for x, y in piece)
        stroke += f"M{path}"
        area += f"M{piece[0][0]:g} {base}L{path}V{base}z"
    tone = "bad" if line.bad else f"hue{number % 2}"
    strokes = (Stroke(f"area {tone}", area), Stroke(f"line {tone}", stroke))
    return Drawn("line", line.title, line.subtitle, LINE_HEIGHT, strokes, (line.subtitle,))


def runs(
    points: Sequence[tuple[float, float] | None], *, base: float, top: float
) -> Iterator[list[tuple[float, float]]]:
    """The pieces of a line between its gaps, from heights of 0 to 1 to those of a drawing."""
    piece: list[tuple[float, float]] = []
    for point in (*points, None):
        if point is not None:
            piece.append((point[0], base - point[1] * (base - top)))
        elif piece:
            yield piece
            piece = []


def _density(picture: Picture) -> Drawn:
    peak = max(picture.density, default=0)
    width = WIDTH / len(picture.density)
    base = DENSITY_HEIGHT - 4
    d = "".join(
        f"M{slot * width + width * 0.1:g} {base}v{-max(count / peak * (base - 6), 2):.1f}h{width * 0.8:g}V{base}z"
        for slot, count in enumerate(picture.density)
        if count
    )
    subtitle = f"{picture.shown:,} in view"
    return Drawn("density", "Changes", subtitle, DENSITY_HEIGHT, (Stroke("columns", d),), (subtitle,))


def _heat(heat: Heat) -> Drawn:
    paths: dict[int, list[str]] = defaultdict(list)
    for x, until, level in heat.cells:
        paths[level].append(f"M{x:g} 1H{max(until - 1, x + 1):g}V{HEAT_HEIGHT - 1}H{x:g}z")
    tone = "loud" if heat.loud else "calm"
    strokes = tuple(Stroke(f"heat {tone} level{level}", "".join(paths[level])) for level in sorted(paths))
    return Drawn("heat", heat.title, heat.detail, HEAT_HEIGHT, strokes, (heat.most,) if heat.loud else ())


def _braid(braid: Braid) -> Drawn:
    """Two waves against each other; a wave is 18 units long whatever the fight's real rate."""
    steps = max(int((braid.until - braid.x) / 2.25), 2)
    middle, swing = BRAID_HEIGHT / 2, 8
    strokes = []
    for style, phase in (("braid one", 0.0), ("braid two", math.pi)):
        points = (
            f"{braid.x + (braid.until - braid.x) * step / steps:.1f} "
            f"{middle + swing * math.sin(step * math.pi / 4 + phase):.1f}"
            for step in range(steps + 1)
        )
        strokes.append(Stroke(style, "M" + "L".join(points)))
    said = f"{braid.subtitle}: {braid.sides}"
    return Drawn("braid", braid.title, said, BRAID_HEIGHT, tuple(strokes), (said,))
