"""How much a signal is what the alert is about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.core.counted import Calls
from app.core.edges.indexing import topology
from app.core.edges.topology import Topology
from app.core.findings import Scope
from app.core.model import Resource
from app.core.objects.actors import AUTOSCALER
from app.core.ranking.probed import NOT_ANSWERED
from app.core.ranking.relevance import BY_THE_WAY, UNMEASURED, Near, relevance, surroundings, weigh
from app.core.signals.signal import Passed, Signal, SignalKind
from tests.core.factories import a_resource, a_state, a_workload, after, an_alert, an_incident, calls

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


def echoes(served: int = 0) -> list[Signal]:
    """What an autoscaler that finds no metrics looks like in calls and in what counts them."""
    passed = Passed(after(-900).timestamp(), np.full(90, served, float), 1.0) if served else None
    asked = Signal(
        SignalKind.ERROR, after(-20), after(-15), 0.9, {}, "404 on LIST pods", users=(AUTOSCALER,), passed=passed
    )
    retries = {"family": "Retries", "name": "horizontalpodautoscaler"}
    written = {"family": "Requests", "verb": "PATCH", "resource": "events"}
    return [
        load(AUTOSCALER),
        asked,
        Signal(SignalKind.METRIC, after(-20), after(-15), 0.9, {}, "retries rose", facts=retries),
        Signal(SignalKind.METRIC, after(-20), after(-15), 0.9, {}, "PATCH events rose", facts=written),
    ]


def test_an_autoscaler_that_finds_no_metrics_is_hardly_what_an_alert_is_about() -> None:
    assert {relevance(one, Scope(), near=NEAR) for one in echoes()} == {UNMEASURED}
    assert relevance(load("alice"), Scope(), near=NEAR) > 10 * UNMEASURED


def test_it_is_where_metrics_were_served_before_or_the_alert_is_about_them() -> None:
    assert relevance(echoes(served=3)[1], Scope(), near=NEAR) > 10 * UNMEASURED
    about = replace(NEAR, words=frozenset({"metrics"}))
    assert all(relevance(one, Scope(), near=about) > 10 * UNMEASURED for one in echoes())


def test_what_an_alert_says_itself_is_what_it_is_about() -> None:
    asked = replace(
        load("alice"), kind=SignalKind.SYMPTOM, about={("agent", "doors"): 0.7}, facts={"reason": NOT_ANSWERED}
    )
    scope = Scope(namespaces=("shop",), workloads=("shop/web",))
    assert relevance(asked, scope, near=NEAR) == 1.0
    assert relevance(replace(asked, facts={}), scope, near=NEAR) < 0.3


def test_where_the_control_plane_suffers_who_writes_events_matters() -> None:
    written = echoes()[-1]
    assert relevance(written, Scope(control_plane=True), near=NEAR) == 1.0


def test_what_is_new_is_what_an_alert_is_about_where_nothing_else_complains() -> None:
    new, old = ("workload", "shop", "report"), ("workload", "shop", "cart")
    near = replace(NEAR, newborn={new: after(60)})
    told = [
        Signal(SignalKind.SYMPTOM, after(-9), after(-8), 0.9, {home: 1.0}, "", facts={"reason": "Pending"})
        for home in (new, old)
    ]
    scope = Scope(namespaces=("shop",))
    alone = weigh(told[:1], scope, near=near, top=Topology())
    both = weigh(told, scope, near=near, top=Topology())
    assert alone[0][1] > 3 * both[0][1]


def test_that_a_new_autoscaler_knows_no_metrics_is_not_the_alert_though_nothing_else_complains() -> None:
    home = ("object", "HorizontalPodAutoscaler", "shop", "web")
    ill = Signal(
        SignalKind.SYMPTOM, after(-20), after(-15), 0.4, {home: 1.0, ("ns", "shop"): 0.4}, "no metrics", facts={}
    )
    new, scope = replace(NEAR, newborn={home: after(60)}), Scope(namespaces=("shop",))
    [(_, weight)] = weigh([ill], scope, near=new, top=Topology())
    assert weight == pytest.approx(UNMEASURED * ill.strength)
    named = replace(new, said="shop/web has not had its replicas for a while")  # what it scales is meant
    [(_, weight)] = weigh([ill], scope, near=named, top=Topology())
    assert weight == pytest.approx(UNMEASURED * ill.strength)
    about = replace(new, words=frozenset({"autoscaler"}))
    [(_, weight)] = weigh([ill], scope, near=about, top=Topology())
    assert weight > 10 * UNMEASURED * ill.strength


@pytest.mark.parametrize(
    ("kind", "alert", "is_near"),
    [
        ("CacheCluster", "CacheClusterNotReady", True),
        ("CacheCluster", "NotReady", False),
        ("Cluster", "CacheClusterNotReady", False),
    ],
)
def test_an_alert_that_tells_of_a_kind_is_about_who_acts_on_it(kind: str, alert: str, *, is_near: bool) -> None:
    """An operator runs in a namespace of its own; that of its objects is what the alert names."""
    group, user = "memstore.example", "system:serviceaccount:platform:memstore-operator"
    made = Resource(a_resource().cluster, group, kind, "search", "suggestions")
    operator = a_resource("Deployment", "memstore-operator", "platform")
    watched = Calls.of(calls(user, "watch", f"{kind.lower()}s", rate=1, group=group))
    top = topology([a_state(made, {}), a_workload(operator, serviceAccountName="memstore-operator")], watched)
    near = surroundings(an_incident(an_alert(name=alert, namespace="search")), top, new={})
    assert (("platform", "memstore-operator") in near.upstream) is is_near
