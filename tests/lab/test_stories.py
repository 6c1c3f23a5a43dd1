"""What fails now and then, and what does not fit."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.lab import rooms
from tests.lab.api import Answer, Caller, Json, World, now
from tests.lab.apps import App, Container, Outside
from tests.lab.families.stories import Flaky
from tests.lab.kubelets import Kubelets
from tests.lab.memory import Memory
from tests.lab.rooms import Rooms
from tests.lab.sandboxes import Sandbox
from tests.lab.statuses import Statuses
from tests.lab.test_machines import pod_of, world_of


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


class Heard(Caller):
    """Keeps what it is told."""

    async def call(self, method: str, where: str, body: Any = None, *, patch: str = "") -> Answer:
        self.told = [*getattr(self, "told", []), (method, where, body)]
        return Answer(200, {})


@pytest.mark.parametrize("rebooted", [True, False])
def test_a_machine_that_stopped_tells_of_itself_once_it_is_back(*, rebooted: bool) -> None:
    caller, outside = Heard(httpx2.AsyncClient(), "kubelet", "", "test"), Outside()
    kubelets = Kubelets(World(caller), {"a": caller}, {}, outside)
    kubelets.crash("a")
    assert outside.dead_nodes == {"a"}
    asyncio.run(kubelets.come_back("a", rebooted=rebooted))
    assert not outside.dead_nodes
    (method, where, body), *events = caller.told
    assert (method, where) == ("PATCH", "/api/v1/nodes/a/status")
    assert body["status"]["conditions"][0]["status"] == "True"
    assert [event["reason"] for _, _, event in events] == ["Rebooted"] * rebooted


def test_a_kubelet_tells_how_much_it_has_for_pods() -> None:
    caller = Heard(httpx2.AsyncClient(), "kubelet", "", "test")
    asyncio.run(Kubelets(World(caller), {"a": caller}, {}, Outside()).allot("a", "60Gi"))
    assert caller.told == [("PATCH", "/api/v1/nodes/a/status", {"status": {"allocatable": {"memory": "60Gi"}}})]


def test_a_kubelet_tells_whom_the_kernel_ended_while_others_take_on_further_pods() -> None:
    caller = Heard(httpx2.AsyncClient(), "kubelet", "", "test")
    world = world_of(*(pod_of(name, container={"image": "web:1.0.0"}) for name in ("aaaa", "bbbb")))
    kubelets = Kubelets(world, {"one": caller}, {}, Outside())
    kubelets._pods.update(aaaa=Sandbox(phase="up"), bbbb=Sandbox(phase="up"))

    async def tell_out_of_memory(node: str, process: str, pid: int) -> None:
        kubelets._pods["elsewhere"] = Sandbox()

    kubelets._statuses.tell_out_of_memory = tell_out_of_memory  # type: ignore[method-assign]
    asyncio.run(kubelets._survive("one", "aaaa"))
    assert {name: one.phase for name, one in kubelets._pods.items()} == {
        "aaaa": "down",
        "bbbb": "up",
        "elsewhere": "new",
    }


def test_a_machine_that_joins_has_its_labels_and_is_heard() -> None:
    caller, outside = Heard(httpx2.AsyncClient(), "kubelet", "", "test"), Outside(dead_nodes={"a"})
    asyncio.run(Kubelets(World(caller), {"a": caller}, {}, outside).join("a", "v1.36.2", {"zone": "b"}))
    assert not outside.dead_nodes
    assert caller.agent.startswith("kubelet/v1.36.2 ")
    assert ("PATCH", "/api/v1/nodes/a", {"metadata": {"labels": {"zone": "b"}}}) in caller.told


def test_a_kubelet_counts_for_a_while_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    at, asking = now(), {"resources": {"requests": {"memory": "3Gi"}}}
    monkeypatch.setattr(rooms, "now", lambda: at)
    caller, outside = Heard(httpx2.AsyncClient(), "kubelet", "", "test"), Outside(counted_seconds=5)
    old, new = (pod_of(name, container=asking) for name in ("old", "new"))
    world = world_of(new)
    world._objects["Node"] = {("", "one"): {"status": {"allocatable": {"memory": "4Gi"}}}}
    room = Rooms(world, outside, Statuses({"one": caller}, outside))
    assert asyncio.run(room.admit("one", new))
    room.leave("one", old)
    assert not asyncio.run(room.admit("one", new))
    (_, _, refused), (_, _, event) = caller.told
    sums = f"requested: {3 * 2**30}, used: {3 * 2**30}, capacity: {4 * 2**30}"
    assert event["message"] == f"Node didn't have enough resource: memory, {sums}"
    assert refused["status"]["message"] == f"Pod was rejected: {event['message']}"
    at += timedelta(seconds=6)
    assert asyncio.run(room.admit("one", new))


def test_a_kubelet_takes_on_no_pod_that_asks_for_an_unsafe_setting_of_the_kernel() -> None:
    caller, outside = Heard(httpx2.AsyncClient(), "kubelet", "", "test"), Outside()
    safe, unsafe = pod_of("safe"), pod_of("unsafe")
    safe["spec"]["securityContext"] = {"sysctls": [{"name": "net.ipv4.tcp_fin_timeout", "value": "30"}]}
    unsafe["spec"]["securityContext"] = {"sysctls": [{"name": "net.core.somaxconn", "value": "4096"}]}
    room = Rooms(world_of(safe, unsafe), outside, Statuses({"one": caller}, outside))
    assert asyncio.run(room.admit("one", safe))
    assert not asyncio.run(room.admit("one", unsafe))
    (_, _, refused), (_, _, event) = caller.told
    assert (refused["status"]["phase"], refused["status"]["reason"]) == ("Failed", "SysctlForbidden")
    assert event["message"] == 'forbidden sysctl: "net.core.somaxconn" not allowlisted'
