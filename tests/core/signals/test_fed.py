"""Who writes more often for there being more to do is less to blame than who makes the objects."""

from __future__ import annotations

import pytest

from app.core.model import CallCount
from app.core.signals.fed import fed
from tests.core.company import background, ranked
from tests.core.factories import a_change, a_resource, a_workload, after, an_alert, an_incident, calls
from tests.core.signals.test_calls import risen

OPERATOR, PORTAL = "system:serviceaccount:rooms:seat-operator", "system:serviceaccount:rooms:portal"


def made(rate: float, start: float = -120, end: float = 60, user: str = PORTAL) -> list[CallCount]:
    return calls(user, "create", "seats", rate=rate, start=start, end=end, group="rooms.example")


def written(rate: float, start: float = -120, end: float = 60, verb: str = "patch") -> list[CallCount]:
    return calls(OPERATOR, verb, "seats/status", rate=rate, start=start, end=end, group="rooms.example")


MORE_SEATS = [*made(1, end=-20), *made(6, start=-20)]


def about(counts: list[CallCount]) -> dict[str, float]:
    """How much the rise of the operator's writes is about each of the two."""
    (signal,) = (one for one in risen([*background(), *counts]) if one.users == (OPERATOR,))
    return {user: signal.about.get(("user", user), 0.0) for user in (OPERATOR, PORTAL)}


def test_as_many_writes_for_each_of_more_objects_are_of_who_makes_them() -> None:
    counts = [*MORE_SEATS, *written(4, end=-20), *written(24, start=-20)]
    assert about(counts) == {OPERATOR: 0.5, PORTAL: 1.0}
    (signal,) = (one for one in risen([*background(), *counts]) if one.users == (OPERATOR,))
    assert "portal makes 6 times as many of them)" in signal.sentence


def test_more_writes_for_each_are_of_who_writes() -> None:
    """Six times as many for each of as many objects, and of a few more."""
    counts = [*made(4, end=-20), *made(5, start=-20), *written(4, end=-20), *written(36, start=-20)]
    told = about(counts)
    assert told[OPERATOR] > 0.9
    assert told[PORTAL] < 0.2


@pytest.mark.parametrize(
    "beside",
    [
        made(1),  # no more than before
        [*made(1, end=10), *made(6, start=10)],  # only later
        [*made(1, end=-20, user=OPERATOR), *made(6, start=-20, user=OPERATOR)],  # by itself
        calls(PORTAL, "create", "desks", rate=6, start=-20, group="rooms.example"),  # others
    ],
)
def test_who_makes_no_more_of_them_in_time_has_no_part_in_it(beside: list[CallCount]) -> None:
    assert about([*beside, *written(4, end=-20), *written(24, start=-20)]) == {OPERATOR: 1.0, PORTAL: 0.0}


def test_who_only_reads_is_not_told_by_how_many_there_are() -> None:
    counts = [*MORE_SEATS, *written(4, end=-20, verb="get"), *written(24, start=-20, verb="get")]
    assert about(counts) == {OPERATOR: 1.0, PORTAL: 0.0}


def test_a_rise_that_nobody_stands_beside_is_its_own() -> None:
    assert fed((OPERATOR, "patch", "rooms.example", "seats"), {}) == ({}, "")


def test_a_release_of_who_only_has_more_to_do_is_believed_less() -> None:
    operator = a_resource("Deployment", "seat-operator", "rooms")
    change = a_change(operator, at=after(-40))

    def believed(seats: list[CallCount]) -> float:
        ranking = ranked(
            change,
            incident=an_incident(an_alert(after(30), name="KubeAPIRequestRateHigh")),
            load=[*background(), *written(4, end=-20), *written(24, start=-20), *seats],
            states=[a_workload(operator, serviceAccountName="seat-operator")],
        )
        return next(one.probability for one in ranking.suspects if one.change is change)

    assert believed(MORE_SEATS) < 0.5 * believed(made(1))
