"""Complaints that were over before."""

from __future__ import annotations

from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import Resource, Symptom
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

TEAMS = ("checkout", "search", "billing", "media")
APPS = [a_resource("Deployment", f"app-{n}", team) for n, team in enumerate(TEAMS * 2)]


def with_unhealthy(*others: Symptom) -> Ranking:
    """Where a rollout of app-1 is followed by failed probes of it, and others failed theirs."""
    hurt = replace(a_symptom(APPS[1], "Unhealthy", at=after(-24), message="timed out", count=4), ended_at=after(30))
    return ranked(
        a_change(APPS[1], at=after(-25)),
        incident=an_incident(an_alert(after(30), name="KubeDeployment", namespace="search", deployment="app-1")),
        symptoms=(*others, hurt),
        states=[a_workload(app) for app in APPS],
    )


def unhealthy(home: Resource, *, since: float, until: float, message: str) -> Symptom:
    return replace(a_symptom(home, "Unhealthy", at=after(since), message=message, count=4), ended_at=after(until))


def test_who_was_well_again_before_does_not_complain_alike() -> None:
    said = {2: "refused", 3: "reset", 4: "unavailable", 6: "not found", 7: "end of file"}
    over = [unhealthy(APPS[n], since=-62, until=-58, message=told) for n, told in said.items()]
    still = [replace(one, ended_at=after(-30)) for one in over]
    alone, once, at_once = (with_unhealthy(*some).suspects[0].score for some in ((), over, still))
    assert once == alone > at_once


def test_what_was_over_long_before_the_alert_does_not_date_the_onset() -> None:
    starting = unhealthy(APPS[5], since=-100, until=-70, message="refused")
    assert with_unhealthy(starting).onset == with_unhealthy().onset
    assert with_unhealthy(replace(starting, ended_at=after(20))).onset.at < after(-90)
