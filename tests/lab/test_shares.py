"""Which part of an app's requests each of its containers gets where its clients keep to the one that they have."""

from __future__ import annotations

from dataclasses import replace

from tests.lab.apps import App, Problem
from tests.lab.test_traffic import Town


def test_a_container_gets_its_weight_of_what_comes_and_callers_meet_it_as_often() -> None:
    town, weights = Town(), {"cart-0": 3.0, "cart-1": 1.0, "cart-2": 0.0}

    like = App(
        "",
        asked=lambda: 40.0,
        weight=lambda container: weights[container.pod["metadata"]["name"]],
        failing=lambda container: 0.5 if container.pod["metadata"]["name"] == "cart-0" else 0.0,
    )
    town.app("shop", "cart", like, replicas=3)
    town.app("shop", "checkout", App("", asked=lambda: 60.0, upstreams=(("shop", "cart"),)))
    town.go_on()
    assert 500 < town.total("cart-0") < 700
    assert 140 < town.total("cart-1") < 260
    assert town.total("cart-2") == 0
    assert 0.2 < town.failed("checkout") < 0.33  # 0.7 of three quarters of a half


def test_where_nobody_has_a_weight_all_get_the_same() -> None:
    town = Town()
    town.app("shop", "cart", App("", asked=lambda: 40.0, weight=lambda _: 0.0))
    town.go_on()
    assert 300 < town.total("cart-0") < 500
    assert 300 < town.total("cart-1") < 500


def test_who_has_only_asked_to_be_sent_nothing_more_answers_what_still_comes() -> None:
    town = Town()
    town.app("shop", "cart", App("", asked=lambda: 40.0))
    for pod, answers in (("cart-0", True), ("cart-1", False)):
        problem = Problem("unready", "probe failed: HTTP probe failed with statuscode: 503", answers=answers)
        town.running[pod] = replace(town.running[pod], problem=problem)
    town.go_on()
    assert town.failed("cart") > 0.4
    assert town.total("cart-0", "503") == 0
    assert town.total("cart-1", "503") == town.total("cart-1")


def test_where_nobody_listens_calls_are_refused_and_the_app_counts_none() -> None:
    town = Town()
    town.app("shop", "cart", App("", asked=lambda: 40.0, deaf=lambda one: one.pod["metadata"]["name"] in shut))
    town.app("shop", "checkout", App("", asked=lambda: 60.0, upstreams=(("shop", "cart"),)))
    town.app("ingress-nginx", "ingress-nginx")
    town.ingress("shop", "shop", "cart")
    shut = {"cart-0"}
    town.go_on()
    assert town.total("cart-0") == 0
    assert town.total("cart-1") > 500  # as the Ingresses' controller tries another one
    assert 0.25 < town.failed("checkout") < 0.45
    shut.add("cart-1")
    town.go_on()
    assert town.traffic.of_ingress("shop", "shop", 10).failed == 1
    assert 0.6 < town.traffic.of_app("shop", "checkout", 10).failed < 0.8
