"""What a role, or a binding, lets somebody do that began to be done just then."""

from __future__ import annotations

import pytest

from app.core.findings import Ranking
from app.core.model import CallCount, Change, Json, Object, ObjectState, Verb
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_workload, after, an_alert, an_incident, calls

AGENT = "system:serviceaccount:monitoring:agent"
WORKLOAD = a_resource("Deployment", "agent", "monitoring")
ROLE = a_resource("ClusterRole", "inventory", None)
BINDING = a_resource("ClusterRoleBinding", "agent-inventory", None)
RULES: Json = [{"apiGroups": [""], "resources": ["nodes", "secrets"], "verbs": ["get", "list"]}]
GIVES: Object = {
    "roleRef": {"kind": "ClusterRole", "name": "inventory"},
    "subjects": [{"kind": "ServiceAccount", "namespace": "monitoring", "name": "agent"}],
}


def widened() -> Change:
    return a_change(ROLE, at=after(-12), path=("rules", 0, "resources"), old=["nodes"], new=["nodes", "secrets"])


def bound() -> Change:
    return a_change(BINDING, at=after(-12), path=(), old=None, new=GIVES, verb=Verb.CREATE)


def found(change: Change, load: list[CallCount]) -> Ranking:
    """A harmless release of the very program comes nearly as close before."""
    states: list[ObjectState] = [
        a_workload(WORKLOAD, serviceAccountName="agent"),
        a_state(ROLE, {"rules": RULES}),
        a_state(BINDING, GIVES),
    ]
    return ranked(
        change,
        a_change(WORKLOAD, at=after(-45)),
        incident=an_incident(an_alert(after(20), name="KubeAPIErrorBudgetBurn")),
        load=[*background(), *load],
        states=states,
    )


@pytest.mark.parametrize("change", [widened(), bound()], ids=["role", "binding"])
def test_what_it_may_since_then_and_does_since_then_leads_to_that(change: Change) -> None:
    refused = calls(AGENT, "list", "secrets", rate=1, end=-10, code=403, error="forbidden")
    ranking = found(change, [*refused, *calls(AGENT, "list", "secrets", rate=60, start=-10)])
    assert first(ranking)[1] == change.resource.name
    said = [one.sentence for one in ranking.suspects[0].evidence]
    assert any(one.startswith("It allowed this caller what it began then: agent went from") for one in said)
    assert "It only allows more than before." not in said


def is_believed(ranking: Ranking) -> bool:
    """Whether a change that only allows more is no longer the lesser suspect for that."""
    (of_rights,) = [
        one for one in ranking.suspects if one.change.resource.kind in ("ClusterRole", "ClusterRoleBinding")
    ]
    return all(one.sentence != "It only allows more than before." for one in of_rights.evidence)


def test_what_it_did_before_was_not_begun_by_that() -> None:
    usual = calls(AGENT, "list", "secrets", rate=2, end=-10)
    assert not is_believed(found(widened(), [*usual, *calls(AGENT, "list", "secrets", rate=60, start=-10)]))


def test_what_it_still_may_not_was_not_begun_by_that() -> None:
    usual = calls(AGENT, "get", "pods", rate=2)
    assert not is_believed(found(widened(), [*usual, *calls(AGENT, "list", "configmaps", rate=60, start=-10)]))


def test_a_program_that_is_new_did_not_wait_for_a_right() -> None:
    assert not is_believed(found(bound(), calls(AGENT, "list", "secrets", rate=60, start=-10)))
