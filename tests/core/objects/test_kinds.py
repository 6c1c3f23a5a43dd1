"""Kinds: how each is treated, and what they are called."""

from __future__ import annotations

import pytest

from app.core.model import Object
from app.core.objects import kinds
from app.core.objects.kinds import BUILT_IN, Kinds, Lane, Policy


@pytest.mark.parametrize(
    ("api_group", "kind", "policy", "lane"),
    [
        ("apps", "Deployment", Policy.TOLD, Lane.ROLLOUTS),
        ("", "ServiceAccount", Policy.TIMELINE, Lane.ACCESS),
        ("", "ConfigMap", Policy.TIMELINE, Lane.CONFIG),
        ("", "Pod", Policy.STATE, Lane.ROLLOUTS),
        ("", "Node", Policy.TOLD, Lane.CAPACITY),
        ("coordination.k8s.io", "Lease", Policy.NEVER, Lane.CONFIG),
        ("metrics.k8s.io", "PodMetrics", Policy.NEVER, Lane.CAPACITY),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", Policy.TOLD, Lane.ACCESS),
        ("acme.io", "Widget", Policy.TIMELINE, Lane.CUSTOM),
        ("acme.io", "AccessReview", Policy.NEVER, Lane.CUSTOM),
    ],
)
def test_treatment(api_group: str, kind: str, policy: Policy, lane: Lane) -> None:
    assert kinds.policy(api_group, kind) is policy
    assert kinds.lane(api_group, kind) is lane


@pytest.mark.parametrize(
    ("api_group", "plural", "kind"),
    [
        ("apps", "deployments", "Deployment"),
        ("apps", "deployments/scale", "Deployment"),
        ("networking.k8s.io", "networkpolicies", "NetworkPolicy"),
        ("networking.k8s.io", "ingresses", "Ingress"),
        ("", "endpoints", "Endpoints"),
        ("metrics.k8s.io", "pods", "PodMetrics"),
        ("acme.io", "widgets", "Widget"),
        ("acme.io", "policies", "Policy"),
        ("acme.io", "boxes", "Box"),
        ("acme.io", "glasses", "Glass"),
    ],
)
def test_the_kind_of_a_plural(api_group: str, plural: str, kind: str) -> None:
    assert kinds.kind_of(api_group, plural) == kind


def test_every_built_in_plural_leads_back_to_its_kind() -> None:
    for (api_group, kind), row in BUILT_IN.items():
        assert kinds.kind_of(api_group, row.plural) == kind
        assert kinds.plural_of(api_group, kind) == row.plural


def test_guesses_lead_back_to_the_plural() -> None:
    for plural in ("widgets", "policies", "boxes", "gateways", "classes"):
        assert kinds.plural_guess(kinds.kind_of("acme.io", plural)) == plural


def test_a_crd_teaches_names_and_scope() -> None:
    learnt = Kinds()
    crd: Object = {
        "spec": {"group": "acme.io", "scope": "Cluster", "names": {"kind": "BigIndex", "plural": "bigindices"}}
    }
    learnt.learn(crd)
    assert learnt.kind_of("acme.io", "bigindices/status") == "BigIndex"
    assert not learnt.info("acme.io", "BigIndex").namespaced
    assert learnt.info("acme.io", "BigIndex").plural == "bigindices"
    assert learnt.kind_of("other.io", "bigindices") != "BigIndex"


def test_a_body_teaches_capitals() -> None:
    learnt = Kinds()
    assert learnt.kind_of("acme.io", "bigwidgets") == "Bigwidget"
    learnt.seen("acme.io", "BigWidget")
    assert learnt.kind_of("acme.io", "bigwidgets") == "BigWidget"


@pytest.mark.parametrize("crd", [{}, {"spec": {}}, {"spec": {"names": {"kind": 1}, "group": "x"}}])
def test_a_broken_crd_teaches_nothing(crd: Object) -> None:
    learnt = Kinds()
    learnt.learn(crd)
    assert learnt.kind_of("x", "widgets") == "Widget"


def test_a_kind_that_is_added_makes_changes_and_one_that_is_excluded_none() -> None:
    own = Kinds(add=["leases.coordination.k8s.io", "productreviews.shop.example", "pods"], exclude=["configmaps"])
    assert own.policy("coordination.k8s.io", "Lease") is Policy.TIMELINE
    assert own.policy("shop.example", "ProductReview") is Policy.TIMELINE
    assert own.policy("other.example", "ProductReview") is Policy.NEVER
    assert own.policy("", "Pod") is Policy.STATE
    assert own.policy("", "ConfigMap") is Policy.NEVER
    assert own.policy("apps", "Deployment") is Policy.TOLD
    assert Kinds(add=["secrets"], exclude=["secrets"]).policy("", "Secret") is Policy.NEVER


def test_an_added_kind_is_known_by_the_plural_that_the_api_server_has() -> None:
    own = Kinds(add=["statmetrics.shop.example"])
    assert own.policy("shop.example", "StatMetrics") is Policy.NEVER  # a plural that nobody would guess
    own.serves("shop.example", "StatMetrics", "statmetrics")
    assert own.policy("shop.example", "StatMetrics") is Policy.TIMELINE
