"""Of the pods that a full node evicts, those that used most are why."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.core.entities import NODES
from app.core.model import Resource, Symptom
from app.core.signals.complaints import symptom_signals
from app.core.signals.signal import Signal
from app.core.signals.usage import tolls, without_use
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

LOW = "The node was low on resource: ephemeral-storage. "
NEW = (
    LOW + "Threshold quantity: 10Gi, available: 9Gi. Container {} was using {}, request is 1Mi, has larger consumption"
    " of ephemeral-storage. "
)
OLD = LOW + "Container {} was using {}, which exceeds its request of 1Mi. "
APPS = [a_resource("Deployment", name) for name in ("web", "cart", "logs", "search")]


def evicted(app: Resource, message: str = LOW, *, times: int = 1) -> Symptom:
    return a_symptom(app, "Evicted", at=after(0), message=message, count=times)


def of_all(symptoms: Sequence[Symptom]) -> Signal:
    [signal] = symptom_signals(symptoms, start=after(-120), end=after(30))
    return signal


@pytest.mark.parametrize(
    ("words", "used", "is_of_others"),
    [
        (NEW, ("2Mi", "512Ki", "80Mi", "4Mi"), True),
        (NEW, ("2Mi", "512Ki", "9Gi", "4Mi"), False),
        (OLD, ("2Mi", "512Ki", "80Mi", "4Mi"), False),
    ],
)
def test_what_evicted_pods_did_not_take_is_of_the_nodes(words: str, used: tuple[str, ...], is_of_others: bool) -> None:
    """Without a threshold nobody knows what is next to nothing."""
    told = [evicted(app, words.format("c", amount)) for app, amount in zip(APPS, used, strict=True)]
    assert (NODES in of_all(told).about) is is_of_others


@pytest.mark.parametrize("words", [NEW, OLD])
def test_who_used_most_complains_most(words: str) -> None:
    used = ("2Mi", "1025Ki", "9Gi", "512Ki")
    signal = of_all(
        [evicted(app, words.format(f"{app.name}-c", amount)) for app, amount in zip(APPS, used, strict=True)]
    )
    shares = {home[2]: share for home, share in signal.spread.items()}
    assert shares["logs"] > 0.99
    assert shares["search"] == 0.0
    assert shares["web"] == pytest.approx(1024 * shares["cart"])
    assert signal.facts["took_most"] == "shop/logs"


def test_of_two_the_one_that_used_little_complains_less() -> None:
    told = [evicted(app, NEW.format("c", used)) for app, used in zip(APPS, ("40Mi", "56Gi"), strict=False)]
    strong, weak = symptom_signals(told, start=after(-120), end=after(30))
    assert next(iter(strong.about)) == ("workload", "shop", "cart")
    assert weak.strength == pytest.approx(0.1 * strong.strength)
    alike = symptom_signals([evicted(app) for app in APPS[:2]], start=after(-120), end=after(30))
    assert alike[0].strength == alike[1].strength


def test_where_nobody_says_so_all_count_alike() -> None:
    signal = of_all([evicted(app, times=3 if app.name == "web" else 1) for app in APPS])
    assert {home[2]: share for home, share in signal.spread.items()} == pytest.approx(
        {"web": 0.5, "cart": 1 / 6, "logs": 1 / 6, "search": 1 / 6}
    )


def test_a_node_that_is_full_of_debug_logs() -> None:
    config = a_change(a_resource("ConfigMap", "logs"), at=after(-20), path=("data", "LEVEL"), old="info", new="debug")
    used = ("20Ki", "40Ki", "9Gi", "90Ki")
    ranking = ranked(
        config,
        incident=an_incident(an_alert(after(10), name="KubeNodePressure", node="a")),
        symptoms=[evicted(app, NEW.format("c", amount)) for app, amount in zip(APPS, used, strict=True)],
        states=[a_workload(app, envFrom=[{"configMapRef": {"name": app.name}}]) for app in APPS],
    )
    assert first(ranking) == ("ConfigMap", "logs")
    said = " ".join(evidence.sentence for evidence in ranking.suspects[0].evidence)
    assert "It acts on logs, which used most of what ran out: Evicted ×4" in said


def test_what_several_containers_used_adds_up_and_what_is_no_amount_is_nothing() -> None:
    two = NEW.format("a", "2Mi") + NEW.format("b", "3Mi")
    assert tolls([evicted(APPS[0], two), evicted(APPS[1], NEW.format("a", "much"))]) == [3 * 2**20, 0.0]


def test_how_much_is_no_part_of_what_is_said() -> None:
    assert without_use(NEW.format("a", "2Mi")) == without_use(OLD.format("b", "5Gi")) == LOW
