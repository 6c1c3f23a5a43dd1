"""Who stands behind a Service that selects, beside others, a label that no template has: an operator sets it."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from tests.core.factories import a_resource, a_state, a_workload

LEDGER, CACHE = a_resource("StatefulSet", "ledger", "pay"), a_resource("Deployment", "cache", "pay")


@pytest.mark.parametrize(
    ("selector", "served"),
    [
        ({"app": "ledger", "role": "primary"}, {"ledger"}),
        ({"app": "ledger", "tier": "db", "role": "primary"}, {"ledger"}),
        ({"app": "ledger", "tier": "web", "role": "primary"}, set()),
        ({"app": "basket", "role": "primary"}, set()),
        ({"role": "primary"}, set()),
        ({}, set()),
    ],
    ids=["a role", "a role beside two", "another tier", "another app", "only a role", "nothing"],
)
def test_a_service_of_a_primary_is_answered_by_the_workload_that_the_other_labels_fit(
    selector: dict[str, str], served: set[str]
) -> None:
    states = [
        a_workload(LEDGER, labels={"app": "ledger", "tier": "db"}),
        a_workload(CACHE, labels={"app": "cache", "tier": "web"}),
        a_workload(a_resource("StatefulSet", "ledger", "loans"), labels={"app": "ledger", "tier": "db"}),
        a_state(a_resource("Service", "primary", "pay"), {"spec": {"selector": {**selector}}}),
    ]
    fronts = topology(states).fronts
    assert {name for namespace, name in fronts if namespace == "pay"} == served
    assert ("loans", "ledger") not in fronts


def test_where_some_template_has_the_role_only_that_workload_is_behind() -> None:
    roles = ("primary", "replica")
    states = [
        *(a_workload(a_resource("StatefulSet", role, "pay"), labels={"app": "ledger", "role": role}) for role in roles),
        a_state(a_resource("Service", "ledger", "pay"), {"spec": {"selector": {"app": "ledger", "role": "primary"}}}),
    ]
    assert set(topology(states).fronts) == {("pay", "primary")}
