"""Where far more is asked of a server as it begins to fail, who asks is looked for, and not only what it was told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.edges.served import ASKED
from app.core.findings import Ranking
from app.core.model import Change, MetricSeries, Verb
from app.core.ranking.overrun import told_by
from tests.core.company import first, ranked
from tests.core.edges.test_burdens import told
from tests.core.factories import a_change, a_resource, after, an_alert, an_incident
from tests.core.signals.test_series import START, STEP
from tests.core.signals.test_serving import PER_BIN, counted, found


def load(times: float) -> list[MetricSeries]:
    """Requests of which some fail from bin 40 on, as so many times as many come."""
    return [
        counted(PER_BIN * times * 0.6, since=40, before=PER_BIN, code="200"),
        counted(PER_BIN * times * 0.4, since=40, code="503"),
    ]


@pytest.mark.parametrize(("times", "said"), [(3.5, "3.5"), (2, ""), (1, "")])
def test_a_failure_says_how_many_times_as_many_came(times: float, said: str) -> None:
    (signal,) = found(*load(times))
    assert signal.facts.get(ASKED, "") == said
    told = "requests to orders fail (503): 40 % of them, 0 % before"
    assert signal.sentence == (f"{told}, as {said} times as many came" if said else told)


STATES = [*told("collector", "usage", "http://orders.shop.svc"), *told("orders", "shop", "-")]
COLLECTOR, ORDERS = a_resource("Deployment", "collector", "usage"), a_resource("Deployment", "orders")


@pytest.mark.parametrize(
    ("change", "asks"),
    [
        (a_change(COLLECTOR), True),
        (a_change(COLLECTOR, path=(), old=None, new={}, verb=Verb.CREATE), True),
        (a_change(COLLECTOR, path=("metadata", "labels", "team")), False),
        (a_change(COLLECTOR, path=(), old={}, new=None, verb=Verb.DELETE), False),
    ],
    ids=["image", "new", "label", "gone"],
)
def test_whoever_is_new_may_ask_more(change: Change, asks: bool) -> None:
    assert (("asks", "shop", "orders") in reach(change, topology(STATES))) is asks


def ranked_by(times: float) -> Ranking:
    """A client is rolled out, and shortly before what it calls, to which so many times as many requests come then."""
    begins = -240 + 40 * STEP
    late = after(-240).timestamp() - START
    series = [replace(one, times=tuple(time + late for time in one.times)) for one in load(times)]
    return ranked(
        a_change(COLLECTOR, at=after(begins - 2), old="c:1", new="c:2"),
        a_change(ORDERS, at=after(begins - 20)),
        incident=an_incident(an_alert(after(begins + 20), name="HighErrorRate", namespace="shop", service="orders")),
        series=series,
        states=STATES,
    )


@pytest.mark.parametrize(("times", "leads"), [(4, "collector"), (1, "orders")])
def test_a_clients_rollout_leads_where_more_is_asked(times: float, leads: str) -> None:
    ranking = ranked_by(times)
    assert first(ranking) == ("Deployment", leads)
    if leads == "collector":
        assert any(one.sentence.startswith("What it changes calls orders: ") for one in ranking.suspects[0].evidence)


def test_that_far_more_came_speaks_against_what_brings_nobody_to_ask_more() -> None:
    def told(times: float, name: str) -> list[tuple[float, str]]:
        (suspect,) = (one for one in ranked_by(times).suspects if one.change.resource.name == name)
        return [(one.weight, one.sentence) for one in suspect.evidence if one.rule == "overrun"]

    said = "4.0 times as many requests came then, and nothing known leads from it to who sends them."
    assert told(4, "orders") == [(-1.0, said)]
    assert told(1, "orders") == told(4, "collector") == []


@pytest.mark.parametrize(
    ("message", "times"),
    [
        ("requests of shop.example are 12 times the usual", 12),
        ("p95 of web is 8.4s; 5,200 requests/s at the ingress (580 an hour ago)", 5200 / 580),
        ("web: 41000 requests/s from 310000 addresses (usually 1900/s), over all paths", 41000 / 1900),
        ("requests/s to shop.example 11x above the same hour of last week", 11),
        ("errors are 12 times the usual", 1),
        ("requests fail 12 times the usual", 1),
        ("12 of 40 requests failed (usually 3)", 1),
        ("46% of requests are answered with 401 (usually 2%)", 1),
        ("requests were tried 3 times", 1),
        ("0 requests/s (usually 0)", 1),
    ],
)
def test_an_alert_may_say_by_how_much_more_is_asked(message: str, times: float) -> None:
    assert told_by(an_incident(an_alert(after(20), message=message))) == pytest.approx(times)


def test_what_says_how_often_is_tried_again_brings_more_requests() -> None:
    policy = a_resource("BackendTrafficPolicy", "orders", "shop")

    def overrun(*path: str) -> list[float]:
        ranking = ranked(
            a_change(policy, at=after(-20), path=("spec", *path), old=1, new=10),
            incident=an_incident(
                an_alert(after(20), message="requests are 12 times the usual", namespace="shop", service="orders")
            ),
            states=STATES,
        )
        (suspect,) = (one for one in ranking.suspects if one.change.resource == policy)
        return [one.weight for one in suspect.evidence if one.rule == "overrun"]

    assert overrun("retry", "numRetries") == []
    assert overrun("timeout", "tcp") == [-1.0]
