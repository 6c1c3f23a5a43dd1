"""What a webhook denies is named in what it says, and did not make it say so."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.edges.mechanism import UNLIKELY
from app.core.edges.reach import reach
from app.core.entities import Entity
from app.core.model import Resource
from app.core.ranking.candidates import candidates
from app.core.ranking.explain import explain
from app.core.signals.signal import Signal, SignalKind
from tests.core.factories import a_change, a_resource, a_workload, after

LEDGER = a_resource("Deployment", "ledger", "pay")
DENIED = 'admission webhook "clusterwide-liveness-probes.kubewarden.admission" denied the request: ledger has no probe'
FAILED = 'failed calling webhook "policy.pay": Post "https://ledger.pay.svc:443/": connection refused'


def refused(text: str) -> Signal:
    """Whoever makes pods is refused."""
    about: dict[Entity, float] = {("user", "system:serviceaccount:kube-system:replicaset-controller"): 0.6}
    return Signal(SignalKind.ERROR, after(0), after(5), 1.0, about, "403 on CREATE pods", text=text)


@pytest.mark.parametrize(("text", "left"), [(DENIED, UNLIKELY), (FAILED, 1.0)])
def test_whose_pods_are_denied_is_hardly_why(text: str, left: float) -> None:
    top = topology([a_workload(LEDGER)])
    (rollout,) = candidates([a_change(LEDGER, at=after(-5))], [], [], topology=top, until=after(60))
    match = explain(rollout, refused(text), churn_share=0.0)
    assert match is not None
    assert (match.via, match.possible) == (("named", "ledger"), left)


@pytest.mark.parametrize(
    ("kind", "namespace", "webhook"),
    [
        ("ClusterAdmissionPolicy", None, "clusterwide-liveness-probes"),
        ("ClusterAdmissionPolicyGroup", None, "clusterwide-group-liveness-probes"),
        ("AdmissionPolicy", "pay", "namespaced-pay-liveness-probes"),
        ("AdmissionPolicyGroup", "pay", "namespaced-group-pay-liveness-probes"),
    ],
)
def test_a_policy_of_kubewarden_is_known_by_its_webhook(kind: str, namespace: str | None, webhook: str) -> None:
    policy = Resource("lab", "policies.kubewarden.dev", kind, namespace, "liveness-probes")
    edit = a_change(policy, at=after(-10), path=("spec", "mode"), old="monitor", new="protect")
    assert reach(edit, topology([]))[("named", f"{webhook}.kubewarden.admission")] == 0
