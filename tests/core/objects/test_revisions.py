"""Only pods of the revision that has a change in them can suffer from it."""

from __future__ import annotations

import pytest

from app.core.model import Change, Json, ObjectState, Resource, Symptom
from app.core.objects.revisions import lacking, lacks, pod_of, revisions
from tests.core.company import background, first, ranked
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

HOME = a_resource("Deployment", "baggage", "ops")
IMAGE = ("spec", "template", "spec", "containers", (("name", "app"),), "image")


def a_revision(suffix: str, image: str) -> ObjectState:
    containers: Json = [{"name": "app", "image": image}]
    template: Json = {"spec": {"containers": containers}}
    of = Resource("lab", "apps", "ReplicaSet", "ops", f"baggage-{suffix}")
    return a_state(of, {"spec": {"template": template}}, owner=HOME)


def bump(*, at: float = -30) -> Change:
    return a_change(HOME, at=after(at), path=IMAGE, old="app:v1", new="app:v2")


OLD, NEW = a_revision("5d8c7b9f6b", "app:v1"), a_revision("7fd4df88c9", "app:v2")


def crash(revision_of: ObjectState, *, at: float, count: int) -> Symptom:
    symptom = a_symptom(HOME, "CrashLoopBackOff", at=after(at), count=count)
    pod = Resource("lab", "", "Pod", "ops", f"{revision_of.resource.name}-x2x4z")
    return Symptom(symptom.source, symptom.reason, symptom.at, f"{pod}{at}", resource=pod, workload=HOME, count=count)


def test_a_revision_without_the_change_lacks_it() -> None:
    known = revisions([a_workload(HOME), OLD, NEW])
    assert lacking(bump(), known) == {("ops", OLD.resource.name)}
    assert lacking(a_change(HOME, path=("spec", "replicas"), old=1, new=2), known) == frozenset()
    assert lacking(a_change(a_resource("ConfigMap", "baggage", "ops"), path=("data", "x")), known) == frozenset()


def test_a_later_attempt_to_mend_it_is_no_revision_without_it() -> None:
    later = a_revision("66b5c9f4d7", "app:v2-fix")
    assert lacking(bump(), revisions([a_workload(HOME), OLD, NEW, later])) == {("ops", OLD.resource.name)}
    added = a_change(HOME, path=(*IMAGE[:-1], "workingDir"), old=None, new="/srv")
    assert lacking(added, revisions([a_workload(HOME), OLD])) == {("ops", OLD.resource.name)}


def test_what_was_taken_away_is_not_lacking_where_it_never_was() -> None:
    gone = a_change(HOME, path=(*IMAGE[:-1], "livenessProbe"), old={"exec": {}}, new=None)
    assert lacking(gone, revisions([a_workload(HOME), OLD, NEW])) == frozenset()


def test_a_pod_is_named_after_its_revision() -> None:
    pod = pod_of(crash(NEW, at=0, count=1))
    assert pod == ("ops", f"{NEW.resource.name}-x2x4z")
    assert lacks(pod, frozenset({("ops", NEW.resource.name)}))
    assert not lacks(pod, frozenset({("ops", OLD.resource.name)}))
    assert pod_of(a_symptom(HOME, "FailedCreate")) is None


def a_pod(name: str, image: str, owner: Resource) -> ObjectState:
    containers: Json = [{"name": "app", "image": image}]
    return a_state(Resource("lab", "", "Pod", "ops", name), {"spec": {"containers": containers}}, owner=owner)


@pytest.mark.parametrize("kind", ["DaemonSet", "StatefulSet"])
def test_pods_without_a_replica_set_are_looked_at_themselves(kind: str) -> None:
    home = a_resource(kind, "agent", "ops")
    change = a_change(home, path=IMAGE, old="app:v1", new="app:v2")
    old, new = a_pod("agent-1", "app:v1", home), a_pod("agent-2", "app:v2", home)
    namesake = a_pod("agent-3", "app:v1", a_resource("DaemonSet", "other", "ops"))
    assert lacking(change, revisions([a_workload(home), old, new, namesake])) == {("ops", "agent-1")}
    assert lacking(change, revisions([new], gone=[old])) == {("ops", "agent-1")}, "what it complained of still stands"
    again = a_pod("agent-1", "app:v2", home)
    assert lacking(change, revisions([again, new], gone=[old])) == frozenset(), "a StatefulSet's pods keep their names"


@pytest.mark.parametrize(("of_old", "share", "leads"), [(0.2, "100 %", "DaemonSet"), (8, "51 %", "ConfigMap")])
def test_an_agent_on_each_node_calls_more_in_its_new_version(of_old: float, share: str, leads: str) -> None:
    agent, user = a_resource("DaemonSet", "agent", "ops"), "system:serviceaccount:ops:agent"
    old, new = ([a_pod(f"agent-{tag}xx{n}", f"app:{tag}", agent) for n in range(3)] for tag in ("v1", "v2"))
    load = background()
    for n in range(3):
        load += calls(user, "list", "pods", rate=0.2, end=-30, pod=f"agent-gone{n}")
        load += calls(user, "list", "pods", rate=0.2, end=-20, pod=old[n].resource.name)
        load += calls(user, "list", "pods", rate=of_old, start=-20, pod=old[n].resource.name)
        load += calls(user, "list", "pods", rate=8, start=-20, pod=new[n].resource.name)
    reads: Json = [{"name": "settings", "configMap": {"name": "agent"}}]
    ranking = ranked(
        a_change(agent, at=after(-32), path=IMAGE, old="app:v1", new="app:v2"),
        a_change(
            a_resource("ConfigMap", "agent", "ops"), at=after(-26), path=("data", "interval"), old="60s", new="1s"
        ),
        incident=an_incident(an_alert(after(20), name="KubeAPIErrorBudgetBurn")),
        load=load,
        states=[a_workload(agent, serviceAccountName="agent", volumes=reads), *old, *new],
    )
    assert first(ranking) == (leads, "agent")
    evidence = next(one.evidence for one in ranking.suspects if one.change.resource == agent)
    (told,) = [one.sentence for one in evidence if one.rule == "load"]
    assert f"{share} of it comes from pods that have it in them" in told


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
        assert suspect.probability > 0.55
        assert "But" not in told
    else:
        assert suspect.probability < 0.6
        assert told.endswith("But 50 % of these complaints are of pods that do not have it in them.")
