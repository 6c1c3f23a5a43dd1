"""Bars of the timeline: round where they begin and end, cut where the window does; and the small lines beside them."""

from __future__ import annotations

import pytest

from app.core.screen.lanes import Lane, Spot
from app.web import templates
from app.web.drawing import _lane


@pytest.mark.parametrize(
    ("x", "until", "expected"),
    [
        (100, 300, {"bar running": "M100 16H300"}),
        (0, 300, {"bar cut running": "M0 16H12", "bar running": "M12 16H300"}),
        (100, 1000, {"bar cut running": "M988 16H1000", "bar running": "M100 16H988"}),
        (0, 1000, {"bar cut running": "M0 16H12M988 16H1000", "bar running": "M12 16H988"}),
        (0, 6, {"bar cut running": "M0 16H6"}),
        (998, 1004, {"bar cut running": "M998 16H1000"}),
        (0, 0, {"bar running": "M0 16H0"}),
        (1000, 1000, {"bar running": "M1000 16H1000"}),
    ],
    ids=[
        "within",
        "from before",
        "to after",
        "all of it",
        "just its end",
        "just its beginning",
        "a point",
        "at its end",
    ],
)
def test_a_bar_that_goes_on_beyond_the_window_is_cut_there(x: float, until: float, expected: dict[str, str]) -> None:
    lane = Lane("rollouts", "Rollouts", "1", "bar", 1, (Spot(x, until, 0, "running", "c1", "web: running"),))
    assert {one.style: one.d for one in _lane(lane).strokes} == expected


def test_of_a_suspect_no_part_is_covered() -> None:
    spots = (Spot(0, 1000, 0, "suspect", "c1", "web"), Spot(0, 1000, 0, "plain", "c2", "api"))
    styles = [one.style for one in _lane(Lane("rollouts", "Rollouts", "2", "bar", 1, spots)).strokes]
    assert styles == ["bar cut plain", "bar plain", "bar cut suspect", "bar suspect"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FailedComputeMetricsReplicas, Pulled", "Failed<wbr>Compute<wbr>Metrics<wbr>Replicas, Pulled"),
        ("NetworkPolicy, Role + 2", "NetworkPolicy, Role + 2"),
        ("<b>" + "aB" * 10, "&lt;b&gt;" + "a" + "<wbr>Ba" * 9 + "<wbr>B"),
    ],
    ids=["long", "short", "hostile"],
)
def test_a_long_word_under_a_lanes_title_goes_on_in_the_next_line_between_its_parts(text: str, expected: str) -> None:
    page = templates.environment().from_string('{% import "_macros.html" as ui %}{{ ui.humps(text) }}')
    assert page.render(text=text) == expected
