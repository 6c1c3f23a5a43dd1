"""What fails now and then, and what does not fit."""

from __future__ import annotations

import random

import httpx2
import pytest

from tests.lab.api import Caller, Json, World
from tests.lab.apps import App, Container, Outside
from tests.lab.families.stories import Flaky
from tests.lab.memory import Memory


def pod(name: str, *, node: str = "a", phase: str = "Running") -> Json:
    meta, spec = {"namespace": "shop", "name": name, "uid": name}, {"containers": [{"image": "web:1.0.0"}]}
    return {"metadata": meta, "spec": {**spec, "nodeName": node}, "status": {"phase": phase}}


def test_what_a_node_needs_is_what_runs_there() -> None:
    world = World(Caller(httpx2.AsyncClient(), "nobody", "", "test"))
    there = pod("one"), pod("two"), pod("elsewhere", node="b"), pod("starting", phase="Pending")
    world._objects = {"Pod": {("shop", one["metadata"]["name"]): one for one in there}}
    assert Memory(world, {"web": App("web", memory_mi=900)}, Outside()).needed("a") == 1800
    assert Memory(world, {}, Outside()).needed("a") == 0
    too_much = Memory(world, {"web": App("web", memory_mi=40000)}, Outside())
    assert [too_much.is_overcommitted(node) for node in ("a", "b")] == [True, False]


@pytest.mark.parametrize(("share", "unready"), [(0.0, 0), (1.0, 8)])
def test_a_container_is_unready_after_three_probes_in_a_row_that_failed(share: float, unready: int) -> None:
    flaky, container = Flaky(random.Random(1)), Container(pod("one"), "1.0.0", {}, {})
    found = [flaky.probe(container, share, "late") for _ in range(10)]
    assert sum(one is not None for one in found) == unready
    assert flaky.probe(container, 0.0, "late") is None
