"""Who calls nothing in common, and serves worse at once, has the same ground to stand on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.edges.indexing import topology
from app.core.edges.served import FAILS, SLOW
from app.core.entities import workload
from app.core.model import Json, ObjectState
from app.core.signals.common_ground import with_common_ground
from app.core.signals.signal import Signal, SignalKind
from tests.core.factories import a_resource, a_state, a_workload, after

SHOP, PAGE, WALLETS = (a_resource("Deployment", *of) for of in (("shop", "a"), ("page", "a"), ("wallets", "b")))


def told(*, at: tuple[float, float, float] = (0, 1, 2), reason: str = SLOW) -> list[Signal]:
    """What is measured of the three, each so many seconds after noon."""
    return [
        Signal(
            kind=SignalKind.SYMPTOM,
            low=after(begun),
            high=after(begun + 1),
            strength=0.5 + number / 10,
            about={workload(of.namespace, of.name): 1.0, ("ns", of.namespace or ""): 0.4},
            sentence=f"{of.name} is slow to answer",
            text="is slow",
            facts={"reason": reason, "chronic": "False", "refused": ""},
        )
        for number, (of, begun) in enumerate(zip((SHOP, PAGE, WALLETS), at, strict=True))
    ]


def calling(*of: tuple[str, str]) -> list[ObjectState]:
    """The three and what they stand on; of each pair the first is told the address of the second."""
    states = []
    for one in (SHOP, PAGE, WALLETS):
        env: Json = [{"name": f"{to.upper()}_URL", "value": where(to)} for who, to in of if who == one.name]
        states.append(a_workload(one, labels={"app": one.name}, containers=[{"name": "a", "env": env}]))
        states.append(
            a_state(a_resource("Service", one.name, one.namespace), {"spec": {"selector": {"app": one.name}}})
        )
    store = a_resource("StatefulSet", "store", "c")
    states.append(a_workload(store, labels={"app": "store"}, containers=[{"name": "a"}]))
    return [*states, a_state(a_resource("Service", "store", "c"), {"spec": {"selector": {"app": "store"}}})]


def where(name: str) -> str:
    places = {"shop": "a", "page": "a", "wallets": "b", "store": "c"}
    return f"http://{name}.{places[name]}:8080" if name in places else f"https://api.{name}.example"


def added(signals: list[Signal], *calls: tuple[str, str]) -> list[Signal]:
    return with_common_ground(signals, topology(calling(*calls)))[len(signals) :]


def test_of_those_that_call_nothing_in_common_there_is_one_signal_more() -> None:
    (signal,) = added(told(), ("page", "shop"))
    assert signal.low == after(0)
    assert signal.strength == pytest.approx(0.7)
    assert set(signal.spread) == {("workload", "a", "shop"), ("workload", "a", "page"), ("workload", "b", "wallets")}
    assert signal.sentence == "shop and 2 others in several namespaces serve worse at once"


@pytest.mark.parametrize(
    "calls",
    [
        (("wallets", "shop"), ("page", "shop")),
        (("wallets", "store"), ("shop", "store"), ("page", "store")),
        (("wallets", "bank"), ("shop", "bank"), ("page", "bank")),
    ],
)
def test_of_those_that_call_each_other_or_the_same_there_is_none(calls: tuple[tuple[str, str], ...]) -> None:
    assert added(told(), *calls) == []


def test_of_few_or_of_one_namespace_or_hours_apart_there_is_none() -> None:
    assert added(told()[:1] + told()[2:]) == []
    assert added(told(at=(0, 1, 3600))) == []
    assert added([replace(one, facts={**one.facts, "reason": "Unhealthy"}) for one in told()]) == []
    here = [
        replace(one, about={("workload", "a", entity[2]): 1.0 for entity in one.about if entity[0] == "workload"})
        for one in told()
    ]
    assert added(here) == []
    assert len(added(told(reason=FAILS))) == 1
