"""What lies before or after the record of changes was seen by nobody, and that is said."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from app.core.record import NEVER, NO_MORE, NOT_YET, unrecorded
from tests.core.factories import after

BEGAN, ENDED = after(0), after(3600)


def told(from_at: datetime | None, to_at: datetime) -> list[tuple[float, float, str]]:
    """Each gap, in seconds after the record began."""
    found = unrecorded("c", BEGAN, ENDED, from_at=from_at, to_at=to_at)
    return [((gap.from_at - BEGAN).total_seconds(), (gap.to_at - BEGAN).total_seconds(), gap.why) for gap in found]


@pytest.mark.parametrize(
    ("from_at", "to_at", "expected"),
    [
        (0, 3600, []),
        (0, 3600 + 60, []),
        (0, 3600 + 61, [(3600, 3661, NO_MORE)]),
        (-600, 1800, [(-600, 0, NOT_YET)]),
        (-600, -120, [(-600, -120, NOT_YET)]),
        (-59, 60, []),
        (-600, 4800, [(-600, 0, NOT_YET), (3600, 4800, NO_MORE)]),
        (4800, 6000, [(4800, 6000, NO_MORE)]),
        (None, 4800, [(3600, 4800, NO_MORE)]),
    ],
)
def test_what_lies_outside_the_record_is_not_seen(
    from_at: float | None, to_at: float, expected: list[tuple[float, float, str]]
) -> None:
    assert told(None if from_at is None else after(from_at), after(to_at)) == expected


def test_where_no_change_was_ever_recorded_nothing_of_a_time_was_seen() -> None:
    [gap] = unrecorded("c", None, None, from_at=BEGAN, to_at=ENDED)
    assert (gap.from_at, gap.to_at, gap.kind, gap.why) == (BEGAN, ENDED, "", NEVER)
    assert list(unrecorded("c", None, None, from_at=None, to_at=ENDED)) == []
    assert list(unrecorded("c", None, None, from_at=ENDED, to_at=ENDED - timedelta(hours=1))) == []
