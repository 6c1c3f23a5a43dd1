"""Pods that somebody evicts: who asks for that is looked for, and what was done to the pods is not to blame."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import Actor, ActorSource, CallCount, Change, Json, Object, ObjectState, SymptomSource, Verb
from app.core.objects.pod_states import EVICTED
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
from tests.core.ranking.test_permitted import may

WEB = a_resource("Deployment", "web", "shop")
PODS = [a_resource("Pod", f"web-5d4f89c7b-{end}", "shop") for end in ("x2x4b", "h7k9c", "p3q5d")]
READS: Json = {"name": "c", "envFrom": [{"configMapRef": {"name": "descheduler"}}]}
DESCHEDULER = a_resource("Deployment", "descheduler", "descheduler")
PROGRAMS = [
    *may("descheduler", "", "pods/eviction", "create")[1:],
    *(state for name in ("reporter", "mailer", "billing") for state in may(name, "", "configmaps", "get")),
    a_workload(DESCHEDULER, serviceAccountName="descheduler", containers=[READS]),
    a_workload(WEB),
]
CONFIG = a_resource("ConfigMap", "descheduler", "descheduler")
CONFIGURED = a_change(CONFIG, at=after(-22), path=("data", "lifetime"), old="7d", new="24")
PROGRAM = "system:serviceaccount:descheduler:descheduler"


def where_pods_are_evicted(
    *changes: Change, load: list[CallCount], states: list[ObjectState], gone: list[ObjectState] | None = None
) -> Ranking:
    """Pods of a workload are evicted, which an alert names; it was rolled out shortly before."""
    told = [a_symptom(pod, EVICTED, at=after(n - 18), message="Eviction API: evicting") for n, pod in enumerate(PODS)]
    return ranked(
        a_change(WEB, at=after(-26)),
        *changes,
        incident=an_incident(an_alert(after(20), name="KubeDeployment", namespace="shop", deployment="web")),
        symptoms=[replace(one, workload=WEB, count=1, source=SymptomSource.POD) for one in told],
        load=load,
        states=states,
        gone=gone or [],
    )


def test_who_evicts_is_told_by_the_audit_log() -> None:
    user = "system:serviceaccount:descheduler:descheduler"
    evicts = calls(user, "create", "pods/eviction", rate=0.4, start=-20, end=-10, namespace="shop")
    ranking = where_pods_are_evicted(CONFIGURED, load=[*background(), *evicts], states=PROGRAMS)
    assert first(ranking) == ("ConfigMap", "descheduler")
    said = [one.sentence for one in ranking.suspects[0].evidence]
    assert any("EvictionByEvictionAPI ×3 on web, by descheduler" in sentence for sentence in said)


def test_without_an_audit_log_rights_tell_who_may_evict() -> None:
    ranking = where_pods_are_evicted(CONFIGURED, load=[], states=PROGRAMS)
    assert first(ranking) == ("ConfigMap", "descheduler")
    assert "descheduler may make these calls" in ranking.suspects[0].evidence[0].sentence


def test_a_node_that_all_pods_leave_is_drained() -> None:
    node = a_resource("Node", "worker-3", None)
    on: Object = {"spec": {"nodeName": "worker-3"}}
    gone = [replace(a_state(pod, on), deleted_at=after(n - 17)) for n, pod in enumerate(PODS)]
    cordon = a_change(node, at=after(-22), path=("spec", "unschedulable"), old=None, new=True)
    ranking = where_pods_are_evicted(cordon, load=background(), states=[a_workload(WEB)], gone=gone)
    assert first(ranking) == ("Node", "worker-3")


@pytest.mark.parametrize(
    ("cordons", "drains", "leads"),
    [("alice", PROGRAM, True), (PROGRAM, PROGRAM, False), ("alice", "alice", False)],
)
def test_who_cordons_what_he_drains_does_both_for_one_reason(*, cordons: str, drains: str, leads: bool) -> None:
    node = a_resource("Node", "worker-3", None)
    gone = [replace(a_state(pod, {"spec": {"nodeName": "worker-3"}}), deleted_at=after(-17)) for pod in PODS]
    cordon = a_change(node, at=after(-22), path=("spec", "unschedulable"), old=None, new=True)
    cordon = replace(cordon, actor=Actor(cordons, ActorSource.AUDIT))
    evicts = calls(drains, "create", "pods/eviction", rate=0.4, start=-20, end=-10, namespace="shop")
    ranking = where_pods_are_evicted(cordon, load=[*background(), *evicts], states=PROGRAMS, gone=gone)
    (drain,) = (one for one in ranking.suspects if one.change.resource == node)
    (symptoms,) = (one.weight for one in drain.evidence if one.rule == "symptoms")
    assert (symptoms > 1) is leads
    assert (symptoms < 0.5) is not leads


def test_what_was_done_to_the_pods_evicts_none() -> None:
    ranking = where_pods_are_evicted(load=background(), states=[a_workload(WEB)])
    rollout = next(one for one in ranking.suspects if one.change.resource == WEB)
    assert all(evidence.rule != "symptoms" or evidence.weight < 0.5 for evidence in rollout.evidence)


COMMAND = a_resource("Job", "run-command", "platform")
COMMAND_USER = "system:serviceaccount:platform:run-command"


def where_pods_are_deleted(*, by: str, gone_at: float = -3) -> Ranking:
    """All pods of a workload are deleted, and fail their probes as they start; a Job was made, and it was edited."""
    node: Object = {"spec": {"nodeName": "worker-3"}}
    gone = [replace(a_state(pod, node), deleted_at=after(gone_at)) for pod in PODS]
    told = [a_symptom(pod, "Unhealthy", at=after(n), message="connection refused") for n, pod in enumerate(PODS)]
    return ranked(
        a_change(WEB, at=after(-50), path=("spec", "minReadySeconds"), old=0, new=5),
        replace(a_change(COMMAND, at=after(-8)), verb=Verb.CREATE),
        incident=an_incident(an_alert(after(20), name="KubeDeployment", namespace="shop", deployment="web")),
        symptoms=[replace(one, workload=WEB, count=1) for one in told],
        load=[*background(), *calls(by, "delete", "pods", rate=0.6, start=-5, end=0, namespace="shop")],
        states=[a_workload(WEB), a_workload(COMMAND, serviceAccountName="run-command")],
        gone=gone,
    )


def test_pods_are_missed_because_somebody_deleted_them() -> None:
    ranking = where_pods_are_deleted(by=COMMAND_USER)
    assert first(ranking) == ("Job", "run-command")
    assert "Unhealthy ×3 on web, after run-command deleted pods there" in ranking.suspects[0].evidence[0].sentence


def test_what_kubernetes_controllers_delete_is_nobodys_doing() -> None:
    ranking = where_pods_are_deleted(by="system:serviceaccount:kube-system:replicaset-controller")
    assert all("deleted pods" not in one.sentence for one in ranking.findings)


def test_pods_that_went_long_before_are_not_missed() -> None:
    ranking = where_pods_are_deleted(by=COMMAND_USER, gone_at=-90)
    assert all("deleted pods" not in one.sentence for one in ranking.findings)
