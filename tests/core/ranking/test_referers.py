"""What refers to an object complains for it: scalers, canaries and stores of secrets say what is wrong elsewhere."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.model import Json, SymptomSource
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

WEB = a_resource("Deployment", "checkout-web", "checkout")
BESIDE = a_resource("Deployment", "basket", "checkout")
BEFORE = a_change(BESIDE, at=after(-18), path=("spec", "template", "spec", "priorityClassName"), old=None, new="low")
"""A rollout of another workload of the namespace, just before it began."""


def test_an_autoscaler_that_finds_no_requests_complains_of_what_it_scales() -> None:
    hpa = a_resource("HorizontalPodAutoscaler", "web-scaling", "checkout")
    message = "failed to get cpu utilization: missing request for cpu in container web of Pod checkout-web-5d8f7b9c4-x"
    requests = ("spec", "template", "spec", "containers", (("name", "web"),), "resources", "requests")
    ranking = ranked(
        BEFORE,
        a_change(WEB, at=after(-30), path=requests, old={"cpu": "1"}, new=None),
        incident=an_incident(an_alert(after(40), name="KubeHpaMetricsMissing", namespace="checkout")),
        symptoms=[a_symptom(hpa, "FailedGetResourceMetric", at=after(-15), message=message, count=4)],
        states=[
            a_workload(WEB),
            a_workload(BESIDE),
            a_state(hpa, {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "checkout-web"}}}),
        ],
    )
    assert first(ranking) == ("Deployment", "checkout-web")


def test_a_canary_that_is_not_promoted_complains_of_what_it_rolls_out() -> None:
    canary = replace(a_resource("Canary", "front", "checkout"), api_group="flagger.app")
    told = a_symptom(canary, "Failed", at=after(-12), message="Canary analysis failed, routing traffic back")
    ranking = ranked(
        BEFORE,
        a_change(WEB, at=after(-60), path=("spec", "template", "spec", "terminationGracePeriodSeconds"), old=30, new=5),
        incident=an_incident(an_alert(after(40), name="CanaryFailed", namespace="checkout")),
        symptoms=[replace(told, source=SymptomSource.CONDITION)],
        states=[
            a_workload(WEB),
            a_workload(BESIDE),
            a_state(canary, {"spec": {"targetRef": {"kind": "Deployment", "name": "checkout-web"}}}),
        ],
    )
    assert first(ranking) == ("Deployment", "checkout-web")


def test_a_store_of_secrets_complains_of_the_secret_by_which_it_logs_in() -> None:
    secret = a_resource("Secret", "vault-token", "platform")
    store = replace(a_resource("SecretStore", "vault", "platform"), api_group="external-secrets.io")
    told = a_symptom(store, "InvalidProviderConfig", at=after(-12), message="unable to log in: 403 permission denied")
    ranking = ranked(
        replace(BEFORE, resource=a_resource("Deployment", "basket", "platform")),
        a_change(secret, at=after(-40), path=("data", "token"), old="sha256:1", new="sha256:2"),
        incident=an_incident(an_alert(after(40), name="SecretStoreNotReady", namespace="platform")),
        symptoms=[replace(told, source=SymptomSource.CONDITION)],
        states=[
            a_state(store, {"spec": {"provider": {"vault": {"auth": {"tokenSecretRef": {"name": "vault-token"}}}}}})
        ],
    )
    assert first(ranking) == ("Secret", "vault-token")


@pytest.mark.parametrize(
    ("external", "leads"),
    [
        ({"secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"}, "target": {"name": "db-login"}}, True),
        ({"secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"}}, False),
        ({"secretStoreRef": {"kind": "ClusterSecretStore", "name": "other"}, "target": {"name": "db-login"}}, False),
        ({"secretStoreRef": {"kind": "SecretStore", "name": "vault"}, "target": {"name": "db-login"}}, False),
    ],
    ids=["of the Secret that is read", "of a Secret of its own name", "from another store", "from one beside it"],
)
def test_a_store_of_secrets_leads_to_who_reads_what_is_fetched_from_it(external: Json, leads: bool) -> None:
    group = "external-secrets.io"
    store = replace(a_resource("ClusterSecretStore", "vault", None), api_group=group)
    read: Json = [{"name": "web", "envFrom": [{"secretRef": {"name": "db-login"}}]}]
    top = topology(
        [
            a_state(store, {"spec": {"provider": {"vault": {"path": "kv"}}}}),
            a_state(replace(a_resource("ExternalSecret", "database", "checkout"), api_group=group), {"spec": external}),
            a_workload(WEB, containers=read),
        ]
    )
    path = ("spec", "provider", "vault", "auth", "kubernetes", "role")
    reached = reach(a_change(store, at=after(-4_000), path=path, old="shop", new="shop-ro"), top)
    assert (("workload", "checkout", "checkout-web") in reached) is leads


def test_a_certificate_complains_of_who_issues_it_for_the_whole_cluster() -> None:
    issuer = replace(a_resource("ClusterIssuer", "letsencrypt", None), api_group="cert-manager.io")
    certificate = replace(a_resource("Certificate", "shop-tls", "checkout"), api_group="cert-manager.io")
    told = a_symptom(certificate, "Pending", at=after(-12), message="Issuing certificate as Secret does not exist")
    ranking = ranked(
        BEFORE,
        a_change(issuer, at=after(-60), path=("spec", "acme", "server"), old="https://a", new="https://b"),
        incident=an_incident(an_alert(after(40), name="CertificateNotReady", namespace="checkout")),
        symptoms=[replace(told, source=SymptomSource.CONDITION)],
        states=[
            a_workload(BESIDE),
            a_state(certificate, {"spec": {"issuerRef": {"kind": "ClusterIssuer", "name": "letsencrypt"}}}),
        ],
    )
    assert first(ranking) == ("ClusterIssuer", "letsencrypt")
