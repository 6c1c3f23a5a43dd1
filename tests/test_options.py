"""Lengths of time at the command line."""

from __future__ import annotations

import pytest
import typer

from app.commands import options


@pytest.mark.parametrize("text", ["soon", "", "-5m", "0s", "2026-11-20"])
def test_a_bad_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not 30s, 30m, 2h or 1d"):
        options.duration(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("30m", 1800), ("2h", 7200), ("1d", 86_400), ("2w", 1_209_600), ("1h30m", 5400), ("PT5M", 300)],
)
def test_durations_as_people_write_them(text: str, seconds: int) -> None:
    assert options.duration(text).total_seconds() == seconds
