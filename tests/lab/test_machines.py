"""What machines and kubelets do: their memory, what they may ask for, the time that a processor gives."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import timedelta

import httpx2
import pytest

from tests.lab import apps, memory, statuses
from tests.lab.api import Caller, Json, World, now
from tests.lab.apps import App, Container, Outside, Problem, diagnose, millicores
from tests.lab.kubelets import Kubelets
from tests.lab.manifests import environment, is_let_through, sleeps_before_end
from tests.lab.memory import FREE_MIB, Memory
from tests.lab.sandboxes import Sandbox
from tests.lab.statuses import Statuses, pod_status


def world_of(*pods: Json) -> World:
    world = World(Caller(httpx2.AsyncClient(), "nobody", "", "test"))
    world._objects["Pod"] = {("shop", pod["metadata"]["name"]): pod for pod in pods}
    return world


def pod_of(name: str, *, node: str = "one", container: Json | None = None) -> Json:
    meta = {"namespace": "shop", "name": name, "uid": name}
    return {"metadata": meta, "spec": {"nodeName": node, "containers": [{"name": "app", **(container or {})}]}}


def test_a_node_without_memory_answers_nobody_until_who_has_most_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Outside(taken={"small": 10.0, "large": FREE_MIB, "elsewhere": FREE_MIB - 1})
    at = now()
    monkeypatch.setattr(memory, "now", lambda: at)
    node = Memory(world_of(pod_of("small"), pod_of("large"), pod_of("elsewhere", node="two")), {}, outside)
    node.look()
    assert node.thrashing() == {"one"}
    assert node.victim("one") == ""
    at += timedelta(seconds=outside.thrashing_seconds + 1)
    assert node.thrashing() == set()
    assert [node.victim("one"), node.victim("one"), node.victim("two")] == ["large", "", ""]
    node.look()
    assert node.thrashing() == set()


def test_a_kubelet_asks_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    at = now()
    monkeypatch.setattr(statuses, "now", lambda: at)
    limited = Statuses({}, Outside(kubelet_qps=2.0))
    assert [limited.may_ask("one") for _ in range(3)] == [True, True, False]
    assert limited.may_ask("two")
    at += timedelta(seconds=0.6)
    assert [limited.may_ask("one") for _ in range(2)] == [True, False]
    assert all(Statuses({}, Outside()).may_ask("one") for _ in range(100))


@pytest.mark.parametrize(
    ("limits", "seconds", "stands_still"),
    [({"cpu": "200m"}, 5.0, 5), ({"cpu": "200m"}, 1.0, 0), ({"cpu": "2"}, 5.0, 0), ({}, 5.0, 0)],
)
def test_a_limit_below_its_bursts_stops_a_container_now_and_then(
    monkeypatch: pytest.MonkeyPatch, limits: Json, seconds: float, stands_still: int
) -> None:
    busy = Container(pod_of("a", container={"resources": {"limits": limits}}), "1.0.0", {}, {}, seconds=seconds)
    at = now().replace(microsecond=500_000)
    found = []
    for passed in range(16):
        monkeypatch.setattr(apps, "now", lambda passed=passed: at + timedelta(seconds=passed))
        found.append(diagnose(App("a", burst_m=1500), busy, world_of(), running=1))
    assert sum(one is not None for one in found) == stands_still
    assert {one.kind for one in found if one} <= {"unready"}
    assert [millicores("250m"), millicores("1.5")] == [250, 1500]


def test_a_pod_sleeps_before_its_end_as_its_hook_says() -> None:
    assert sleeps_before_end(pod_of("a")) == 0
    assert sleeps_before_end(pod_of("a", container={"lifecycle": {"preStop": {"sleep": {"seconds": 6}}}})) == 6


def test_a_kubelet_tells_of_which_kind_its_processors_are() -> None:
    asked: list[tuple[str, str, Json]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.url.path, request.headers["User-Agent"], json.loads(request.content)))
        return httpx2.Response(200, json={})

    async def tell() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster") as client:
            kubelet = Caller(client, "system:node:one", "", "kubelet/v1.36.1 (linux/amd64) kubernetes/93248f9")
            await Kubelets(world_of(), {"one": kubelet}, {}, Outside()).run_on("one", "arm64")

    asyncio.run(tell())
    assert {agent for _, agent, _ in asked} == {"kubelet/v1.36.1 (linux/arm64) kubernetes/93248f9"}
    assert [(where, body) for where, _, body in asked] == [
        ("/api/v1/nodes/one", {"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}}),
        ("/api/v1/nodes/one/status", {"status": {"nodeInfo": {"architecture": "arm64"}}}),
    ]


@pytest.mark.parametrize(("at_once", "told"), [(True, ["waiting"]), (False, ["running"])])
def test_what_a_process_cannot_do_from_its_start_waits_for_no_lag(at_once: bool, told: list[str]) -> None:
    states: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/status"):
            [container] = json.loads(request.content)["status"].get("containerStatuses", [{"state": {}}])
            states.extend(container["state"])
        return httpx2.Response(200, json={})

    async def play() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster") as client:
            kubelet = Caller(client, "system:node:one", "", "kubelet")
            app = App("app", check=lambda _: Problem("crash", "exec format error", at_once=at_once))
            world = world_of(pod_of("abcd", container={"image": "app:1"}))
            kubelets = Kubelets(world, {"one": kubelet}, {"app": app}, Outside())
            kubelets.lag = 60.0
            kubelets._pods["abcd"] = Sandbox(phase="up", started=now())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kubelets.run(), 0.1)

    asyncio.run(play())
    assert states == told


def test_a_variable_refers_to_what_stands_above_it() -> None:
    node = {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    agent = {"name": "AGENT_URL", "value": "http://$(NODE_IP):3130/$(NOBODY)"}
    assert environment({"env": [node, agent]})["AGENT_URL"] == "http://<fieldRef>:3130/$(NOBODY)"
    assert environment({"env": [agent, node]})["AGENT_URL"] == "http://$(NODE_IP):3130/$(NOBODY)"
    assert environment({}) == {}


@pytest.mark.parametrize(("said", "is_ready"), [(None, "False"), ("False", "False"), ("True", "True")])
def test_a_pod_is_ready_once_its_gates_are_open(said: str | None, is_ready: str) -> None:
    pod = pod_of("gated", container={"image": "web:1.0.0"})
    pod["spec"]["readinessGates"] = [{"conditionType": "corp.example/registered"}]
    told = {"type": "corp.example/registered", "status": said, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod["status"] = {"conditions": [told] if said else []}
    status = pod_status(pod, {"ready": True}, 0, {0: 0}, phase="Running", address="10.244.0.1")
    by_type = {one["type"]: one for one in status["conditions"]}
    assert (by_type["ContainersReady"]["status"], by_type["Ready"]["status"]) == ("True", is_ready)
    assert by_type.get("corp.example/registered", told) == told
    assert is_let_through(pod) is (said == "True")
