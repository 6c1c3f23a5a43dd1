"""Signals that a candidate has nothing in common with are left out unseen: no match may be lost by that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.entities import Entity
from app.core.ranking.candidates import Candidate
from app.core.ranking.explain import explain
from app.core.ranking.shared import shared
from app.core.signals.signal import Signal, SignalKind
from tests.core.factories import NOON, a_change, a_resource, after

ENTITIES: tuple[Entity, ...] = (
    ("workload", "shop", "checkout"),
    ("calls", "shop", "checkout"),
    ("shares", "shop", "checkout"),
    ("user", "system:serviceaccount:shop:robot"),
    ("user", "group:system:serviceaccounts:shop"),
    ("api", "apps", "deployments", "list"),
    ("api", "apps", "deployments", "*"),
    ("access", "alice", "", "secrets", "*"),
    ("access", "alice", "", "secrets", "get"),
    ("asked", "validating", "apps", "deployments", "update"),
    ("asked", "validating", "*", "*", "update"),
    ("pods", "shop"),
    ("pods", "*"),
    ("ns", "shop"),
    ("named", "payments-cache"),
    ("named", "ledger-proxy"),
)
SAYS = ("", "connection refused", "no endpoints for payments-cache", 'User "ledger-proxy" is too slow: timeout')
FACTS: tuple[dict[str, str], ...] = ({}, {"reason": "Unhealthy"}, {"reason": "Pending"}, {"family": "Queue depth"})
about = st.dictionaries(st.sampled_from(ENTITIES), st.sampled_from((0.3, 1.0)), max_size=3)


def candidate(reach: dict[Entity, float], pods: int, added: int) -> Candidate:
    return Candidate(
        change=a_change(a_resource("Deployment", "web"), at=after(-30)),
        reach=reach,
        rollout=None,
        derived=(),
        pods=pods,
        added=added,
        empties="",
        stops=False,
        crowds="",
        alike=0,
        earlier=0,
        routine=0,
        inert=False,
        cosmetic=False,
    )


candidates = st.builds(candidate, about, st.sampled_from((0, 3)), st.sampled_from((0, 3)))
signals = st.builds(
    Signal,
    kind=st.sampled_from(SignalKind),
    low=st.just(NOON),
    high=st.just(NOON + timedelta(seconds=5)),
    strength=st.just(1.0),
    about=about,
    sentence=st.just("it hurts"),
    spread=about,
    text=st.sampled_from(SAYS),
    users=st.sampled_from(((), ("system:kube-scheduler",))),
    facts=st.sampled_from(FACTS),
)


@given(st.lists(candidates, max_size=4), st.lists(signals, max_size=4))
def test_what_is_left_out_explains_nothing(found: list[Candidate], told: list[Signal]) -> None:
    for one, kept in zip(found, shared(found, told), strict=True):
        for signal in told:
            churned = 0.5 if one.pods or one.added else 0.0
            if explain(one, signal, churn_share=churned) is not None:
                assert any(signal is other for other in kept)


def ill(kind: SignalKind = SignalKind.SYMPTOM, *about: Entity, spread: tuple[Entity, ...] = (), **how: Any) -> Signal:
    every, each = dict.fromkeys(about, 1.0), dict.fromkeys(spread, 0.5)
    return Signal(kind, NOON, NOON, 1.0, every, "it hurts", spread=each, **how)


CHECKOUT: Entity = ("workload", "shop", "checkout")
UNREADY = {"reason": "Unready"}


@pytest.mark.parametrize(
    ("reached", "signal"),
    [
        (CHECKOUT, ill(SignalKind.LOAD, CHECKOUT)),
        (("calls", "shop", "checkout"), ill(SignalKind.SYMPTOM, CHECKOUT, facts=UNREADY)),
        (("shares", "shop", "checkout"), ill(SignalKind.SYMPTOM, CHECKOUT, facts=UNREADY, text="timeout")),
        (("api", "apps", "deployments", "*"), ill(SignalKind.LOAD, ("api", "apps", "deployments", "list"))),
        (ENTITIES[4], ill(SignalKind.LOAD, ENTITIES[3])),
        (("asked", "validating", "*", "*", "update"), ill(SignalKind.METRIC, spread=(ENTITIES[9],))),
        (("pods", "shop"), ill(spread=(CHECKOUT,))),
        (("pods", "*"), ill(spread=(CHECKOUT,))),
        (("pods", "*"), ill(spread=(("ns", "shop"),))),
        (("named", "payments-cache"), ill(text="no endpoints for payments-cache")),
    ],
)
def test_what_explains_a_signal_has_it_in_common(reached: Entity, signal: Signal) -> None:
    change = candidate({reached: 0.3}, 0, 0)
    assert explain(change, signal, churn_share=0.0) is not None
    assert shared([change], [signal]) == [[signal]]


def test_only_what_has_something_in_common_is_kept_in_order() -> None:
    web, dns = (candidate({("workload", "shop", name): 0.0}, 0, 0) for name in ("web", "dns"))
    ill = [
        Signal(SignalKind.LOAD, NOON, NOON, 1.0, {("workload", "shop", name): 1.0}, name)
        for name in ("dns", "web", "other", "dns")
    ]
    assert [[signal.sentence for signal in kept] for kept in shared([web, dns], ill)] == [["web"], ["dns", "dns"]]
