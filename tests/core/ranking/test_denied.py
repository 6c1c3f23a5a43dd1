"""What is denied is named in what is said of it, and did not make anybody say so."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.edges.mechanism import UNLIKELY
from app.core.edges.reach import reach
from app.core.entities import Entity
from app.core.model import Resource, Verb
from app.core.ranking.candidates import candidates
from app.core.ranking.explain import UNQUOTED, explain, less_unquoted
from app.core.signals.complaints import symptom_signals
from app.core.signals.signal import Signal, SignalKind
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after

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


@pytest.mark.parametrize(
    ("told", "verb", "kept"),
    [
        ("failed quota: compute: must specify requests.cpu", Verb.CREATE, UNQUOTED),
        ("failed quota: compute: must specify requests.cpu", Verb.UPDATE, 1.0),
        ("exceeded quota: compute, requested: requests.cpu=2, used: requests.cpu=7", Verb.CREATE, 1.0),
    ],
)
def test_who_states_nothing_is_less_to_blame_than_the_quota_that_asks_for_it_from_now_on(
    told: str, verb: Verb, kept: float
) -> None:
    job = a_resource("Job", "reconcile", "pay")
    quota = a_change(a_resource("ResourceQuota", "compute", "pay"), at=after(-15), path=("spec", "hard"), verb=verb)
    made = a_change(job, at=after(-1), path=(), old=None, new={"kind": "Job"}, verb=Verb.CREATE)
    found = candidates([quota, made], [], [], topology=topology([a_workload(job)]), until=after(60))
    (signal,) = symptom_signals(
        [a_symptom(job, "FailedCreate", at=after(0), message=f'pods "reconcile-1" is forbidden: {told}')],
        start=after(-300),
        end=after(60),
    )
    matches = [explain(one, signal, churn_share=0.0) for one in found]
    before = [(one,) for one in matches if one is not None]
    assert len(before) == 2
    of_quota, of_job = less_unquoted(found, before)
    assert of_quota[0].score == before[0][0].score
    assert of_job[0].score == kept * before[1][0].score
