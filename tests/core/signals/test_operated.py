"""What a custom resource complains of is about the program that acts on it."""

from __future__ import annotations

from app.core.edges.indexing import topology
from app.core.model import Json, Resource
from app.core.signals.complaints import symptom_signals
from app.core.signals.operated import with_operators
from tests.core.factories import a_resource, a_state, a_symptom, a_workload, after

USER = "system:serviceaccount:keda:keda-operator"


def about(group: str, kind: str) -> set[str]:
    """The users that a complaint is about, of an object of this kind."""
    scaler = Resource("lab", group, kind, "shop", "basket")
    role: Json = {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["watch"]}
    subject: Json = {"kind": "ServiceAccount", "name": "keda-operator", "namespace": "keda"}
    states = [
        a_state(scaler, {"spec": {"minReplicaCount": 1}}),
        a_workload(a_resource("Deployment", "keda-operator", "keda"), serviceAccountName="keda-operator"),
        a_state(a_resource("ClusterRole", "keda-operator", None), {"rules": [role]}),
        a_state(
            a_resource("ClusterRoleBinding", "keda-operator", None),
            {"subjects": [subject], "roleRef": {"kind": "ClusterRole", "name": "keda-operator"}},
        ),
    ]
    complaint = a_symptom(scaler, "KEDAScalerFailed", at=after(0), message="no org id", count=9)
    [signal] = with_operators(symptom_signals([complaint], start=after(-60), end=after(60)), topology(states))
    return {entity[1] for entity in signal.about if entity[0] == "user"}


def test_a_custom_resource_is_told_of_by_who_acts_on_it() -> None:
    assert about("keda.sh", "ScaledObject") == {USER}


def test_what_kubernetes_itself_acts_on_is_nobodys() -> None:
    assert about("", "ConfigMap") == set()
