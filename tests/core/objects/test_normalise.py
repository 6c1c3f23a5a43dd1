"""The desired state: what is compared, and what makes no difference."""

from __future__ import annotations

from copy import deepcopy

import pytest

from app.core.model import Json, Object
from app.core.objects.normalise import canonical_quantity, normalise

GROUPS = {"Deployment": "apps", "Widget": "acme.io", "X": "acme.io", "ResourceQuota": "", "LimitRange": ""}


def normal(obj: Object) -> Object:
    kind = str(obj["kind"])
    return normalise(obj, GROUPS.get(kind, ""), kind=kind)


def test_bookkeeping_goes_and_desire_stays() -> None:
    obj: Object = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u",
            "resourceVersion": "5",
            "generation": 2,
            "creationTimestamp": "2026-11-20T12:00:00Z",
            "managedFields": [{"manager": "x"}],
            "labels": {"team": "shop", "pod-template-hash": "abc"},
            "annotations": {"owner": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "finalizers": ["foregroundDeletion", "acme.io/keep"],
        },
        "imagePullSecrets": [{"name": "registry"}],
        "status": {"phase": "Active"},
    }
    before = deepcopy(obj)
    assert normal(obj) == {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": {"team": "shop"},
            "annotations": {"owner": "a"},
            "finalizers": ["acme.io/keep"],
        },
        "imagePullSecrets": [{"name": "registry"}],
    }
    assert obj == before


def deployment(**more: Json) -> Object:
    return {"kind": "Deployment", "metadata": {"name": "web"}, "spec": more}


def container(**more: Json) -> Object:
    return deployment(template={"spec": {"containers": [{"name": "app", **more}]}})


def widget(**more: Json) -> Object:
    return {"kind": "Widget", "metadata": {"name": "web"}, "spec": more}


def test_what_a_custom_resource_says_is_left_as_it_is() -> None:
    said: Object = {"default": {"version": "3.9"}, "limits": {"errorRate": 0.05}, "max": {"when": "5m"}}
    assert normal(widget(**said))["spec"] == said


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"kind": "ConfigMap", "metadata": {"name": "a", "annotations": {}}},
            {"kind": "ConfigMap", "metadata": {"name": "a"}},
        ),
        ({"kind": "X", "metadata": {"labels": {"job-name": "a"}}}, {"kind": "X", "metadata": {}}),
        ({"kind": "X", "metadata": {}, "spec": {"a": None}}, {"kind": "X", "metadata": {}, "spec": {}}),
        (container(resources={"limits": {"cpu": "0.5"}}), container(resources={"limits": {"cpu": "500m"}})),
        (container(resources={"limits": {"memory": "1024Mi"}}), container(resources={"limits": {"memory": "1Gi"}})),
        (container(resources={"limits": {"memory": 1073741824}}), container(resources={"limits": {"memory": "1Gi"}})),
        (container(args=[]), container()),
        (
            {"kind": "ResourceQuota", "metadata": {}, "spec": {"hard": {"requests.memory": "2048Mi", "pods": 1024}}},
            {"kind": "ResourceQuota", "metadata": {}, "spec": {"hard": {"requests.memory": "2Gi", "pods": "1024"}}},
        ),
        (
            {"kind": "LimitRange", "metadata": {}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "2000m"}}]}},
            {"kind": "LimitRange", "metadata": {}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": 2}}]}},
        ),
        (
            deployment(template={"metadata": {"creationTimestamp": None}, "spec": {}}),
            deployment(template={"metadata": {}, "spec": {}}),
        ),
        (
            {"kind": "Deployment", "metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}},
            {"kind": "Deployment", "metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}}},
        ),
        (
            {
                "kind": "Node",
                "metadata": {},
                "status": {"nodeInfo": {"kubeletVersion": "v1"}, "conditions": [{"a": 1}]},
            },
            {"kind": "Node", "metadata": {}, "status": {"nodeInfo": {"kubeletVersion": "v1"}, "conditions": []}},
        ),
        (
            {
                "kind": "Node",
                "metadata": {},
                "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
            },
            {"kind": "Node", "metadata": {}, "spec": {}},
        ),
    ],
)
def test_no_difference(one: Object, other: Object) -> None:
    assert normal(one) == normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (container(image="a:1"), container(image="a:2")),
        (container(env=[{"name": "A", "value": ""}]), container(env=[{"name": "A", "value": "1"}])),
        (container(env=[{"name": "CPU", "value": "0.5"}]), container(env=[{"name": "CPU", "value": "500m"}])),
        (deployment(paused=False), deployment(paused=True)),
        (deployment(selector={"divisor": "1000m"}), deployment(selector={"divisor": "1"})),
        (widget(default={"version": "1.20"}), widget(default={"version": "1.2"})),
        (widget(limits={"errorRate": "0.05"}), widget(limits={"errorRate": "50m"})),
        (widget(resources={"limits": {"cpu": "1000m"}}), widget(resources={"limits": {"cpu": "1"}})),
        (widget(routes=[]), widget()),
        (container(resources={"limits": {"cpu": "1"}}), container(resources={"limits": {"cpu": "1m"}})),
        (
            {"kind": "X", "metadata": {"annotations": {"status": "a"}}},
            {"kind": "X", "metadata": {"annotations": {"status": "b"}}},
        ),
        (
            {"kind": "Node", "metadata": {}, "status": {"nodeInfo": {"kubeletVersion": "v1"}}},
            {"kind": "Node", "metadata": {}, "status": {"nodeInfo": {"kubeletVersion": "v2"}}},
        ),
        (
            {"kind": "Node", "metadata": {}, "spec": {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}},
            {"kind": "Node", "metadata": {}, "spec": {}},
        ),
        (
            {"kind": "Widget", "metadata": {}, "data": {"status": 1}},
            {"kind": "Widget", "metadata": {}, "data": {"status": 2}},
        ),
    ],
)
def test_a_difference(one: Object, other: Object) -> None:
    assert normal(one) != normal(other)


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ("0.5", "500m"), ("500m", "500m"), (0.5, "500m"), (1, "1"), ("1.0", "1"), ("1000m", "1"), ("1k", "1000"),
        ("1e3", "1000"), ("1024Mi", "1Gi"), ("1073741824", "1Gi"), (1048576, "1Mi"), ("64Ki", "65536"),
        ("1G", "1000000000"),
        ("1536Mi", "1536Mi"), ("1.5Gi", "1536Mi"), ("0", "0"), ("0Gi", "0"),
        ("100u", "0.1m"), ("-1", "-1"), ("fast", "fast"), ("", ""), (True, True), (None, None), ("9" * 40, "9" * 40),
    ],
)  # fmt: skip
def test_quantities(spelled: Json, canonical: Json) -> None:
    assert canonical_quantity(spelled) == canonical


def test_canonical_is_stable() -> None:
    for spelled in ("0.5", "1536Mi", "1e3", "100u", "3n", "0.1Gi", "1Ei"):
        once = canonical_quantity(spelled)
        assert canonical_quantity(once) == once


def test_of_the_sync_that_argo_cd_is_asked_for_counts_to_what_and_for_whom() -> None:
    asked: Object = {"sync": {"revision": "abc", "prune": True, "source": {"path": "deploy"}}, "retry": {"limit": 5}}
    app: Object = {"spec": {"project": "shop"}, "operation": {**asked, "initiatedBy": {"username": "alice"}}}
    kept = {"sync": {"revision": "abc"}, "initiatedBy": {"username": "alice"}}
    assert normalise(app, "argoproj.io", kind="Application") == {"spec": {"project": "shop"}, "operation": kept}
    assert normalise(app, "shop.example", kind="Application") == app


@pytest.mark.parametrize(
    "name",
    ["reconcile.fluxcd.io/requestedAt", *(f"argocd.argoproj.io/{one}" for one in ("refresh", "refresh-timestamp"))],
)
def test_asking_a_gitops_controller_to_look_again_changes_nothing(name: str) -> None:
    assert normalise(
        {"metadata": {"annotations": {name: "1"}, "finalizers": ["finalizers.fluxcd.io"]}}, "", kind="X"
    ) == {"metadata": {}}


def test_the_pod_template_of_an_argo_rollout_is_of_known_types() -> None:
    """Its controller writes it as Go has it."""
    volume: Object = {"name": "v", "emptyDir": {}}
    asked: Object = {"name": "a", "resources": {"limits": {"cpu": "0.5"}}}
    written: Object = {"name": "a", "resources": {"limits": {"cpu": "500m"}}}
    one: Object = {"spec": {"containers": [asked, {"name": "b"}], "volumes": [volume], "tolerations": []}}
    other: Object = {
        "metadata": {"creationTimestamp": None},
        "spec": {"containers": [written, {"name": "b", "resources": {}}], "volumes": [volume]},
    }
    noted: Object = {"name": "web", "annotations": {"rollout.argoproj.io/revision": "2"}}
    wholes: list[Object] = [
        {"metadata": {"name": "web"}, "spec": {"template": one}},
        {"metadata": noted, "spec": {"template": other}},
    ]
    one_whole, other_whole = (normalise(whole, "argoproj.io", kind="Rollout") for whole in wholes)
    assert one_whole == other_whole
    kept = one_whole["spec"]["template"]["spec"]  # type: ignore[index, call-overload]
    assert kept["volumes"] == [volume]  # type: ignore[index, call-overload]
