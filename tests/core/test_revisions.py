"""Only pods of the revision that has a change in them can suffer from it."""

from __future__ import annotations

import pytest

from app.core.model import Change, Json, ObjectState, Resource, Symptom
from app.core.revisions import lacking, revision
from app.core.topology import topology
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

HOME = a_resource("Deployment", "baggage", "ops")
IMAGE = ("spec", "template", "spec", "containers", (("name", "app"),), "image")


def a_revision(suffix: str, image: str) -> ObjectState:
    containers: Json = [{"name": "app", "image": image}]
    template: Json = {"spec": {"containers": containers}}
    return a_state(Resource("lab", "apps", "ReplicaSet", "ops", f"baggage-{suffix}"), {"spec": {"template": template}})


def bump(*, at: float = -30) -> Change:
    return a_change(HOME, at=after(at), path=IMAGE, old="app:v1", new="app:v2")


OLD, NEW = a_revision("5d8c7b9f6b", "app:v1"), a_revision("7fd4df88c9", "app:v2")


def crash(revision_of: ObjectState, *, at: float, count: int) -> Symptom:
    symptom = a_symptom(HOME, "CrashLoopBackOff", at=after(at), count=count)
    pod = Resource("lab", "", "Pod", "ops", f"{revision_of.resource.name}-x2x4z")
    return Symptom(symptom.source, symptom.reason, symptom.at, f"{pod}{at}", resource=pod, workload=HOME, count=count)


def test_a_revision_without_the_change_lacks_it() -> None:
    top = topology([a_workload(HOME), OLD, NEW])
    assert lacking(bump(), top) == {("ops", OLD.resource.name)}
    assert lacking(a_change(HOME, path=("spec", "replicas"), old=1, new=2), top) == frozenset()
    assert lacking(a_change(a_resource("ConfigMap", "baggage", "ops"), path=("data", "x")), top) == frozenset()


def test_a_later_attempt_to_mend_it_is_no_revision_without_it() -> None:
    later = a_revision("66b5c9f4d7", "app:v2-fix")
    assert lacking(bump(), topology([a_workload(HOME), OLD, NEW, later])) == {("ops", OLD.resource.name)}
    added = a_change(HOME, path=(*IMAGE[:-1], "workingDir"), old=None, new="/srv")
    assert lacking(added, topology([a_workload(HOME), OLD])) == {("ops", OLD.resource.name)}


def test_what_was_taken_away_is_not_lacking_where_it_never_was() -> None:
    gone = a_change(HOME, path=(*IMAGE[:-1], "livenessProbe"), old={"exec": {}}, new=None)
    assert lacking(gone, topology([a_workload(HOME), OLD, NEW])) == frozenset()


def test_a_pod_is_named_after_its_revision() -> None:
    assert revision(crash(NEW, at=0, count=1)) == ("ops", NEW.resource.name)
    assert revision(a_symptom(HOME, "FailedCreate")) is None


@pytest.mark.parametrize(("ill", "believed"), [([NEW], True), ([OLD, NEW], False)])
def test_a_rollout_is_not_to_blame_where_the_old_pods_crash_alike(ill: list[ObjectState], believed: bool) -> None:
    ranking = ranked(
        bump(),
        incident=an_incident(an_alert(after(30), name="Crashing", namespace="ops", deployment="baggage")),
        symptoms=[crash(one, at=-20 + 3 * n, count=20) for n, one in enumerate(ill)],
        states=[a_workload(HOME), OLD, NEW],
    )
    suspect = next(s for s in ranking.suspects if s.change.resource == HOME)
    (told,) = [e.sentence for e in suspect.evidence if e.rule == "symptoms"]
    if believed:
        assert first(ranking) == ("Deployment", "baggage")
        assert suspect.probability > 0.85
        assert "But" not in told
    else:
        assert suspect.probability < 0.6
        assert told.endswith("But 50 % of these complaints are of pods that do not have it in them.")
