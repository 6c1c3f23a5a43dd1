"""Graphs as SVG: a line's pieces, and what is known for a moment alone."""

from __future__ import annotations

import pytest

from app.core.screen.plots import Plot, Trace
from app.web.graphs import DrawnGraph, draw


def drawn(*lines: tuple[float | None, ...], others: bool = False) -> DrawnGraph:
    traces = tuple(
        Trace(
            f"line {number}",
            tuple(None if height is None else (100.0 * place, height) for place, height in enumerate(heights)),
            last="1",
            mean="1",
            highest="1",
            others=others,
        )
        for number, heights in enumerate(lines)
    )
    return draw(Plot("requests", "Requests", "/s", 1.0, "1/s", traces, (), ""), height=84)


def test_a_point_that_no_line_leads_to_is_a_dot_as_well() -> None:
    graph = drawn((0.0, 1.0, None, 1.0, None), (0.0, 0.5, 1.0, None, None))
    assert [stroke.style for stroke in graph.strokes] == ["curve hue0", "curve hue1"]
    assert graph.strokes[0].d == "M0 82.0L100 6.0M300 6.0h0"
    assert [(stroke.style, stroke.d) for stroke in graph.dots] == [("curve hue0 dots", "M300 6.0h0")]


@pytest.mark.parametrize(("others", "style"), [(False, "curve hue0"), (True, "curve others")])
def test_what_is_known_in_a_single_bin_has_the_colour_of_its_line(others: bool, style: str) -> None:
    graph = drawn((None, 0.5, None), others=others)
    assert [stroke.style for stroke in graph.dots] == [f"{style} dots"]
    assert graph.dots[0].d == graph.strokes[0].d
