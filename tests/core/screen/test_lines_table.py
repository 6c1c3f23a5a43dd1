"""Lines over time as a table for a terminal: what was not measured is blank, and no figure is cut off."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.screen.lines_table import MARKS, OVER_TIME, drawn
from app.core.screen.shown_tables import ALL
from app.core.screen.tables import as_text

VALUES = st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=110)


def table(*lines: dict[str, Any], step: float = 60, unit: str = "/s", **more: Any) -> list[str]:
    answer = {
        "items": [{"of": {"verb": "LIST"}, "others": 0, **line} for line in lines],
        "start": "2026-11-20T14:00:00Z",
        "step_seconds": step,
        "measure": "rate",
        "unit": unit,
        "freshness": [{"cluster": "shop", "at": "2026-11-20T14:09:00Z", "sources": {}}],
        "gaps": [],
        **more,
    }
    return as_text(answer, ALL["Evaluated" if "warnings" in more else "Lines"]).splitlines()


def test_of_each_line_how_it_went_its_last_value_and_its_highest() -> None:
    assert table({"values": [1.0, 900.0, None, 2.5, None]}, {"values": [None] * 5, "of": {"verb": "GET"}}) == [
        "2 lines",
        "LINE                              OVER TIME          LAST    HIGHEST AT",
        "LIST                              ▁█ ▁              2.5/s      900/s 14:01:00",
        "GET                                                     -          -",
        "rate by verb, 2026-11-20 14:00:00 to 14:04:00 UTC, a value each 1 min",
        "measured up to 2026-11-20 14:03:00 UTC; blank: nothing was measured",
        "recorded up to 2026-11-20 14:09:00 UTC",
    ]


def test_of_several_days_the_day_is_told() -> None:
    lines = table({"values": [1.0, 2.0]}, step=86_400)
    assert lines[2].endswith("11-21 14:00")
    assert "2026-11-20 14:00:00 to 2026-11-21 14:00:00 UTC" in lines[3]


def test_where_nothing_was_measured_it_says_so() -> None:
    for lines in (table(), table({"values": [None, None]})):
        assert "nothing was measured of it then" in lines
        assert lines[-1] == "recorded up to 2026-11-20 14:09:00 UTC"


def test_the_others_and_what_is_not_split_have_names() -> None:
    lines = table(
        {"of": {}, "values": [1.0]}, {"of": {}, "others": 3, "values": [1.0]}, {"of": {"a": ""}, "values": []}
    )
    assert [line.split("  ")[0] for line in lines[2:5]] == ["all", "3 others", "none"]


def test_a_long_name_stands_whole_below_and_drives_no_terminal() -> None:
    user = "system:serviceaccount:payments:checkout-with-a-very-long-name-of-its-own"
    lines = table({"of": {"user": user, "verb": "\x1b[2J"}, "values": [1.0]})
    assert lines[3].strip() == "payments:checkout-with-a-very-long-name-of-its-own \ufffd[2J"
    assert not any(character in "".join(lines) for character in "\x1b\r\u202e")


@pytest.mark.parametrize("value", [1e300, -1e300, 123_456_789_012.0, 1e-300])
def test_a_figure_is_written_shorter_and_never_cut_off(value: float) -> None:
    row = table({"values": [value]}, unit="")[2]
    assert "…" not in row
    assert float(row.split()[2].replace(",", "")) == pytest.approx(value, rel=0.01)


def test_what_a_prometheus_warns_of_is_told() -> None:
    for values in ([1.0], [None]):
        told = " ".join(table({"values": values}, warnings=["no answer from <store-1> " + "x" * 70]))
        assert "Prometheus warns: no answer from <store-1>" in told


@given(VALUES)
def test_a_line_is_blank_where_nothing_was_measured_and_nowhere_else(values: list[float | None]) -> None:
    marks = drawn(values)
    assert len(marks) == min(OVER_TIME, len(values))
    assert set(marks) <= {*MARKS, " "}
    if len(values) <= OVER_TIME:
        assert [mark == " " for mark in marks] == [value is None for value in values]
    known = [value for value in values if value is not None]
    if any(value > 0 for value in known) and not math.isclose(max(known), 0, abs_tol=1e-300):
        assert MARKS[-1] in marks
