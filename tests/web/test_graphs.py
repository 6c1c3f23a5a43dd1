"""Graphs as SVG: a line's pieces, and what is known for a moment alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.screen.plots import Plot, Trace
from app.web.graphs import DrawnGraph, draw

CSS = Path(__file__).parents[2] / "static" / "graphs.css"


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


def test_a_hundred_lines_are_told_apart_and_neighbours_not_by_hue_alone() -> None:
    styles = [set(stroke.style.split()) for stroke in drawn(*[(0.0, 1.0)] * 100).strokes]
    assert len(set(map(frozenset, styles))) == 100
    hues = [next(part for part in style if part.startswith("hue")) for style in styles]
    patterns = [style - {hue} for style, hue in zip(styles, hues, strict=True)]
    for one in range(0, 30, 2):  # two have a pattern: hues that are told apart without red and green
        assert patterns[one] == patterns[one + 1]
        assert (hues[one], hues[one + 1]) in {("hue0", "hue1"), ("hue2", "hue3"), ("hue4", "hue5")}
        assert patterns[one] != patterns[one + 2]
    assert all(f".{part} " in CSS.read_text() for style in styles for part in style)
