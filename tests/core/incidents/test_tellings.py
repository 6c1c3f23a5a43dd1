"""What is told of one alert comes to the same in whatever order, and however often, it is told."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import permutations

import pytest
from msgspec.structs import replace

from app.core.incidents.bundles import bundle, gone
from app.core.incidents.tellings import ARRIVES_WITHIN
from app.core.model import Symptom
from tests.core.factories import NOON, after, an_alert
from tests.core.incidents.test_grouping import tell

ALERT = an_alert(NOON, namespace="shop")
SOON = ARRIVES_WITHIN.total_seconds()
FIRST, LAST = 300.0, 1500.0
"""When a replica that is cut off tells an end, and when it ends."""


def ends(seconds: float) -> Symptom:
    return replace(ALERT, ended_at=after(seconds))


def listed(seconds: float) -> Symptom:
    """As Alertmanager lists it that was told so long after noon that it fires: it says milliseconds."""
    return replace(ALERT, at=ALERT.at - timedelta(microseconds=400), active_at=after(seconds))


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ([ALERT, ends(FIRST)], after(FIRST)),
        ([ALERT, ends(FIRST), ALERT], after(FIRST)),
        ([ALERT, ends(FIRST), listed(FIRST - 30)], after(FIRST)),
        ([ALERT, ends(FIRST), listed(FIRST + SOON)], after(FIRST)),
        ([ALERT, ends(FIRST), listed(FIRST + SOON + 0.001)], None),
        ([listed(30), ends(FIRST), listed(FIRST + 120), ALERT], None),
        ([ends(FIRST), listed(FIRST + 120), listed(LAST - 60), ends(LAST)], after(LAST)),
        ([ends(FIRST), ends(LAST), listed(30)], after(FIRST)),
        ([ends(FIRST), ends(FIRST + 100), ends(LAST), listed(FIRST + 70)], after(FIRST + 100)),
        ([ends(FIRST), ends(LAST), listed(LAST + 120)], None),
    ],
)
def test_an_end_that_was_told_is_taken_back_by_what_is_newer(told: list[Symptom], end: datetime | None) -> None:
    (first,) = bundle(told, [], cluster="lab")
    for order in permutations(told):
        (incident,) = tell(*order)
        assert (incident.resolved_at, [alert.ended_at for alert in incident.alerts]) == (end, [end])
        assert (incident.status, incident.alerts[0].active_at) == (first.status, first.alerts[0].active_at)
        assert tell(*order, known=[incident]) == [incident], "told again it is nothing"


def test_an_end_that_was_inferred_stays_where_one_comes_late_that_was_taken_back() -> None:
    """The last that lists it does so no longer, and a replica's webhook was held up."""
    opened = tell(listed(FIRST + 120))
    (over,) = tell(*gone((), opened, asked=after(LAST)), known=opened)
    assert tell(ends(FIRST), known=[over]) == [over]
    (told,) = tell(ends(LAST - 20), known=[over])
    assert told.resolved_at == after(LAST - 20)


def test_what_is_inferred_does_not_hang_on_the_clock_of_alertmanager() -> None:
    known = tell(listed(LAST + 600))
    for _ in range(2):
        known = tell(*gone((), known, asked=after(LAST)), known=known)
        assert known[0].resolved_at == after(LAST)


def test_what_fires_anew_after_an_end_does_not_take_that_back() -> None:
    anew = replace(listed(FIRST + 120), at=after(FIRST + 60))
    (incident,) = tell(ALERT, ends(FIRST), anew)
    assert [alert.ended_at for alert in incident.alerts] == [after(FIRST), None]
