"""How much a signal is what the alert is about."""

from __future__ import annotations

import pytest

from app.core.findings import Scope
from app.core.relevance import BY_THE_WAY, Near, relevance
from app.core.signals import Signal, SignalKind
from tests.core.factories import after

CONTROLLER = "system:serviceaccount:kube-system:deployment-controller"
NEAR = Near(upstream={}, words=frozenset(), newborn={}, said="", at=after(0))


def load(user: str) -> Signal:
    """A caller of the API that calls more, of which no alert speaks."""
    return Signal(SignalKind.LOAD, after(-20), after(-15), 0.9, {("user", user): 1.0}, "load", users=(user,))


@pytest.mark.parametrize("scope", [Scope(nodes=("worker-1",)), Scope(namespaces=("shop",))], ids=["nodes", "namespace"])
def test_what_moving_pods_makes_controllers_do_is_by_the_way(scope: Scope) -> None:
    theirs, own = (relevance(load(user), scope, near=NEAR) for user in (CONTROLLER, "alice"))
    assert theirs == pytest.approx(BY_THE_WAY * own)


def test_where_the_alert_says_nothing_it_may_be_what_matters() -> None:
    assert relevance(load(CONTROLLER), Scope(), near=NEAR) == relevance(load("alice"), Scope(), near=NEAR)
