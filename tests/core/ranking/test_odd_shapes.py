"""What is imported may have been made by hand, a custom kind may be called like one of Kubernetes' own, and a redaction
of one's own hides fields with all that stands in them: the rest is ranked all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.model import FieldDiff, Object, Segment, Verb
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, after, an_alert, an_incident

POD: Object = {
    "serviceAccountName": "web",
    "nodeName": "node-1",
    "nodeSelector": {"pool": "a"},
    "affinity": {"podAntiAffinity": {"required": [{"topologyKey": "zone"}]}, "nodeAffinity": {"required": []}},
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "registry"}],
    "initContainers": [{"name": "init", "image": "init:1", "args": ["--once"]}],
    "containers": [
        {
            "name": "web",
            "image": "web:1",
            "command": ["/web"],
            "env": [
                {"name": "API", "value": "http://api"},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "key"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "web"}}],
            "ports": [{"containerPort": 80, "hostPort": 8080}],
            "resources": {"limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "files", "subPath": "a"}],
        }
    ],
    "volumes": [
        {"name": "files", "configMap": {"name": "web-files"}},
        {"name": "all", "projected": {"sources": [{"secret": {"name": "all"}}]}},
        {"name": "host", "hostPath": {"path": "/etc/cni"}},
    ],
}
TEMPLATE: Object = {"metadata": {"labels": {"app": "web"}}, "spec": POD}
RULES: Any = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"], "operations": ["CREATE"]}]
HOOK: Object = {
    "name": "web.shop",
    "clientConfig": {"service": {"namespace": "shop", "name": "web"}},
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["shop"]}]},
    "rules": RULES,
}
SPEC: dict[str, Object] = {
    "Deployment": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
    "StatefulSet": {"template": TEMPLATE, "volumeClaimTemplates": [{"spec": {"storageClassName": "fast"}}]},
    "DaemonSet": {"template": TEMPLATE},
    "ReplicaSet": {"template": TEMPLATE},
    "Job": {"parallelism": 3, "template": TEMPLATE},
    "CronJob": {"jobTemplate": {"spec": {"template": TEMPLATE}}},
    "Pod": POD,
    "Service": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 80, "nodePort": 30080}]},
    "Ingress": {
        "rules": [{"host": "web.example", "http": {"paths": [{"backend": {"service": {"name": "web"}}}]}}],
        "tls": [{"secretName": "key"}],
    },
    "NetworkPolicy": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": []},
    "PodDisruptionBudget": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
    "HorizontalPodAutoscaler": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2},
    "PersistentVolume": {"claimRef": {"namespace": "shop", "name": "web"}, "nfs": {"server": "nfs.example"}},
    "Node": {"taints": [{"key": "gone", "effect": "NoSchedule"}]},
    "FlowSchema": {
        "priorityLevelConfiguration": {"name": "low"},
        "rules": [{"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "shop", "name": "web"}}]}],
    },
    "APIService": {"service": {"namespace": "shop", "name": "web"}},
    "CustomResourceDefinition": {"names": {"kind": "Web", "plural": "webs"}},
    "MutatingAdmissionPolicy": {"policyName": "web", "matchConstraints": {"resourceRules": RULES}},
}
WHOLE: dict[str, Object] = {
    **{kind: {"spec": spec} for kind, spec in SPEC.items()},
    "ClusterRole": {
        "rules": RULES,
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"rbac.example/to-web": "true"}}]},
    },
    "RoleBinding": {"roleRef": {"kind": "ClusterRole", "name": "web"}, "subjects": [{"kind": "Group", "name": "devs"}]},
    "MutatingWebhookConfiguration": {"webhooks": [HOOK]},
    "ConfigMap": {"data": {"api": "http://api.shop:80"}},
    "EndpointSlice": {"endpoints": [{"addresses": ["10.0.0.1"]}]},
}
META: Object = {"labels": {"app": "web", "kubernetes.io/service-name": "web"}, "annotations": {"a": "b"}}
GROUPS = {kind: a_resource(kind).api_group for kind in WHOLE}
ODD: list[Any] = ["<hidden>", 7, True, ["<hidden>"], [7], {}, {"name": {}}, []]


def _paths(value: Any, *path: Segment) -> Iterator[tuple[Segment, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, one in inner:
        yield from _paths(one, *path, step)


def _with(value: Any, path: tuple[Segment, ...], odd: Any) -> Any:
    if not path:
        return odd
    if isinstance(value, dict):
        return value | {path[0]: _with(value[path[0]], path[1:], odd)}
    return [_with(one, path[1:], odd) if n == path[0] else one for n, one in enumerate(value)]


OBJECTS = {kind: {"metadata": {"name": "web", "namespace": "shop", **META}, **held} for kind, held in WHOLE.items()}
PLACES = [
    (kind, path) for kind, held in OBJECTS.items() for path in _paths(held) if path[-1] not in ("name", "namespace")
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(ODD), st.booleans())
def test_what_is_not_as_kubernetes_has_it_takes_nothing_else_with_it(
    place: tuple[str, tuple[Segment, ...]], odd: Any, custom: bool
) -> None:
    kind, path = place
    held = _with(OBJECTS[kind], path, odd)
    it = a_resource(kind)
    it = replace(it, api_group="web.example") if custom else it
    others = [a_state(a_resource(other), state) for other, state in OBJECTS.items() if other != kind or custom]
    made = replace(a_change(it, at=after(-60)), verb=Verb.CREATE, diffs=(FieldDiff((), "add", None, held),))
    written = a_change(it, at=after(-50), path=path, old=None, new=odd)
    culprit = a_change(a_resource("Deployment", "web"), at=after(-5))
    ranking = ranked(
        made,
        written,
        culprit,
        incident=an_incident(an_alert(namespace="shop", deployment="web")),
        symptoms=[a_symptom(a_resource("Pod", "web"), "BackOff")],
        states=[*others, a_state(it, held)],
        gone=[a_state(replace(it, name="web-gone"), held)] if kind == "Pod" else (),
    )
    assert first(ranking)
    assert 0 < sum(one.probability for one in ranking.suspects) + ranking.none_of_these < 1.001
