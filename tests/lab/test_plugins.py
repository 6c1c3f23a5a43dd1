"""A plugin of the network that fails: no pod is connected, and none is let go whose containers have ended."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx2

from tests.lab.api import Caller, Json, now
from tests.lab.apps import Outside
from tests.lab.kubelets import Kubelets
from tests.lab.plugins import refusal
from tests.lab.sandboxes import Sandbox
from tests.lab.test_machines import pod_of, world_of

FAILURE = "incompatible CNI versions"


def told(outside: Outside, pod: Json, sandbox: Sandbox) -> list[str]:
    """What the kubelet of a node with one pod deletes, and of what it warns, at first."""
    found: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            found.append("deleted")
        elif request.url.path.endswith("/events"):
            found.append(json.loads(request.content)["reason"])
        return httpx2.Response(200, json={})

    async def play() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster") as client:
            node = Caller(client, "system:node:one", "t", "kubelet")
            kubelets = Kubelets(world_of(pod), {"one": node}, {}, outside)
            kubelets._pods[pod["metadata"]["uid"]] = sandbox
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kubelets.run(), 0.1)

    asyncio.run(play())
    return found


def test_no_pod_is_connected_by_a_plugin_that_fails() -> None:
    pod = pod_of("abcd", container={"image": "app:1"})
    failing = Outside(unplugged=lambda node, _: FAILURE if node == "one" else "")
    assert "FailedCreatePodSandBox" in told(failing, pod, Sandbox())
    assert refusal(world_of(pod), failing, "one", pod) == FAILURE
    assert refusal(world_of(pod), failing, "two", pod) == ""
    assert refusal(world_of(pod), Outside(addresses={"one": 0}), "one", pod).endswith(
        "assign an IP address to container"
    )


def test_a_pod_that_has_ended_stays_while_the_plugin_does_not_let_it_go() -> None:
    pod = pod_of("abcd", container={"image": "app:1"})
    pod["metadata"]["deletionTimestamp"] = "2026-11-26T10:00:00Z"
    sandbox = Sandbox(phase="up", started=now())
    assert told(Outside(unplugged=lambda node, _: FAILURE), pod, sandbox) == ["FailedKillPod"]
    assert sandbox.phase == "ended"
    assert told(Outside(), pod, Sandbox(phase="up", started=now())) == ["deleted"]
    assert told(Outside(unplugged=lambda node, _: FAILURE), pod, Sandbox()) == ["deleted"]
