"""What pods came up well with is not what ails them later."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import Change, Object, Outcome, Rollout, Verb
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

WEB = a_resource("Deployment", "archive", "shop")
CLAIM = a_resource("PersistentVolumeClaim", "archive", "shop")
SCALER = a_resource("HorizontalPodAutoscaler", "archive", "shop")
TARGET: Object = {"kind": "Deployment", "name": "archive", "apiVersion": "apps/v1"}


def blamed(*, claimed: float, outcome: Outcome = Outcome.COMPLETE) -> Ranking:
    """A claim is made; pods come up fifty seconds before the alert; an autoscaler wants more of them; one of those does
    not get the volume."""
    claim = a_change(CLAIM, at=after(claimed), path=(), old=None, new={"spec": {}}, verb=Verb.CREATE)
    scaler: Object = {"spec": {"scaleTargetRef": TARGET, "minReplicas": 2, "maxReplicas": 4}}
    scales = a_change(SCALER, at=after(-12), path=(), old=None, new=scaler, verb=Verb.CREATE)
    came_up = Rollout(WEB, "uid", 1, after(-55), outcome, ended_at=after(-50))
    told = "Unable to attach or mount volumes: unmounted volumes=[data]: timed out waiting"
    return ranked(
        claim,
        scales,
        incident=an_incident(an_alert(after(0), name="Lacking", namespace="shop", deployment="archive")),
        symptoms=[a_symptom(WEB, "FailedMount", at=after(-10), message=told, count=4)],
        states=[
            a_workload(WEB, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "archive"}}]),
        ],
        rollouts=[came_up],
    )


def weight(ranking: Ranking) -> float:
    """Of what the claim explains."""
    found = [one for one in ranking.suspects if one.change.resource == CLAIM]
    return sum(e.weight for one in found for e in one.evidence if e.rule == "symptoms")


@pytest.mark.parametrize(("claimed", "outcome"), [(-45, Outcome.COMPLETE), (-58, Outcome.FAILED)])
def test_what_they_came_up_with_is_hardly_to_blame(claimed: float, outcome: Outcome) -> None:
    """What came later may be, and what never let them come up."""
    borne = blamed(claimed=-58)
    assert first(borne) == ("HorizontalPodAutoscaler", "archive")
    assert weight(borne) < weight(blamed(claimed=claimed, outcome=outcome)) / 2


INJECTOR = a_resource("MutatingWebhookConfiguration", "injector", None)
INJECTS: Object = {
    "webhooks": [{"name": "i.mesh.example", "rules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["*"]}]}]
}


@pytest.mark.parametrize(("made", "is_borne"), [(-58, True), (-53, False)])
def test_what_they_were_admitted_by_is_hardly_to_blame(made: float, *, is_borne: bool) -> None:
    """A rollout that began before a webhook was there says nothing of it."""
    ranking = ranked(
        a_change(INJECTOR, at=after(made), path=(), old=None, new=INJECTS, verb=Verb.CREATE),
        incident=an_incident(an_alert(after(0), name="Lacking", namespace="shop", deployment="archive")),
        symptoms=[a_symptom(WEB, "CrashLoopBackOff", at=after(-10), count=4)],
        states=[a_workload(WEB), a_state(INJECTOR, INJECTS)],
        rollouts=[Rollout(WEB, "uid", 1, after(-55), Outcome.COMPLETE, ended_at=after(-50))],
    )
    (webhook,) = [one for one in ranking.suspects if one.change.resource == INJECTOR]
    told = sum(evidence.weight for evidence in webhook.evidence if evidence.rule == "symptoms")
    assert (told < 0.12) is is_borne


def test_the_end_of_what_was_only_made_is_no_trigger() -> None:
    preview = a_resource("Service", "preview-7", "shop")
    gone = a_change(preview, at=after(-12), path=(), old={"spec": {}}, new=None, verb=Verb.DELETE)
    made = a_change(preview, at=after(-50), path=(), old=None, new={"spec": {}}, verb=Verb.CREATE)

    def told(*changes: Change) -> list[str]:
        ranking = ranked(*changes, incident=an_incident(an_alert(after(0), name="Lacking", namespace="shop")))
        return [e.sentence for s in ranking.suspects if s.change.id == gone.id for e in s.evidence]

    assert "It deletes the Service." in told(gone)
    assert "It deletes the Service." not in told(made, gone)


@pytest.mark.parametrize(("outcome", "blamed"), [(Outcome.COMPLETE, False), (Outcome.FAILED, True)])
def test_what_was_made_and_came_up_well_is_hardly_to_blame_for_what_is_said_of_it_later(
    outcome: Outcome, blamed: bool
) -> None:
    store = a_resource("StatefulSet", "terms-redis", "shop")
    made = a_change(store, at=after(-55), path=(), old=None, new={"spec": {"replicas": 1}}, verb=Verb.CREATE)
    told = "Readiness probe failed: HTTP 503 (terms-redis: READONLY You can't write against a read only replica)"
    ranking = ranked(
        made,
        incident=an_incident(an_alert(after(10), name="Lacking", namespace="shop", deployment="archive")),
        symptoms=[a_symptom(WEB, "Unhealthy", at=after(0), message=told, count=9)],
        states=[a_workload(WEB), a_workload(store)],
        rollouts=[Rollout(store, "uid", 1, after(-55), outcome, change_id=made.id, ended_at=after(-50))],
    )
    weights = [
        e.weight for one in ranking.suspects for e in one.evidence if e.rule == "symptoms" and one.change is made
    ]
    assert (sum(weights) > 1) is blamed


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SUPERSEDED, Outcome.ROLLED_BACK])
def test_a_rollout_that_failed_is_told_to_have_once_another_has_replaced_it(outcome: Outcome) -> None:
    bump = a_change(WEB, at=after(-14))
    failed = Rollout(WEB, "uid", 2, after(-14), outcome, after(5), bump.id, reason="ProgressDeadlineExceeded")
    ranking = ranked(bump, incident=an_incident(an_alert(after(0), namespace="shop")), rollouts=[failed])
    assert "Its rollout failed: ProgressDeadlineExceeded." in [e.sentence for e in ranking.suspects[0].evidence]


@pytest.mark.parametrize(("field", "leads"), [("topologySpreadConstraints", True), ("priorityClassName", False)])
def test_that_the_first_pods_found_a_place_says_little_of_those_to_come(field: str, leads: bool) -> None:
    """Where an app is spread over zones, its next pods wait for room in the smallest."""
    spread = a_change(WEB, at=after(-30), path=("spec", "template", "spec", field), old=None, new=[{"maxSkew": 1}])
    told = "0/6 nodes are available: 1 Insufficient cpu, 5 node(s) didn't match pod topology spread constraints."
    ranking = ranked(
        spread,
        incident=an_incident(an_alert(after(10), name="KubePodNotScheduled", namespace="shop", deployment="archive")),
        symptoms=[a_symptom(WEB, "FailedScheduling", at=after(0), message=told, count=9)],
        states=[a_workload(WEB)],
        rollouts=[Rollout(WEB, "uid", 2, after(-30), Outcome.COMPLETE, after(-25), spread.id)],
    )
    (found,) = [one for one in ranking.suspects if one.change == spread]
    weights = {e.rule: e.weight for e in found.evidence}
    assert (weights.get("symptoms", 0.0) > 1) is leads
    assert ("rollout" in weights) is not leads


@pytest.mark.parametrize("restarted", [True, False])
def test_what_all_pods_had_come_up_well_with_is_less_likely_than_the_next_rollout(*, restarted: bool) -> None:
    secret = a_resource("Secret", "archive", "shop")
    rotated = replace(a_change(secret, at=after(-50)), diffs=())
    bump = a_change(WEB, at=after(-14))
    rollouts = [
        *([Rollout(WEB, "uid", 1, after(-49), Outcome.COMPLETE, ended_at=after(-44))] if restarted else []),
        Rollout(WEB, "uid", 2, after(-14), Outcome.COMPLETE, after(-9), bump.id),
    ]
    ranking = ranked(
        rotated,
        bump,
        incident=an_incident(an_alert(after(10), name="ErrorRate", namespace="shop", deployment="archive")),
        symptoms=[a_symptom(WEB, "Unhealthy", at=after(-12), message="statuscode: 500", count=9)],
        states=[a_workload(WEB, containers=[{"name": "a", "envFrom": [{"secretRef": {"name": "archive"}}]}])],
        rollouts=rollouts,
    )
    (found,) = [one for one in ranking.suspects if one.change == rotated]
    told = sum(e.weight for e in found.evidence if e.rule == "symptoms")
    assert told < 0.4 if restarted else told > 0.55
    assert first(ranking) == ("Deployment", "archive") or not restarted
