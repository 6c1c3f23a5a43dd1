"""What many nodes suffer from: heartbeats held up, what runs on all of them, labels by which they are chosen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.edges.references import node_labels
from app.core.entities import NODES
from app.core.model import Actor, ActorSource, Json, Object, ObjectState, Resource, Symptom, SymptomSource, Verb
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

NODE_NAMES = [f"worker-{number}" for number in range(5)]
BASKET = a_resource("Deployment", "basket", "checkout")
BESIDE = a_change(BASKET, at=after(-30), path=("spec", "template", "spec", "priorityClassName"), old=None, new="low")
LEASES: Object = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "operations": ["CREATE", "UPDATE"]}


def node(name: str) -> Resource:
    return a_resource("Node", name, None)


def states() -> list[ObjectState]:
    return [a_workload(BASKET), *(a_state(node(name), {"metadata": {"labels": {}}}) for name in NODE_NAMES)]


def ill(reason: str, message: str) -> list[Symptom]:
    """Every node complains, one second after the other."""
    return [
        replace(a_symptom(node(name), reason, at=after(-20 + i), message=message), source=SymptomSource.CONDITION)
        for i, name in enumerate(NODE_NAMES)
    ]


def hook(**fields: Json) -> Object:
    return {"webhooks": [{"name": "guard.corp.example", "rules": [LEASES], **fields}]}


def test_a_webhook_that_holds_up_heartbeats_makes_nodes_not_ready() -> None:
    guard = a_resource("ValidatingWebhookConfiguration", "guard", None)
    ranking = ranked(
        a_change(guard, at=after(-70), verb=Verb.CREATE),
        BESIDE,
        incident=an_incident(an_alert(after(40), name="KubeNodeNotReady")),
        load=[],
        symptoms=ill("NodeNotReady", "Kubelet stopped posting node status."),
        states=[*states(), a_state(guard, hook())],
    )
    assert first(ranking) == ("ValidatingWebhookConfiguration", "guard")
    assert ranking.suspects[0].probability > 0.5


@pytest.mark.parametrize(
    ("fields", "holds_up"),
    [
        ({}, True),
        ({"rules": [{"apiGroups": ["*"], "resources": ["*/*"], "operations": ["*"]}]}, True),
        ({"failurePolicy": "Ignore"}, False),
        ({"rules": [{**LEASES, "resources": ["leasecandidates"]}]}, False),
        ({"rules": [{**LEASES, "operations": ["DELETE"]}]}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}, False),
    ],
)
def test_which_webhooks_are_asked_about_heartbeats(fields: Object, holds_up: bool) -> None:
    guard = a_resource("ValidatingWebhookConfiguration", "guard", None)
    found = reach(a_change(guard, verb=Verb.CREATE), topology([a_state(guard, hook(**fields))]))
    assert (NODES in found) is holds_up


def test_what_runs_on_every_node_fills_their_disks() -> None:
    agent = a_resource("DaemonSet", "log-shipper", "monitoring")
    ranking = ranked(
        a_change(agent, at=after(-70)),
        BESIDE,
        incident=an_incident(an_alert(after(40), name="KubeNodePressure")),
        load=[],
        symptoms=ill("DiskPressure", "kubelet has disk pressure"),
        states=[*states(), a_workload(agent)],
    )
    assert first(ranking) == ("DaemonSet", "log-shipper")
    assert ranking.suspects[0].probability > 0.5


def test_one_node_that_is_ill_is_not_put_down_to_what_runs_on_all() -> None:
    agent = a_resource("DaemonSet", "log-shipper", "monitoring")
    ranking = ranked(
        a_change(agent, at=after(-70)),
        incident=an_incident(an_alert(after(40), name="KubeNodeNotReady")),
        load=[],
        symptoms=ill("NodeNotReady", "Kubelet stopped posting node status.")[:1],
        states=[*states(), a_workload(agent)],
    )
    assert ranking.none_of_these > ranking.suspects[0].probability


def test_a_label_by_which_a_network_plugin_chooses_nodes() -> None:
    """As at Reddit on 2023-03-14 (https://k8s.af): an upgrade took away what route reflectors were chosen by."""
    label = "node-role.kubernetes.io/master"
    plugin = a_resource("DaemonSet", "calico-node", "kube-system")
    peers = replace(a_resource("BGPPeer", "reflectors", None), api_group="crd.projectcalico.org")
    upgrade = Actor("kubeadm", ActorSource.AUDIT)
    watcher = "system:serviceaccount:kube-system:calico-node"
    message = "Readiness probe failed: calico/node is not ready: BGP not established with 10.0.0.1"
    ranking = ranked(
        *(
            a_change(node(name), at=after(-40 + i), path=("metadata", "labels", label), old="", new=None, actor=upgrade)
            for i, name in enumerate(NODE_NAMES[:3])
        ),
        BESIDE,
        incident=an_incident(an_alert(after(40), name="KubePodNotReady", namespace="kube-system")),
        load=[*background(), *calls(watcher, "watch", "bgppeers", group="crd.projectcalico.org", rate=1)],
        symptoms=[a_symptom(plugin, "Unhealthy", at=after(-25), message=message, count=9)],
        states=[
            *states(),
            a_workload(plugin, serviceAccountName="calico-node", hostNetwork=True),
            a_state(peers, {"spec": {"nodeSelector": "all()", "peerSelector": f"has({label})"}}),
        ],
    )
    assert first(ranking)[0] == "Node"
    assert ranking.suspects[0].probability > 0.5


@pytest.mark.parametrize(
    ("spec", "labels"),
    [
        ({"nodeSelector": "has(a/b) && zone == 'x' || rack in {'1'} || c not in {'d'}"}, {"a/b", "zone", "rack", "c"}),
        ({"nodeSelector": "all()"}, set()),
        ({"nodeSelector": {"pool": "gpu"}}, {"pool"}),
        ({"a": [{"machineNodeSelector": {"matchLabels": {"pool": "x"}}}]}, {"pool"}),
        ({"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}}, {"pool"}),
        ({"podSelector": {"app": "web"}}, set()),
        ({"nodeSelector": None}, set()),
    ],
)  # fmt: skip
def test_by_which_labels_an_object_chooses_nodes(spec: object, labels: set[str]) -> None:
    assert set(node_labels(spec)) == labels
