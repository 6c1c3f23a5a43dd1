"""Whether a budget lets pods go."""

from __future__ import annotations

import pytest

from app.core.edges.disruption import lets_some_go
from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.model import Json, Verb
from tests.core.factories import a_change, a_resource, a_state, a_workload

TOP = topology([a_workload(a_resource("Deployment", "web", "shop"))])  # of two pods
BUDGET = a_resource("PodDisruptionBudget", "web", "shop")


def budget(**spec: Json) -> dict[str, Json]:
    return {"spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


@pytest.mark.parametrize(
    ("spec", "some"),
    [
        ({"minAvailable": 1}, True),
        ({"minAvailable": 2}, False),
        ({"minAvailable": "50%"}, True),
        ({"minAvailable": "100%"}, False),
        ({"maxUnavailable": 1}, True),
        ({"maxUnavailable": 0}, False),
        ({"maxUnavailable": "0%"}, False),
        ({"minAvailable": 1, "selector": {"matchLabels": {"app": "unknown"}}}, False),
    ],
)
def test_a_budget_lets_some_go(spec: dict[str, Json], *, some: bool) -> None:
    assert lets_some_go([budget(**spec)], "shop", TOP) is some
    change = a_change(BUDGET, verb=Verb.CREATE)
    states = [a_workload(a_resource("Deployment", "web", "shop")), a_state(BUDGET, budget(**spec))]
    assert reach(change, topology(states))["evictions", "shop"] == (1 if some else 0)
