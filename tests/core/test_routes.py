"""Where a change or an incident goes: by cluster, namespace, labels, kind, severity; and the hours that wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from app.core.model import Resource
from app.core.routes import Labels, OfIncident, Quiet, Route, Routes, What, wanted_by, why_no_incident, why_not

WEB = Resource("prod-1", "apps", "Deployment", "shop", "web")
NODE = Resource("prod-1", "", "Node", None, "n1")
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
NIGHT = Quiet("22:00", "07:00", "Europe/Berlin")


def route(**more: object) -> Route:
    return msgspec.convert({"channel": "C0123456789"} | more, Route)


@pytest.mark.parametrize(
    ("rule", "resource", "why"),
    [
        ({}, WEB, ""),
        ({}, NODE, ""),
        ({"clusters": ["prod-*"], "namespaces": ["sh?p"], "kinds": ["Deployment"]}, WEB, ""),
        ({"clusters": ["dev", "test"]}, WEB, "the cluster is not dev or test"),
        ({"namespaces": ["cart"]}, WEB, "the namespace is not cart"),
        ({"namespaces": ["*"]}, NODE, "it is in no namespace, and only * is told"),
        ({"kinds": ["Node"]}, WEB, "the kind is not Node"),
        ({"kinds": ["Node"]}, NODE, ""),
        ({"kinds": ["deployments"]}, WEB, ""),
        ({"kinds": ["deploy*"]}, WEB, ""),
        ({"kinds": ["nodes"]}, WEB, "the kind is not nodes"),
        ({"tell": ["incidents"]}, WEB, "it does not tell of changes"),
        ({"labels": {"team": "pay*"}}, WEB, ""),
        ({"labels": {"team": "search"}}, WEB, "its label team is payments, not search"),
        ({"labels": {"tier": "gold"}}, WEB, ""),
        ({"labels": {"owner": "x"}}, WEB, "neither it nor its namespace has the label owner"),
    ],
)
def test_a_route_says_why_it_does_not_tell(rule: dict[str, object], resource: Resource, why: str) -> None:
    labels = Labels({"team": "payments"}, {"team": "search", "tier": "gold"})
    assert why_not(route(**rule), resource, labels) == why


def test_a_channel_is_told_once_and_waits_only_where_all_its_routes_are_quiet() -> None:
    late = datetime(2026, 11, 27, 22, tzinfo=UTC)
    quiet = Route("C1234567", quiet=NIGHT)
    routes = Routes((quiet, Route("C7654321"), Route("C7654321", quiet=NIGHT)))
    morning = datetime(2026, 11, 28, 6, tzinfo=UTC)
    assert wanted_by(routes, WEB, Labels(), late) == [("C1234567", morning), ("C7654321", None)]
    assert wanted_by(routes, WEB, Labels(), NOON) == [("C1234567", None), ("C7654321", None)]


@pytest.mark.parametrize(
    ("quiet", "at", "ends"),
    [
        (NIGHT, "2026-11-27T20:59", None),  # 21:59 in Berlin
        (NIGHT, "2026-11-27T21:00", "2026-11-28T06:00"),
        (NIGHT, "2026-11-28T05:59", "2026-11-28T06:00"),
        (NIGHT, "2026-11-28T06:00", None),
        (Quiet("12:00", "13:00"), "2026-11-27T12:30", "2026-11-27T13:00"),
        (Quiet("12:00", "13:00"), "2026-11-27T13:00", None),
        (NIGHT, "2026-03-28T23:00", "2026-03-29T05:00"),  # the clocks go forward in that night
    ],
)
def test_quiet_hours_end_by_the_clock_of_their_zone(quiet: Quiet, at: str, ends: str | None) -> None:
    found = quiet.until(datetime.fromisoformat(at).replace(tzinfo=UTC))
    assert found == (datetime.fromisoformat(ends).replace(tzinfo=UTC) if ends else None)
    assert found is None or found.utcoffset() == timedelta(0)


def test_where_clocks_go_back_quiet_hours_end_in_time_to_come() -> None:
    quiet = Quiet("22:00", "02:30", "Europe/Berlin")
    first, second = datetime(2026, 10, 25, 0, 10, tzinfo=UTC), datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    assert [quiet.until(at) for at in (first, second)] == [at.replace(minute=30) for at in (first, second)]


@pytest.mark.parametrize(
    ("rule", "tells"),
    [
        ({"tell": ["incidents"]}, True),
        ({"tell": ["changes", "incidents"]}, True),
        ({}, False),
        ({"tell": ["incidents"], "severities": ["critical", "page"]}, True),
        ({"tell": ["incidents"], "severities": ["warning"]}, False),
        ({"tell": ["incidents"], "severities": ["Crit*"]}, True),
        ({"tell": ["incidents"], "namespaces": ["cart", "shop"]}, True),
        ({"tell": ["incidents"], "namespaces": ["cart"]}, False),
        ({"tell": ["incidents"], "clusters": ["dev"]}, False),
        ({"tell": ["incidents"], "labels": {"team": "w*"}}, True),
        ({"tell": ["incidents"], "labels": {"team": "shop", "app": "cart"}}, True),
        ({"tell": ["incidents"], "labels": {"team": "shop", "tier": "1"}}, False),
        ({"tell": ["incidents"], "labels": {"team": "payments"}}, False),
        ({"tell": ["changes", "incidents"], "kinds": ["Deployment"]}, True),
    ],
)
def test_an_incident_is_told_by_where_its_alerts_are_and_how_severe_it_is(rule: dict[str, object], tells: bool) -> None:
    labels = Labels({"app": "cart"}, {"team": "shop"}), Labels(None, {"team": "web", "tier": "1"})
    for severity in ("critical", "CRITICAL"):
        assert (not why_no_incident(route(**rule), OfIncident("prod-1", severity, ("shop", "web"), labels))) is tells


@pytest.mark.parametrize(
    ("asked", "severity", "tells"),
    [
        ("critical", "P1", True),
        ("critical", "sev-1", True),
        ("critical", "SEV5", False),
        ("Warning", "average", True),
        ("warning", "whatever", True),
        ("warning", "", False),
        ("info", "notice", True),
        ("p1", "P1", True),
        ("P1", "critical", False),
        ("sev*", "sev1", True),
    ],
)
def test_a_route_for_a_severity_tells_of_what_means_it(asked: str, severity: str, tells: bool) -> None:
    one = route(tell=["incidents"], severities=[asked])
    assert (not why_no_incident(one, OfIncident("prod-1", severity))) is tells


def test_an_incident_of_which_no_label_is_known_is_told_by_no_route_that_asks_for_one() -> None:
    one = route(tell=["incidents"], labels={"team": "shop", "tier": "*"})
    why = why_no_incident(one, OfIncident("prod-1", "critical"))
    assert why == "no namespace or workload that it is about has team=shop, tier=*"


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"channel": "#general"}, "channel"),
        ({"chanel": "C0123456789"}, "chanel"),
        ({"channel": "C0123456789", "quiet": {"from": "25:00", "to": "07:00"}}, "from"),
        ({"channel": "C0123456789", "tell": ["everything"]}, "everything"),
        ({"channel": "C0123456789", "namespaces": "shop"}, "namespaces"),
    ],
)
def test_what_is_no_route_is_refused_by_its_name(rule: dict[str, object], says: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=says):
        msgspec.convert({"routes": [rule]}, Routes)


INCIDENTS = (What.INCIDENTS,)


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ((Route("C1234567"),), {"prod", "test"}),
        ((Route("C1234567", clusters=("*",)),), {"prod", "test"}),
        ((Route("C1234567", clusters=("prod",)),), {"prod"}),
        ((Route("C1234567", namespaces=("shop",)),), set()),
        ((Route("C1234567", kinds=("Deployment",)),), set()),
        ((Route("C1234567", labels={"team": "a"}),), set()),
        ((Route("C1234567", INCIDENTS),), {"prod", "test"}),
        ((Route("C1234567", INCIDENTS, clusters=("prod",)),), {"prod"}),
        ((Route("C1234567", INCIDENTS, namespaces=("shop",)),), set()),
        ((Route("C1234567", INCIDENTS, severities=("critical",)),), set()),
        ((Route("C1234567", INCIDENTS, labels={"team": "a"}),), set()),
        # what a route before tells is not told again
        ((Route("C7654321", INCIDENTS, clusters=("prod",)), Route("C1234567", INCIDENTS)), {"test"}),
        ((Route("C7654321", INCIDENTS, severities=("critical",)), Route("C1234567", INCIDENTS)), {"prod", "test"}),
        ((Route("C7654321"),), set()),
    ],
)
def test_who_is_told_all_changes_or_incidents_of_a_cluster_may_ask_of_it(
    rules: tuple[Route, ...], may: set[str]
) -> None:
    assert {one for one in ("prod", "test") if Routes(rules).may_ask("C1234567", one)} == may


def test_channels_are_those_of_all_routes() -> None:
    routes = Routes((Route("C1234567"), Route("C2234567", namespaces=("shop",)), Route("C3234567", INCIDENTS)))
    assert routes.channels == {"C1234567", "C2234567", "C3234567"}
