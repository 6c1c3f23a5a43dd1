"""Which alerts are one incident, and when it ends: in whatever order their firing and their ends are told."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import permutations

import pytest
from msgspec.structs import replace

from app.core.findings import Incident
from app.core.incidents.bundles import FIRES_ON, JOINS_WITHIN, REOPENS_FOR, TOGETHER, bundle
from app.core.model import Symptom
from tests.core.factories import NOON, after, an_alert


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def tell(*tellings: Symptom, known: Iterable[Incident] = ()) -> list[Incident]:
    """The incidents after these alerts came in one by one, oldest first."""
    incidents = {incident.id: incident for incident in known}
    for telling in tellings:
        incidents |= {one.id: one for one in bundle([telling], incidents.values(), cluster="lab")}
    return sorted(incidents.values(), key=lambda one: (one.started_at, one.id))


def spans(incident: Incident) -> list[tuple[datetime, datetime | None]]:
    return [(alert.at, alert.ended_at) for alert in incident.alerts]


ALERT = an_alert(NOON, namespace="shop")


@pytest.mark.parametrize("moved", [-20, 30])
def test_a_start_that_moves_while_it_fires_is_one_alert_that_ends(moved: float) -> None:
    again = replace(ALERT, at=after(moved))
    (incident,) = tell(ALERT, again, replace(again, ended_at=after(200)))
    assert incident.status == "resolved"
    assert spans(incident) == [(min(NOON, after(moved)), after(200))]


@pytest.mark.parametrize("order", [*permutations([ALERT, replace(ALERT, ended_at=after(60)), ALERT])])
def test_an_end_once_known_stays(order: tuple[Symptom, ...]) -> None:
    (incident,) = tell(*order)
    assert (incident.status, incident.resolved_at) == ("resolved", after(60))
    (at_once,) = bundle(order, [], cluster="lab")
    assert at_once == incident


def test_a_firing_that_is_told_late_does_not_open_it_again() -> None:
    ended = replace(ALERT, ended_at=after(60))
    (incident,) = tell(ended, replace(ALERT, at=after(30)), replace(ALERT, at=after(-10)))
    assert (incident.status, spans(incident)) == ("resolved", [(after(-10), after(60))])


def test_an_alert_that_flaps_is_one_incident_with_each_of_its_firings() -> None:
    (incident,) = tell(ALERT, replace(ALERT, ended_at=after(60)), replace(ALERT, at=after(300)))
    assert (incident.status, incident.resolved_at, incident.started_at) == ("open", None, NOON)
    assert spans(incident) == [(NOON, after(60)), (after(300), None)]
    (again,) = tell(replace(ALERT, ended_at=after(60)), replace(ALERT, at=after(300)), known=[incident])
    assert again == incident


@pytest.mark.parametrize(("minutes_later", "count"), [(29, 1), (31, 2)])
def test_what_fires_again_long_after_all_was_over_is_another_incident(minutes_later: float, count: int) -> None:
    assert len(tell(replace(ALERT, ended_at=after(60)), replace(ALERT, at=minutes(1 + minutes_later)))) == count


def test_another_alert_does_not_open_what_is_over_again() -> None:
    other = an_alert(minutes(20), name="Other", namespace="shop")
    assert len(tell(replace(ALERT, ended_at=after(60)), other)) == 2


def test_what_flaps_for_more_than_a_day_is_how_things_stand() -> None:
    told = [replace(ALERT, at=minutes(20 * n), ended_at=minutes(20 * n + 5)) for n in range(100)]
    first, second = tell(*told)
    assert first.alerts[-1].at - first.started_at == REOPENS_FOR
    assert len(first.alerts) + len(second.alerts) == 100


def test_an_end_that_was_never_told_does_not_swallow_what_fires_a_day_later() -> None:
    first, second = tell(ALERT, replace(ALERT, at=NOON + timedelta(days=1)))
    assert (first.status, first.resolved_at) == ("resolved", NOON + timedelta(days=1))
    assert second.status == "open"


# -- grouping


def test_alerts_of_other_namespaces_do_not_hold_on_to_each_other() -> None:
    told = [an_alert(minutes(25 * n), name=f"X{n}", namespace=f"ns{n}") for n in range(10)]
    assert len(bundle(told, [], cluster="lab")) == 10
    assert len(tell(*told)) == 10


def test_a_failure_that_is_felt_everywhere_at_once_is_one_incident() -> None:
    told = [an_alert(after(20 * n), name=f"X{n}", namespace=f"ns{n}") for n in range(10)]
    assert len(tell(*told)) == 1
    late = an_alert(NOON + TOGETHER + timedelta(seconds=1), name="Late", namespace="elsewhere")
    assert len(tell(*told, late)) == 2


def test_the_same_namespace_joins_while_the_first_still_fires() -> None:
    first = an_alert(NOON, name="SlowBurn", namespace="shop")
    second = an_alert(minutes(40), name="FastBurn", namespace="shop")
    assert len(tell(first, second)) == 1
    assert len(tell(replace(first, ended_at=minutes(20)), second)) == 2
    assert len(tell(first, replace(second, at=NOON + FIRES_ON + timedelta(minutes=1)))) == 2


def test_an_alert_that_joined_while_the_first_fired_joins_it_when_both_are_told_at_the_end() -> None:
    first = replace(an_alert(NOON, name="One", namespace="shop"), ended_at=minutes(50))
    second = replace(an_alert(minutes(40), name="Two", namespace="shop"), ended_at=minutes(90))
    (incident,) = bundle([first, second], [], cluster="lab")
    assert incident.resolved_at == minutes(90)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"name": "KubeAPIDown"}, {"namespace": "shop"}),
        ({"namespace": "shop"}, {"name": "KubeNodeNotReady", "node": "n1"}),
        ({"node": "n1"}, {"node": "n1"}),
        ({"name": "Unlabelled"}, {"name": "Unnamed"}),
    ],
)
def test_what_is_about_no_namespace_may_be_about_any(one: dict[str, str], other: dict[str, str]) -> None:
    first, second = (an_alert(at, **{"name": "A", **said}) for at, said in ((NOON, one), (minutes(25), other)))
    assert len(tell(first, second)) == 1
    later = replace(second, fingerprint="another", at=NOON + JOINS_WITHIN + timedelta(minutes=1))
    assert len(tell(replace(first, ended_at=minutes(10)), later)) == 2


def test_what_people_group_stays_together() -> None:
    told = [
        replace(an_alert(minutes(25 * n), name=f"X{n}", namespace=f"ns{n}"), group="team=payments") for n in range(4)
    ]
    assert len(tell(*told)) == 1
    first, *others = told
    assert len(tell(first, replace(first, group=""), *others)) == 1, "that it is told without it in between is nothing"


@pytest.mark.parametrize(
    "always", [an_alert(NOON, name="Watchdog"), an_alert(NOON, name="InfoInhibitor"), an_alert(NOON, severity="none")]
)
def test_a_heartbeat_opens_no_incident_and_names_none(always: Symptom) -> None:
    assert tell(always) == []
    (incident,) = tell(always, an_alert(after(10), name="KubePodNotReady", namespace="shop"))
    assert (incident.title, incident.started_at) == ("Kube pod not ready", after(10))


def test_a_title_passes_over_an_empty_name() -> None:
    (incident,) = tell(an_alert(NOON, name=""), an_alert(after(1), name="W"))
    assert incident.title == "W"
