"""A graph as a table for a chat."""

from __future__ import annotations

import numpy as np
import pytest

from app.core.metrics.lines import Grid
from app.core.metrics.measures import Curve, Graph
from app.core.screen.graph_table import ROWS, graph_table

NOON = 1_795_003_200.0
GAP = float("nan")


def table(*curves: Curve, step: float = 60) -> list[str]:
    return graph_table("rate of calls by verb", Graph(Grid(NOON, step, 4), curves), unit="/s").splitlines()


def test_of_each_line_its_last_value_that_is_known_and_its_highest() -> None:
    gone = Curve(("LIST", "pods"), np.array([1.0, 900.0, 2.5, GAP]))
    assert table(gone, Curve(("GET",), np.full(4, GAP))) == [
        "rate of calls by verb",
        "      LAST  AT              HIGHEST  AT           OF",
        "     2.5/s  12:02:00          900/s  12:01:00     LIST pods",
    ]


@pytest.mark.parametrize(("step", "at"), [(60, "12:03:00"), (86_400, "11-21 12:00")])
def test_of_several_days_the_day_is_told(step: float, at: str) -> None:
    assert at in table(Curve((), np.arange(4.0)), step=step)[-1]


def test_it_is_short_and_narrow() -> None:
    found = table(*(Curve(("a" * 100, str(number)), np.ones(4)) for number in range(ROWS + 2)))
    assert len(found) == 2 + ROWS + 1
    assert found[-1] == "and 2 more"
    assert max(map(len, found)) == 80


def test_what_was_not_measured() -> None:
    assert table() == ["rate of calls by verb", "nothing was measured of it then"]
