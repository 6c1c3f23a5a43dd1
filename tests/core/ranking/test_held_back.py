"""A drain that waits for a budget: what is not ready behind it began that, not the drain, nor a budget of others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import Actor, ActorSource, Change, Json, ObjectState, Symptom
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

REPLACER = "system:serviceaccount:platform:node-replacer"
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
CART, NODE = a_resource("Deployment", "cart", "shop"), a_resource("Node", "node-3", None)
RELEASE = a_change(CART, at=after(-25))
CORDON = replace(
    a_change(NODE, at=after(-1), path=("spec", "unschedulable"), old=None, new=True),
    actor=Actor(REPLACER, ActorSource.AUDIT),
)
OTHERS = a_change(
    replace(a_resource("PodDisruptionBudget", "web", "shop"), api_group="policy"),
    at=after(-15),
    path=("spec", "maxUnavailable"),
    old=2,
    new=1,
)


def a_budget(name: str, app: str) -> ObjectState:
    budget = replace(a_resource("PodDisruptionBudget", name, "shop"), api_group="policy")
    selector: Json = {"matchLabels": {"app": app}}
    return a_state(budget, {"metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": selector}})


def drained(*changes: Change, unready: float = -20, behind: str = "cart", more: Sequence[Symptom] = ()) -> Ranking:
    """A program is refused all evictions, while pods of the cart are not ready."""
    refused = calls(REPLACER, "create", "pods/eviction", rate=2, start=0, code=429, error=REFUSED, namespace="shop")
    return ranked(
        *changes,
        OTHERS,
        incident=an_incident(an_alert(after(20), name="NodeDrainStuck")),
        load=[*background(), *refused],
        states=[
            a_workload(CART),
            a_workload(a_resource("Deployment", "web", "shop")),
            a_budget("cart", behind),
            a_budget("web", "web"),
            a_state(NODE, {"spec": {}}),
        ],
        symptoms=[*(a_symptom(CART, "Unhealthy", at=after(unready + 2 * n)) for n in range(20)), *more],
    )


def said(ranking: Ranking) -> str:
    return " ".join(one.sentence for suspect in ranking.suspects for one in suspect.evidence)


def test_what_is_not_ready_behind_a_budget_leads_to_what_made_it_so() -> None:
    ranking = drained(RELEASE, CORDON)
    assert first(ranking) == ("Deployment", "cart")
    assert "while pods of cart were not ready" in said(ranking)


def test_that_they_complain_of_something_else_later_takes_nothing_back() -> None:
    crash = [a_symptom(CART, "CrashLoopBackOff", at=after(5 + 2 * n)) for n in range(5)]
    assert "while pods of cart were not ready" in said(drained(RELEASE, more=crash))


@pytest.mark.parametrize(("unready", "behind"), [(4, "cart"), (-20, "web")], ids=["later", "no budget"])
def test_what_became_unready_later_or_has_no_budget_held_nothing_back(unready: float, behind: str) -> None:
    ranking = drained(RELEASE, CORDON, unready=unready, behind=behind)
    assert "were not ready" not in said(ranking)
    assert first(ranking) == ("PodDisruptionBudget", "web")
