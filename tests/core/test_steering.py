"""What a program began to do after it was changed, or was told to do, belongs to that change."""

from __future__ import annotations

import pytest

from app.core.model import Actor, ActorSource, Change, Json, ObjectState, Resource
from app.core.steering import set_off
from app.core.topology import topology
from tests.core.company import first, ranked
from tests.core.factories import (
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
)

SCALER = Actor("system:serviceaccount:kube-system:cluster-autoscaler", ActorSource.AUDIT)
ARGO = Actor("system:serviceaccount:argocd:argocd-application-controller", ActorSource.AUDIT)
CONFIG = a_resource("ConfigMap", "cluster-autoscaler-config", "kube-system")
TAINTS = ("spec", "taints")


def the_scaler() -> list[ObjectState]:
    reads: Json = {"name": "c", "envFrom": [{"configMapRef": {"name": CONFIG.name}}]}
    deployment = a_resource("Deployment", "cluster-autoscaler", "kube-system")
    return [a_workload(deployment, serviceAccountName="cluster-autoscaler", containers=[reads])]


def taint(node: str, *, at: float) -> Change:
    return a_change(a_resource("Node", node, None), at=after(at), path=TAINTS, old=None, new=[], actor=SCALER)


def early() -> Change:
    return a_change(a_resource("ConfigMap", "other"), at=after(-100), path=("data", "x"))


def test_a_new_sort_of_write_belongs_to_what_configured_the_writer_anew() -> None:
    config = a_change(CONFIG, at=after(-30), path=("data", "threshold"))
    nodes = [taint("a", at=-20), taint("b", at=-10)]
    found = set_off([early(), config, *nodes], topology(the_scaler()))
    assert found == {node.id: config for node in nodes}


def test_what_it_always_did_is_its_own() -> None:
    config = a_change(CONFIG, at=after(-30), path=("data", "threshold"))
    before, then = taint("a", at=-50), taint("b", at=-20)
    assert set_off([early(), before, config, then], topology(the_scaler())) == {}


RELOADER = Actor("system:serviceaccount:platform:reloader", ActorSource.AUDIT)


@pytest.mark.parametrize(("objects", "habitual"), [(3, True), (12, False)])
def test_other_objects_than_ever_belong_to_what_changed_the_writer(objects: int, habitual: bool) -> None:
    def restart(name: str, *, at: float) -> Change:
        path = ("spec", "template", "metadata", "annotations", "restartedAt")
        return a_change(a_resource("Deployment", name), at=after(at), path=path, actor=RELOADER)

    program = a_resource("Deployment", "reloader", "platform")
    image = ("spec", "template", "spec", "containers", 0, "image")
    usual = [restart(f"web-{n % objects}", at=-90 + 4 * n) for n in range(12)]
    rollout = a_change(program, at=after(-30), path=image)
    then = [restart("web-0", at=-25), restart("engine", at=-20), restart("engine", at=-10)]
    states = [a_workload(program, serviceAccountName="reloader")]
    found = set_off([early(), *usual, rollout, *then], topology(states))
    assert found == (dict.fromkeys((one.id for one in then[1:]), rollout) if habitual else {})


def test_a_window_that_just_began_cannot_say_what_is_new() -> None:
    config = a_change(CONFIG, at=after(-30), path=("data", "threshold"))
    assert set_off([config, taint("a", at=-20)], topology(the_scaler())) == {}


@pytest.mark.parametrize(
    ("namespace", "seconds", "told"), [("fares", 3, True), ("shop", 3, False), ("fares", 60, False)]
)
def test_an_order_names_where_it_is_carried_out(namespace: str, seconds: float, told: bool) -> None:
    application = Resource("lab", "argoproj.io", "Application", "argocd", "fares")
    state = a_state(application, {"spec": {"destination": {"namespace": "fares"}}})
    order = a_change(application, path=("spec", "source", "targetRevision"), old="v8", new="v7")
    synced = a_change(a_resource("Deployment", "engine", namespace), at=after(seconds), actor=ARGO)
    found = set_off([order, synced], topology([state]))
    assert found == ({synced.id: order} if told else {})


def test_nodes_that_a_misled_autoscaler_takes_away() -> None:
    config = a_change(CONFIG, at=after(-26), path=("data", "utilization-threshold"), old="0.5", new="1.1")
    workloads = [a_resource("Deployment", f"{team}-{n}", team) for team in ("search", "media") for n in range(4)]
    ranking = ranked(
        config,
        *(taint(f"node-{n}", at=-20 + 3 * n) for n in range(4)),
        incident=an_incident(an_alert(after(30), name="KubePodsPending", message="pods wait for a node")),
        symptoms=[a_symptom(one, "Unschedulable", at=after(-8 + n), count=4) for n, one in enumerate(workloads)],
        states=[*the_scaler(), *(a_workload(one) for one in workloads)],
    )
    assert first(ranking) == ("ConfigMap", CONFIG.name)
    assert any("cluster-autoscaler followed it: 4 writes of Nodes" in e.sentence for e in ranking.suspects[0].evidence)
    assert len(ranking.suspects[0].derived) == 4
    assert all(s.change.resource.kind != "Node" for s in ranking.suspects)
