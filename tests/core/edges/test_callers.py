"""Who is refused, and who calls more: what began with a change, and what was so before it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import CallCount, FieldDiff, Json, Object, Verb
from app.core.onset import count_step
from app.core.signals.signal import Passed
from tests.core.company import background, ranked
from tests.core.edges.test_causes import HOOK, WEB, a_rollout, image
from tests.core.factories import (
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
    calls,
)

DENIED = 'admission webhook "guard.corp.example" denied the request: no'


def refusals(*, before: float) -> Ranking:
    """Pods are refused from noon on; ``before``: how many a second were made in the minute before that."""
    rules: Json = [{"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}]
    state: Object = {"webhooks": [{"name": "guard.corp.example", "rules": rules}]}
    made = replace(a_change(HOOK, at=after(-70), verb=Verb.CREATE), diffs=(FieldDiff((), "add", None, state),))
    maker = "system:serviceaccount:kube-system:replicaset-controller"
    load = background()
    load += calls(maker, "create", "pods", rate=before, start=-60, end=0) if before else []
    load += calls(maker, "create", "pods", rate=4, start=0, code=403, error=DENIED)
    return ranked(
        made,
        incident=an_incident(an_alert(after(30), name="KubeDeploymentRolloutStuck", namespace="shop")),
        symptoms=[a_symptom(WEB, "FailedCreate", at=after(0), count=20, message=f"Error creating: {DENIED}")],
        load=load,
        states=[a_state(HOOK, state), a_workload(WEB)],
    )


def test_what_let_calls_pass_since_it_is_there_did_not_begin_to_refuse_them() -> None:
    unknown, worked = (
        next(s.probability for s in refusals(before=rate).suspects if s.change.resource == HOOK) for rate in (0, 4)
    )
    assert worked / (1 - worked) < unknown / (1 - unknown) / 10


def test_few_calls_that_passed_say_little_where_few_fail() -> None:
    counts = np.array([0.0, 4.0, 4.0])
    at = datetime.fromtimestamp(1000, UTC)
    assert Passed(1000, counts, 1.0).since(at) == pytest.approx(0.01**8)
    assert Passed(1000, counts, 0.1).since(at) == pytest.approx(0.9**8)
    assert Passed(1000, counts, 1.0).since(at + timedelta(seconds=10)) == 1.0


def test_an_account_that_was_there_is_not_why_it_calls_more() -> None:
    user = "system:serviceaccount:platform:spawner"
    account = a_resource("ServiceAccount", "spawner", "platform")

    def probability(made: float) -> float:
        change = replace(a_change(account, at=after(made), verb=Verb.CREATE), diffs=(FieldDiff((), "add", None, {}),))
        ranking = ranked(
            change,
            incident=an_incident(an_alert(after(30))),
            load=[*background(), *calls(user, "delete", "pods", rate=30, start=0)],
        )
        return next(s.probability for s in ranking.suspects if s.change.resource == account)

    assert probability(-30) < probability(-5) / 4


def test_a_program_that_was_well_and_called_is_not_why_it_calls_more() -> None:
    user = "system:serviceaccount:shop:web-front"
    made = replace(image(), verb=Verb.CREATE, at=after(-60), diffs=(FieldDiff((), "add", None, {"spec": {}}),))

    def probability(*calm: CallCount) -> float:
        ranking = ranked(
            made,
            incident=an_incident(an_alert(after(30))),
            load=[*background(), *calm, *calls(user, "delete", "pods", rate=30, start=0)],
            states=[a_workload(WEB, serviceAccountName="web-front")],
            rollouts=[replace(a_rollout(-60), change_id=made.id)],
        )
        return next((s.probability for s in ranking.suspects if s.change.id == made.id), 0.0)

    assert probability(*calls(user, "list", "nodes", rate=1, start=-50)) < probability() / 4


def test_a_rise_in_the_last_slot_alone_is_told_where_it_is_far_beyond_noise() -> None:
    calm = [3.0, 2.0, 4.0, 3.0, 2.0, 3.0]
    step = count_step(np.array([*calm, 200.0]))
    assert step is not None
    assert (step.index, step.after) == (6, 200.0)
    assert count_step(np.array([*calm, 12.0])) is None
    assert count_step(np.array([0.0, 90.0, 0.0, 80.0, 0.0, 85.0, 200.0])) is None
