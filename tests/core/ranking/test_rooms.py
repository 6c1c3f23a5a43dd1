"""What finds no room on some nodes only leads to who took it there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.model import Change, FieldDiff, Json, Object, ObjectState, Symptom, Verb
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, after, an_alert, an_incident

REPORT, NEWCOMER = a_resource("CronJob", "report", "shop"), a_resource("Deployment", "captions", "media")
ELSEWHERE = a_resource("Deployment", "search", "search")


def made(resource: object, replicas: int, *, at: float) -> Change:
    change = a_change(resource, at=after(at), verb=Verb.CREATE)  # type: ignore[arg-type]
    return replace(change, diffs=(FieldDiff((), "add", None, {"spec": {"replicas": replicas}}),))


def company(selector: Json) -> list[ObjectState]:
    template: Json = {"spec": {"nodeSelector": selector, "containers": []}}
    states = [a_state(REPORT, {"spec": {"jobTemplate": {"spec": {"template": template}}}})]
    for number, pool in enumerate(("batch", "batch", "general", "general")):
        labels: Object = {"metadata": {"labels": {"pool": pool}}}
        states.append(a_state(a_resource("Node", f"worker-{number}", None), labels))
    for home, node in ((NEWCOMER, "worker-0"), (ELSEWHERE, "worker-2")):
        states.append(a_state(home, {"spec": {"replicas": 5, "template": {"metadata": {}, "spec": {}}}}))
        pod = a_resource("Pod", f"{home.name}-6f7c9d4b8-x7k2p", home.namespace)
        states.append(a_state(pod, {"spec": {"nodeName": node}}))
    return states


def lacking() -> list[Symptom]:
    told = "0/4 nodes are available: 2 Insufficient cpu, 2 node(s) didn't match Pod's node affinity/selector."
    return [a_symptom(REPORT, "FailedScheduling", at=after(0), message=told, count=9)]


@pytest.mark.parametrize(("selector", "is_known"), [({"pool": "batch"}, True), ({}, False), ({"pool": "none"}, False)])
def test_who_has_pods_on_the_nodes_that_are_asked_for_took_the_room(selector: Json, is_known: bool) -> None:
    ranking = ranked(
        made(NEWCOMER, 5, at=-40),
        made(ELSEWHERE, 50, at=-20),
        incident=an_incident(an_alert(after(20), name="KubePodPending", namespace="shop")),
        load=[],
        symptoms=lacking(),
        states=company(selector),
    )
    said = {
        one.change.resource.name: sum(e.weight for e in one.evidence if "wants room" in e.sentence)
        for one in ranking.suspects
    }
    assert (said.get("captions", 0) > 2 * said.get("search", 0)) == is_known
