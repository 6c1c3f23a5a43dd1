"""What the laboratory's mesh does to load, to pods of Jobs, and to who comes to an app past its proxy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lab.apps import App, Problem, is_done
from tests.lab.families.meshes import too_late, tries
from tests.lab.test_traffic import with_ingress


@pytest.mark.parametrize(
    ("timeout", "retries", "times"),
    [
        pytest.param(0.8, 2, 1.0, id="hardly any answer is late"),
        pytest.param(0.8, 8, 1.0, id="nor are there more calls because there may be"),
        pytest.param(0.15, 0, 1.0, id="late answers alone make no load"),
        pytest.param(0.15, 5, 5.0, id="late answers that are asked for again do, until all are late"),
    ],
)
def test_retries_make_load_where_answers_are_late(timeout: float, retries: int, times: float) -> None:
    load = 150.0
    for _ in range(40):
        load = 150.0 * tries(too_late(load, 300, 0.06, timeout), retries)
    assert load == pytest.approx(150.0 * times, rel=0.2)


@pytest.mark.parametrize(
    ("app", "seconds", "done"),
    [
        pytest.param(App("", ends_after=2), 3, True, id="the work of a Job"),
        pytest.param(App("", ends_after=2), 1, False, id="that goes on"),
        pytest.param(App(""), 900, False, id="a sidecar"),
        pytest.param(None, 900, False, id="of which nothing is known"),
    ],
)
def test_what_ends_by_itself(app: App | None, seconds: float, *, done: bool) -> None:
    assert is_done(app, seconds) is done


def test_past_a_proxy_that_is_not_well_nobody_gets_to_its_app() -> None:
    town = with_ingress()
    shut = Problem("unready", "probe failed")
    town.running["frontend-0"] = replace(town.running["frontend-0"], problem=shut, is_beside=True)
    town.go_on()
    by_door = town.traffic.of_ingress("shop", "public", 20).answers
    assert by_door["502"] == 0
    assert town.total("frontend-0") == 0
    town.running["frontend-1"] = replace(town.running["frontend-1"], problem=shut, is_beside=True)
    town.go_on()
    assert town.traffic.of_ingress("shop", "public", 19).answers.keys() == {"502"}
    assert town.traffic.of_app("shop", "frontend", 19).answers.total() == 0


def test_an_answer_that_is_too_large_is_counted_as_given_and_by_the_proxy_as_failed() -> None:
    town = with_ingress()
    town.apps["registry.corp.example/shop/frontend"].too_large = lambda _: 0.5
    town.go_on()
    by_door = town.traffic.of_ingress("shop", "public", 20).answers
    assert 0.4 < by_door["502"] / by_door.total() < 0.6
    assert town.failed("frontend") < 0.01
