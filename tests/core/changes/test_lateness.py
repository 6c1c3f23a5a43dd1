"""What a watch tells late is dated by the object's own times, and by an interval where they do not say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.core.changes.lateness import RawManager, RawTimes, When, written

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


WROTE = [RawManager(after(100)), RawManager(after(200)), RawManager(after(290), "status"), RawManager(None)]


@pytest.mark.parametrize(
    ("event", "times", "when"),
    [
        ("ADDED", RawTimes(after(120)), When(after(120), rounded=True)),
        ("ADDED", RawTimes(after(120), managedFields=WROTE), When(after(120), rounded=True)),
        ("MODIFIED", RawTimes(after(-900), managedFields=WROTE), When(after(200), rounded=True)),
        ("MODIFIED", RawTimes(managedFields=[RawManager(after(299))]), When(after(300))),
        ("MODIFIED", RawTimes(managedFields=[RawManager(after(-5))]), When(after(300), since=after(0.5))),
        ("MODIFIED", RawTimes(managedFields=[RawManager(after(0))]), When(after(0), rounded=True)),
        ("MODIFIED", RawTimes(), When(after(300), since=after(0.5))),
        ("MODIFIED", RawTimes(deletionTimestamp=after(250), managedFields=WROTE), When(after(250), rounded=True)),
        ("DELETED", RawTimes(managedFields=WROTE), When(after(300), since=after(0.5))),
        ("DELETED", RawTimes(deletionTimestamp=after(250)), When(after(250), rounded=True)),
    ],
)
def test_a_late_event_is_dated_by_what_its_object_says(event: str, times: RawTimes, when: When) -> None:
    assert written(event, times, told=after(300), known=after(0.5)) == when
