"""What runs out bit by bit comes a while after the rollout that brought it."""

from __future__ import annotations

import pytest

from app.core.model import Outcome, Rollout
from app.core.ranking.evidence import WELL_UNTIL_THEN
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

WEB = a_resource("Deployment", "web-front")


def speaks_for_it(reason: str, message: str, *, well: float = 90) -> float:
    """What it weighs that the pods of a rollout were well for a minute and a half before they complained."""
    rolled_out = a_change(WEB, at=after(-well - 20))
    done = Rollout(WEB, "uid", 2, after(-well - 20), Outcome.COMPLETE, change_id=rolled_out.id, ended_at=after(-well))
    ranking = ranked(
        rolled_out,
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="shop", deployment="web-front")),
        symptoms=[a_symptom(WEB, reason, at=after(0), message=message, count=9)],
        states=[a_workload(WEB)],
        rollouts=[done],
    )
    suspect = next(one for one in ranking.suspects if one.change.id == rolled_out.id)
    return next(evidence.weight for evidence in suspect.evidence if evidence.rule == "rollout")


@pytest.mark.parametrize(
    ("reason", "message", "fills"),
    [
        ("OOMKilled", "", True),
        ("Unhealthy", "accept tcp [::]:8080: accept4: too many open files", True),
        ("Unhealthy", "RuntimeError: can't start new thread", True),
        ("Unhealthy", "WRONGTYPE Operation against a key holding the wrong kind of value", False),
        ("CrashLoopBackOff", "exit code 1", False),
    ],
)
def test_that_pods_were_well_speaks_half_as_much_where_something_runs_out(
    reason: str, message: str, fills: bool
) -> None:
    usual = speaks_for_it("Unhealthy", "Readiness probe failed: 503")
    assert usual < 0
    assert speaks_for_it(reason, message) == pytest.approx(usual / 2 if fills else usual)


@pytest.mark.parametrize(
    ("reason", "message", "shows_later"),
    [
        ("Evicted", 'Container web exceeded its local ephemeral storage limit "8Gi". ', True),
        ("Unhealthy", "accept tcp [::]:8080: accept4: too many open files", True),
        ("Unhealthy", "Readiness probe failed: 503", False),
    ],
)
def test_that_pods_were_well_until_then_speaks_little_where_that_is_how_long_it_takes(
    reason: str, message: str, shows_later: bool
) -> None:
    assert (speaks_for_it(reason, message, well=400) == WELL_UNTIL_THEN) is shows_later


@pytest.mark.parametrize(
    ("message", "is_harmless"),
    [
        ("Readiness probe failed: 503 (FATAL: sorry, too many clients already)", False),
        ("FATAL: remaining connection slots are reserved for roles with the SUPERUSER attribute", False),
        ("Readiness probe failed: 503", True),
    ],
)
def test_a_few_pods_more_are_many_where_a_database_lets_nobody_in(message: str, is_harmless: bool) -> None:
    """Each opens a pool of connections."""
    scaled = a_change(WEB, at=after(-5), path=("spec", "replicas"), old=3, new=9)
    ranking = ranked(
        scaled,
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="shop", deployment="web-front")),
        symptoms=[a_symptom(WEB, "Unhealthy", at=after(0), message=message, count=9)],
        states=[a_workload(WEB)],
    )
    said = [one.sentence for suspect in ranking.suspects for one in suspect.evidence]
    assert any("by a few" in one for one in said) is is_harmless
