"""What opens a suspected incident, and what does not; how it ends, and goes on."""

from __future__ import annotations

from dataclasses import replace as edited
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from app.core.findings import Incident, Origin, WriteFight
from app.core.incidents.bundles import bundle
from app.core.metrics.families import FAMILIES
from app.core.ranking.suspected import HURTS, follow_up, suspected
from app.core.signals.signal import Signal, SignalKind
from tests.core.factories import NOON, a_resource, after, an_alert

NOW = after(1200)
FIGHT = WriteFight(
    "",
    "ServiceAccount",
    "metadata.annotations.owner",
    (a_resource("ServiceAccount", "web", "shop"),),
    ("one", "two"),
    writes=100,
    began_at=NOON,
    ended_at=NOW,
    per_second=0.5,
)
STORM = Signal(
    SignalKind.LOAD,
    after(900),
    after(905),
    0.7,
    {},
    "relist storm of 9 clients",
    rate_before=1.0,
    rate_after=6.0,
    facts={"relist": "pods"},
)
RISE = Signal(
    SignalKind.METRIC, after(800), after(900), 0.6, {}, "webhook latency rose", rate_before=1.0, rate_after=3.0
)


LATENCY = edited(RISE, strength=0.35, facts={"family": "etcd latency"})


def found(*signals: Signal, fights: tuple[WriteFight, ...] = (), now: datetime = NOW) -> Incident | None:
    return suspected("lab", fights=fights, signals=signals, now=now)


def opened(*, now: datetime = NOW) -> Incident:
    incident = found(fights=(FIGHT,), now=now)
    assert incident is not None
    return incident


def test_a_fierce_fight_is_suspected_and_quiet() -> None:
    incident = opened()
    assert (incident.status, incident.origin, incident.severity) == ("suspected", Origin.ITSELF, "info")
    assert incident.title.startswith("Write fight over")
    assert (incident.started_at, incident.scope.namespaces, incident.scope.control_plane) == (NOON, ("shop",), False)


@pytest.mark.parametrize("signal", [STORM, RISE, LATENCY])
def test_a_storm_or_a_rise_that_holds_is_about_the_control_plane(signal: Signal) -> None:
    incident = found(signal)
    assert incident is not None
    assert (incident.started_at, incident.scope.control_plane) == (signal.low, True)


@pytest.mark.parametrize(
    "fight",
    [
        replace(FIGHT, writes=99),
        replace(FIGHT, per_second=0.49),
        replace(FIGHT, ended_at=NOW - timedelta(seconds=121)),
    ],
)
def test_a_fight_that_is_small_slow_or_over_is_nothing(fight: WriteFight) -> None:
    assert found(fights=(fight,)) is None


@pytest.mark.parametrize(
    "signal",
    [
        edited(STORM, rate_after=5.9),
        edited(STORM, low=NOW - timedelta(seconds=601)),
        edited(STORM, facts={}),
        edited(RISE, strength=0.59),
        edited(LATENCY, strength=0.32),
        edited(LATENCY, facts={"family": "Queue depth"}),
        edited(RISE, rate_after=2.9),
        edited(RISE, high=NOW - timedelta(seconds=299)),
        edited(RISE, rate_before=0.0, rate_after=0.0, facts={"family": "Restarts"}),
    ],
)
def test_what_is_weaker_or_shorter_than_said_is_nothing(signal: Signal) -> None:
    assert found(signal) is None


def test_several_are_one_incident_from_the_first_of_them() -> None:
    incident = found(STORM, RISE, fights=(FIGHT,))
    assert incident is not None
    assert incident.started_at == NOON
    assert incident.title.endswith(" and 2 more")


def test_it_stays_as_it_is_ends_and_goes_on() -> None:
    first = opened()
    assert follow_up(first, [], now=NOW) == first
    assert follow_up(found(STORM), [first], now=NOW) is None
    over = follow_up(None, [first], now=NOW)
    assert over == replace(first, resolved_at=NOW)
    assert follow_up(None, [replace(first, resolved_at=NOW)], now=NOW) is None
    assert follow_up(found(STORM), [replace(first, resolved_at=NOW)], now=NOW) == first


def test_beside_what_somebody_was_called_for_nothing_is_suspected() -> None:
    (called,) = bundle([an_alert(NOON)], [], cluster="lab")
    assert follow_up(opened(), [called], now=NOW) is None
    long_ago = replace(called, started_at=NOW - timedelta(hours=5))
    assert follow_up(opened(), [long_ago], now=NOW) == opened()


def test_what_a_person_resolved_is_not_suspected_again_at_once() -> None:
    assert follow_up(opened(), [replace(opened(), id="x", status="resolved", resolved_at=NOW)], now=NOW) is None


def test_an_alert_about_it_makes_it_real() -> None:
    (real,) = bundle([an_alert(after(1300), namespace="shop")], [opened()], cluster="lab")
    assert (real.id, real.status, real.origin, real.severity) == (opened().id, "open", Origin.ITSELF, "critical")
    assert real.started_at == NOON


def test_an_alert_about_something_else_leaves_it_alone() -> None:
    (other,) = bundle([an_alert(after(1300), name="Other", namespace="infra")], [opened()], cluster="lab")
    assert other.origin is Origin.ALERTS


def test_each_line_that_hurts_is_one_that_is_measured() -> None:
    assert {family.title for family in FAMILIES} >= HURTS
