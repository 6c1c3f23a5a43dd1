"""The one line that a person reads."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.changes.summaries import LIMIT, summary
from app.core.model import Object, Resource, Verb
from app.core.objects.diff import diff
from app.core.objects.grants import grants_changed
from app.core.objects.values import image_parts


def pod(image: str = "r/web:v1", **container: Any) -> Any:
    return {"template": {"spec": {"containers": [{"name": "web", "image": image, **container}]}}}


def rules(*verbs: str, resources: tuple[str, ...] = ("endpoints",)) -> Any:
    return {"rules": [{"apiGroups": [""], "resources": list(resources), "verbs": list(verbs)}]}


def subjects(*names: str) -> Any:
    return {"subjects": [{"kind": "Group", "name": name} for name in names]}


def line(kind: str, old: Any, new: Any, name: str = "web") -> str:
    verb = Verb.CREATE if old is None else Verb.DELETE if new is None else Verb.UPDATE
    return summary(Resource("c", "", kind, "shop", name), verb, diff(old, new), old=old, new=new)


ARGS = ["--listen=0.0.0.0:8080", "--kubeconfig=/etc/kubernetes/config", "--metrics-port=9090"]
UPDATES: list[tuple[str, Any, Any, str]] = [
    ("Deployment", {"spec": pod()}, {"spec": pod("r/web:v2")}, "image of web: v1 → v2"),
    ("Deployment", {"spec": pod()}, {"spec": pod("other/web:v1")}, "image of web: r/web:v1 → other/web:v1"),
    (
        "Deployment",
        {"spec": pod("r/web:v1")},
        {"spec": pod(f"registry.corp.example/shop/web:v2@sha256:{'ab' * 32}")},
        "image of web: r/web:v1 → registry.corp.example/shop/web:v2",
    ),
    (
        "Deployment",
        {"spec": pod(f"r/web:{'a' * 40}")},
        {"spec": pod(f"r/web:{'b' * 40}")},
        "image of web: aaaaaaaaaaaa → bbbbbbbbbbbb",
    ),
    ("ConfigMap", {"data": {"user": "a"}}, {"data": {"user": "a\u202ebc"}}, r"user of ConfigMap web: a → a\u202ebc"),
    (
        "Deployment",
        {"spec": pod("r/web")},
        {"spec": pod(f"other/web@sha256:{'ab' * 32}")},
        "image of web: r/web → other/web@abababababab",
    ),
    (
        "Deployment",
        {"spec": pod("r/web:v1@sha256:aaaabbbbcccc")},
        {"spec": pod("r/web:v1@sha256:ddddeeeeffff")},
        "image of web: v1@aaaabbbb → v1@ddddeeee",
    ),
    (
        "Deployment",
        {"spec": {"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": "25%"}}}},
        {"spec": {"replicas": 500, "strategy": {"rollingUpdate": {"maxSurge": "100%"}}}},
        "replicas of web: 2 → 500, maxSurge 25% → 100%",
    ),
    (
        "Deployment",
        {"spec": {**pod(env=[{"name": "A", "value": "1"}]), "replicas": 1}, "metadata": {"labels": {"x": "1"}}},
        {
            "spec": {**pod("r/web:v2", env=[{"name": "A", "value": "2"}]), "replicas": 3},
            "metadata": {"labels": {"x": "2"}},
        },
        "image of web: v1 → v2, replicas 1 → 3, env A 1 → 2, label x 1 → 2",
    ),
    (
        "Deployment",
        {"spec": pod(resources={"limits": {"memory": "1Gi"}})},
        {"spec": pod(resources={"limits": {"memory": "64Mi"}})},
        "memory limit of web: 1Gi → 64Mi",
    ),
    (
        "ServiceAccount",
        {"metadata": {"annotations": {"x.io/owner-signature": "a"}}},
        {"metadata": {"annotations": {"x.io/owner-signature": "b"}}},
        "annotation owner-signature of ServiceAccount web: a → b",
    ),
    ("ConfigMap", {"data": {"pool": "20"}}, {"data": {}}, "pool of ConfigMap web removed (was 20)"),
    ("ClusterRole", rules("get", "list", "watch"), rules("get"), "ClusterRole web lost list, watch on endpoints"),
    ("ClusterRole", rules("get"), rules("*"), "ClusterRole web lost get on endpoints; gained every verb on endpoints"),
    ("RoleBinding", subjects("dev"), subjects("dev", "ops"), "RoleBinding web gained Group ops"),
    ("Node", {"spec": {}}, {"spec": {"unschedulable": True}}, "Node web cordoned"),
    ("Node", {"spec": {"unschedulable": True}}, {"spec": {}}, "Node web uncordoned"),
    ("CronJob", {"spec": {"suspend": False}}, {"spec": {"suspend": True}}, "web suspended"),
    ("HelmRelease", {"spec": {"chart": "a"}}, {"spec": {"chart": "a", "suspend": True}}, "HelmRelease web suspended"),
    (
        "ValidatingWebhookConfiguration",
        {"webhooks": [{"name": "a.b", "failurePolicy": "Ignore"}]},
        {"webhooks": [{"name": "a.b", "failurePolicy": "Fail"}]},
        "failurePolicy (a.b) of webhook web: Ignore → Fail",
    ),
    (
        "Secret",
        {"data": {"password": "<redacted:00000001>"}},
        {"data": {"password": "<redacted:00000002>"}},
        "password of Secret web changed (hidden)",
    ),
    (
        "Deployment",
        {"spec": {"template": {"metadata": {}}}},
        {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}},
        "restart of web",
    ),
    (
        "Deployment",
        {"spec": {"replicas": 1, **pod(args=ARGS)}},
        {"spec": {"replicas": 2, **pod(args=[*ARGS, "--leader-elect=false"])}},
        "replicas of web: 1 → 2, args gained --leader-elect=false",
    ),
    (
        "Deployment",
        {"spec": pod(args=[*ARGS, "--v=2"])},
        {"spec": pod(args=[*ARGS, "--v=9"])},
        "args of web: --v=2 → --v=9",
    ),
    ("Deployment", {"spec": pod(args=ARGS)}, {"spec": pod(args=ARGS[::-1])}, "args of web in another order"),
    ("Deployment", {"spec": pod(args=["a"])}, {"spec": pod(args=["a", "b"])}, "args of web: a → a, b"),
    (
        "Deployment",
        {"spec": pod(env=[{"name": "A", "value": "1"}])},
        {"spec": pod(env=[{"name": "A", "value": "1"}, {"name": "GOMEMLIMIT", "value": "400MiB"}])},
        "env GOMEMLIMIT of web set to 400MiB",
    ),
    (
        "Deployment",
        {"spec": {"template": {"spec": {"containers": [{"name": "web"}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "web"}, {"name": "proxy", "image": "p:1"}]}}}},
        "container proxy of web added: p:1",
    ),
    (
        "Deployment",
        {"spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}]}},
        {"spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}, {"ip": "10.0.0.2", "hostnames": ["x"]}]}},
        "hostAlias 10.0.0.2 of web added: x",
    ),
    (
        "NetworkPolicy",
        {"spec": {"ingress": [{"ports": [{"port": 6379, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}]}]}},
        {"spec": {"ingress": [{"ports": [{"port": 6380, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}]}]}},
        "port of NetworkPolicy web: 6379 → 6380",
    ),
    ("Widget", {"spec": {"a": 1}}, {"spec": {"a": "1"}}, 'a of Widget web: 1 → "1"'),
    ("Widget", {"data": {"a": "x" * 90}}, {"data": {"a": "x" * 99}}, "a of Widget web changed"),
    (
        "HorizontalPodAutoscaler",
        {
            "spec": {
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}]
            }
        },
        {
            "spec": {
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 20}}}]
            }
        },
        "averageUtilization (cpu) of HorizontalPodAutoscaler web: 50 → 20",
    ),
    ("StorageClass", {"a": {"b": True}}, {"a": {"b": False}}, "b of StorageClass web: true → false"),
]


@pytest.mark.parametrize(("kind", "old", "new", "expected"), UPDATES)
def test_updates(kind: str, old: Any, new: Any, expected: str) -> None:
    assert line(kind, old, new) == expected


HOOK = {"webhooks": [{"failurePolicy": "Fail", "rules": [{"operations": ["CREATE"], "resources": ["pods"]}]}]}
CREATED: list[tuple[str, Any, str]] = [
    ("ValidatingWebhookConfiguration", HOOK, "webhook web created: Fail on CREATE pods"),
    ("Deployment", {"spec": {**pod(), "replicas": 1}}, "Deployment web created: web:v1, 1 replica"),
    (
        "NetworkPolicy",
        {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{}]}},
        "NetworkPolicy web created: ingress denied and egress limited to 1 rule for all pods",
    ),
    ("ResourceQuota", {"spec": {"hard": {"pods": "10"}}}, "ResourceQuota web created: pods 10"),
    ("ClusterRole", rules("get", "list"), "ClusterRole web created: get, list on endpoints"),
    (
        "ClusterRoleBinding",
        {"roleRef": {"kind": "ClusterRole", "name": "admin"}, **subjects("dev")},
        "ClusterRoleBinding web created: ClusterRole admin for Group dev",
    ),
    ("PodDisruptionBudget", {"spec": {"minAvailable": "100%"}}, "PodDisruptionBudget web created: minAvailable 100%"),
    ("PriorityClass", {"value": 1000, "globalDefault": True}, "PriorityClass web created: 1000, the default"),
    ("ConfigMap", {"data": {"a": "1", "b": "2"}}, "ConfigMap web created: a, b"),
    ("Service", {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}, "Service web created: NodePort on 80"),
    ("Namespace", {"spec": {}}, "Namespace web created"),
]


@pytest.mark.parametrize(("kind", "state", "expected"), CREATED)
def test_creations(kind: str, state: Any, expected: str) -> None:
    assert line(kind, None, state) == expected
    assert line(kind, state, None).endswith("web deleted")


def test_helm_releases_are_called_by_their_name() -> None:
    state = {"data": {"release": "<redacted:00000001>"}}
    assert line("Secret", None, state, "sh.helm.release.v1.shop.v12") == "Helm release shop revision 12 created"


def test_what_was_not_recorded_is_said() -> None:
    found = summary(Resource("c", "", "Secret", "shop", "db"), Verb.UPDATE, (), old=None, new=None)
    assert found == "Secret db written (its content was not recorded)"


def test_a_line_is_never_too_long_and_says_how_much_more_there_is() -> None:
    old = {"data": {f"a-rather-long-key-number-{n}": "x" * 200 for n in range(30)}}
    new = {"data": {f"a-rather-long-key-number-{n}": "y\n" * 200 for n in range(30)}}
    found = line("ConfigMap", old, new)
    assert len(found) <= LIMIT
    assert "\n" not in found
    assert found.endswith("more")


def test_rules_rewritten_without_effect_are_told_as_fields() -> None:
    split: Object = {"rules": [*rules("get")["rules"], *rules("list")["rules"]]}
    assert grants_changed("Role", rules("get", "list"), split) == ""
    assert line("Role", rules("get", "list"), split).startswith("rules of Role web")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("r.example:5000/a/b:v1", ("r.example:5000/a/b", "v1")),
        ("nginx", ("nginx", "latest")),
        ("r.example:5000/b", ("r.example:5000/b", "latest")),
        ("b@sha256:0123456789abcdef", ("b", "0123456789ab")),
        ("b:v1@sha256:0123456789abcdef", ("b", "v1")),
    ],
)
def test_image_references(image: str, expected: tuple[str, str]) -> None:
    assert image_parts(image) == expected
