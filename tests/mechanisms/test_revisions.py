"""What a case says of revisions and of the pods of calls is recorded so, as a dump and an audit log tell it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mechanisms.case import MalformedError, gathered


def _workload(kind: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    metadata = {"name": "web", "namespace": "shop"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": template}}


def _case(kind: str, before: str, after: str) -> dict[str, Any]:
    new = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}}
    update = {"id": "up", "at": -2, "by": "ci", "verb": "update", "kind": kind, "namespace": "shop", "name": "web"}
    call = {"user": "system:serviceaccount:shop:web", "verb": "list", "resource": "pods", "rate": 1}
    pod = "web-6c8d9f7b54-x2k4p" if kind == "Deployment" else after
    return {
        "objects": [_workload(kind)],
        "changes": [{**update, "patch": new}],
        "revisions": [{"change": "up", "before": [before], "after": [after]}],
        "complaints": [{"at": 0, "of": {"kind": "Pod", "namespace": "shop", "name": pod}, "reason": "Unhealthy"}],
        "calls": [{**call, "pod": pod}, {**call, "verb": "watch"}],
        "alert": {"at": 1, "name": "Down"},
        "culprit": "up",
    }


@pytest.mark.parametrize(
    ("kind", "before", "after", "kept"),
    [
        ("Deployment", "web-58f9b7c6d4", "web-6c8d9f7b54", "ReplicaSet"),
        ("DaemonSet", "web-8kzxw", "web-w9fhb", "Pod"),
        ("StatefulSet", "web-0", "web-1", "Pod"),
    ],
)
def test_the_versions_before_and_after_a_change_are_told_with_whose_they_are(
    kind: str, before: str, after: str, kept: str
) -> None:
    found, _ = gathered(_case(kind, before, after))
    states = {one.resource.name: one for one in found.states if one.resource.kind == kept}
    assert {name: (one.owner_kind, one.owner_name) for name, one in states.items()} == {
        before: (kind, "web"),
        after: (kind, "web"),
    }
    assert "web:1" in str(states[before].state)
    assert "web:2" in str(states[after].state)


def test_a_pod_that_complains_is_of_the_workload_whose_revision_it_is_named_after() -> None:
    found, _ = gathered(_case("Deployment", "web-58f9b7c6d4", "web-6c8d9f7b54"))
    (symptom,) = found.symptoms
    assert symptom.resource is not None
    assert symptom.workload is not None
    assert (str(symptom.resource), str(symptom.workload)) == ("Pod shop/web-6c8d9f7b54-x2k4p", "Deployment shop/web")


def test_of_which_pod_a_call_is_and_none_where_nobody_says() -> None:
    found, _ = gathered(_case("Deployment", "web-58f9b7c6d4", "web-6c8d9f7b54"))
    pods = {key.verb: key.pod for key in found.calls.keys if key.user == "system:serviceaccount:shop:web"}
    assert pods == {"list": "web-6c8d9f7b54-x2k4p", "watch": ""}


def test_of_what_is_created_nothing_is_before() -> None:
    case = _case("Deployment", "web-58f9b7c6d4", "web-6c8d9f7b54")
    made = {"id": "up", "at": -2, "by": "ci", "verb": "create", "object": case["objects"].pop()}
    with pytest.raises(MalformedError, match="nothing before it"):
        gathered({**case, "changes": [made]})
