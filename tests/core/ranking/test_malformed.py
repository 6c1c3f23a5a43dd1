"""Calls that are wrong in themselves speak against the program that makes them, however well its pods are."""

from __future__ import annotations

import pytest

from app.core.model import Outcome, Rollout
from tests.core.company import background, ranked
from tests.core.factories import a_change, a_resource, a_workload, after, an_alert, an_incident, calls

OPERATOR = a_resource("Deployment", "backup-operator", "ops")
USER = "system:serviceaccount:ops:backup-operator"


def weight(code: int, rule: str) -> float:
    change = a_change(OPERATOR, at=after(-40))
    rollout = Rollout(OPERATOR, "u", 2, after(-40), Outcome.COMPLETE, after(-38), change_id=change.id)
    failing = calls(USER, "patch", "backups", rate=2, group="ops.example", start=-15, code=code, error="refused")
    worked = calls(USER, "patch", "backups", rate=2, group="ops.example", end=-15)
    ranking = ranked(
        change,
        incident=an_incident(an_alert(after(30), name="KubeAPIErrors", job="apiserver")),
        load=[*background(), *worked, *failing],
        states=[a_workload(OPERATOR, serviceAccountName="backup-operator")],
        rollouts=[rollout],
    )
    suspect = next(one for one in ranking.suspects if one.change is change)
    return next((one.weight for one in suspect.evidence if one.rule == rule), 0.0)


@pytest.mark.parametrize("code", [400, 413, 415, 422])
def test_what_is_wrong_in_itself_speaks_against_who_asks(code: int) -> None:
    assert weight(code, "errors") > 1.5 * weight(403, "errors")
    assert weight(code, "errors") > 1.5 * weight(503, "errors")


def test_pods_that_are_well_may_still_ask_for_what_cannot_be() -> None:
    assert -1.0 < weight(422, "rollout") < 0
