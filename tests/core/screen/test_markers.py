"""Changes over graphs: where there are many, all of the time has its marks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from app.core.screen.axis import WIDTH, Axis
from app.core.screen.lanes import Mark
from app.core.screen.plots import MOST_MARKERS, markers

START = datetime(2026, 11, 20, 14, tzinfo=UTC)
AXIS = Axis(START, START + timedelta(hours=1))


def mark(seconds: float, *, name: str = "web", count: int = 1, kind: str = "Deployment") -> Mark:
    return Mark("apps", kind, START + timedelta(seconds=seconds), count, f"id-{seconds:g}", name)


def test_ten_thousand_changes_are_marked_over_all_of_the_window() -> None:
    found = markers(AXIS, [mark(number * 0.36) for number in range(10_000)])
    assert MOST_MARKERS * 0.8 < len(found) <= MOST_MARKERS
    gaps = [later.x - one.x for one, later in pairwise(found)]
    assert max(gaps) < 2 * WIDTH / MOST_MARKERS
    assert (found[0].x, found[-1].x > WIDTH - 2 * WIDTH / MOST_MARKERS) == (0, True)
    told = [int(one.label.partition(" and ")[2].removesuffix(" more").replace(",", "")) for one in found]
    assert sum(told) + len(found) == 10_000


def test_few_changes_have_a_mark_each_and_neighbours_one() -> None:
    found = markers(AXIS, [mark(700, count=3), mark(100, name="ham and eggs"), mark(702), mark(900, kind="Lease")])
    assert [(one.change_id, one.label) for one in found] == [
        ("id-100", "Deployment ham and eggs"),
        ("id-700", "Deployment web and 3 more"),
    ]
