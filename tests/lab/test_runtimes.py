"""What kubelets depend on: a registry that has enough of them, a container runtime that does not answer or stalls."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import httpx2
import pytest

from tests.lab import registry
from tests.lab.api import Caller, Json, now
from tests.lab.apps import App, Outside, Problem
from tests.lab.kubelets import Kubelets
from tests.lab.manifests import always_pulled
from tests.lab.memory import FREE_MIB, Memory
from tests.lab.registry import WINDOW_SECONDS, Registry
from tests.lab.sandboxes import Sandbox
from tests.lab.stalls import PLEG, Stalls
from tests.lab.statuses import Statuses
from tests.lab.test_machines import pod_of, world_of
from tests.lab.volumes import attaching, lacking_driver


def test_a_registry_takes_so_many_requests_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Outside(missing={"app:2"}, pulls=2)
    at = now()
    monkeypatch.setattr(registry, "now", lambda: at)
    images = Registry(outside)
    assert [images.refusal("app:1"), images.refusal("app:2")] == ["", "manifest unknown"]
    assert images.refusal("app:1").startswith("429 ")
    at += timedelta(seconds=WINDOW_SECONDS + 1)
    assert images.refusal("app:1") == ""
    outside.registry_up = False
    assert images.refusal("app:1").endswith("connection refused")
    assert not any(Registry(Outside()).refusal("app:1") for _ in range(100))


def test_of_two_registries_one_does_not_answer() -> None:
    images = Registry(Outside(broken={"quay.example": "503 Service Unavailable"}))
    refusals = [images.refusal(f"{host}/app:1") for host in ("quay.example", "r.example")]
    assert refusals == ["503 Service Unavailable", ""]


def test_a_runtime_that_lost_a_layer_unpacks_nothing() -> None:
    images = Registry(Outside(unpacking_none={"a"}))
    assert images.refusal("r.example/app:1", "b") == ""
    assert images.refusal("r.example/app:1", "a").startswith(
        'failed to pull and unpack image "r.example/app:1": failed to prepare extraction snapshot "extract-'
    )


def test_a_volume_waits_for_the_plugin_of_its_driver() -> None:
    def using(node: str) -> Json:
        return {"spec": {"nodeName": node, "volumes": [{"name": "data", "csi": {"driver": "nfs"}}, {"name": "tmp"}]}}

    drivers = {"nfs": lambda node: node == "a"}
    assert lacking_driver(drivers, using("a")) == lacking_driver({}, using("b")) == ""
    assert lacking_driver(drivers, using("b")).endswith(
        "driver name nfs not found in the list of registered CSI drivers"
    )


def test_a_kubelet_says_how_many_volumes_its_machine_takes() -> None:
    written: list[Json] = []

    async def must(_: str, __: str, body: Json) -> None:
        written.append(body)

    asyncio.run(attaching(cast("Caller", SimpleNamespace(must=must)), "a", "disk", 8))
    [driver] = written[0]["spec"]["drivers"]
    assert (driver["name"], driver["nodeID"], driver["allocatable"]) == ("disk", "a", {"count": 8})


def test_a_node_without_resolvers_does_not_find_the_registry() -> None:
    images = Registry(Outside(nameless={"a"}))
    assert [images.refusal("images.example/shop/app:1", node) for node in ("", "b")] == ["", ""]
    refused = images.refusal("images.example/shop/app:1", "a")
    assert 'Head "https://images.example/v2/shop/app/manifests/1": dial tcp: lookup images.example on' in refused


def test_an_image_may_be_asked_for_at_each_start() -> None:
    assert always_pulled(pod_of("a", container={"image": "app:latest", "imagePullPolicy": "Always"})) == {"app:latest"}
    assert always_pulled(pod_of("a", container={"image": "app:1", "imagePullPolicy": "IfNotPresent"})) == set()


def test_what_kubelets_keep_fills_a_node_too() -> None:
    node = Memory(world_of(pod_of("a")), {}, Outside(kept={"one": FREE_MIB + 1, "two": FREE_MIB}))
    node.look()
    assert node.thrashing() == {"one"}


def test_a_stalled_runtime_is_told_once_and_so_is_its_end() -> None:
    told: list[Json] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        told.append(json.loads(request.content)["status"]["conditions"][0])
        return httpx2.Response(200, json={})

    async def play() -> list[bool]:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster") as client:
            outside = Outside(stalled={"one"})
            statuses = Statuses({"one": Caller(client, "system:node:one", "t", "kubelet")}, outside)
            stalls = Stalls(statuses, outside)
            held = [await stalls.hold("one"), await stalls.hold("one")]
            outside.stalled.clear()
            return [*held, await stalls.hold("one"), await stalls.hold("one")]

    assert asyncio.run(play()) == [True, True, False, False]
    assert [(one["status"], one.get("message", "")) for one in told] == [("False", PLEG), ("True", "")]


def asked(outside: Outside, *pull_secrets: str) -> list[str]:
    """What the kubelet of a node with one new pod asks for at first; Secrets have the data that a test looks for."""
    calls: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        calls.append(f"{request.method} {request.url.path}")
        return httpx2.Response(200, json={"data": {"password": "c2VjcmV0"}} if "/secrets/" in request.url.path else {})

    async def play() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster") as client:
            node = Caller(client, "system:node:one", "t", "kubelet")
            one = pod_of("abcd", container={"image": "app:1"})
            one["spec"]["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
            kubelets = Kubelets(world_of(one), {"one": node}, {}, outside)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kubelets.run(), 0.1)

    asyncio.run(play())
    return calls


def test_what_is_not_pulled_again_waits_beside_what_runs() -> None:
    told: list[Json] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/abcd/status"):
            told.append(json.loads(request.content)["status"])
        return httpx2.Response(200, json={})

    async def play() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster") as client:
            node = Caller(client, "system:node:one", "t", "kubelet")
            one = pod_of("abcd", container={"image": "app:1", "imagePullPolicy": "IfNotPresent"})
            one["spec"]["containers"].append({"name": "relay", "image": "relay:1", "imagePullPolicy": "Always"})
            kubelets = Kubelets(world_of(one), {"one": node}, {}, Outside(registry_up=False))
            kubelets._pulled = {("one", "app:1"), ("one", "relay:1")}
            kubelets._pods["abcd"] = Sandbox(phase="down", restarts=Counter({1: 1}))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kubelets.run(), 0.1)

    asyncio.run(play())
    [status] = told
    assert status["phase"] == "Running"
    app, relay = (one["state"] for one in status["containerStatuses"])
    assert "running" in app
    assert relay["waiting"]["reason"] == "ImagePullBackOff"


@pytest.mark.parametrize(("kind", "ready"), [("starting", False), ("unready", True)])
def test_a_lag_hides_what_is_not_well_but_not_what_has_not_started(kind: str, *, ready: bool) -> None:
    told: list[Json] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/abcd/status"):
            told.append(json.loads(request.content)["status"])
        return httpx2.Response(200, json={})

    async def play() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster") as client:
            one = pod_of("abcd", container={"image": "app:1"})
            app, node = (
                App("app", check=lambda _: Problem(kind, "probe failed")),
                Caller(client, "node", "t", "kubelet"),
            )
            kubelets = Kubelets(world_of(one), {"one": node}, {"app": app}, Outside())
            kubelets.lag = 5.0
            kubelets._pods["abcd"] = Sandbox(phase="up", started=now())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kubelets.run(), 0.1)

    asyncio.run(play())
    [status] = told
    assert status["containerStatuses"][0]["ready"] is ready


LEASE = "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/one"
STATUS = "PATCH /api/v1/namespaces/shop/pods/abcd/status"


def test_a_hung_kubelet_is_heard_and_takes_on_nothing() -> None:
    assert asked(Outside(hung={"one"})) == [LEASE]
    assert asked(Outside()) == [LEASE, STATUS]


def test_a_registry_may_deny_a_pod_without_credentials() -> None:
    denied = Outside(denied=lambda image, pod: "401" if image == "app:1" else "")
    assert asked(denied) == [LEASE, STATUS, "POST /api/v1/namespaces/shop/events"]
    assert asked(Outside(denied=lambda image, pod: "401" if image == "other:1" else "")) == [LEASE, STATUS]


def test_a_registry_is_shown_what_is_in_the_pull_secrets_that_a_pod_names() -> None:
    outside = Outside()
    outside.denied = lambda image, pod: "" if ("shop", "pull") in outside.credentials else "401"
    assert asked(outside, "pull") == [LEASE, "GET /api/v1/namespaces/shop/secrets/pull", STATUS]
    assert outside.credentials == {("shop", "pull"): {"password": "c2VjcmV0"}}


def test_a_runtime_may_refuse_to_create_a_container() -> None:
    refused = Outside(refusing=lambda node, pod: "no" if node == "one" else "")
    assert asked(refused) == [LEASE, STATUS, "POST /api/v1/namespaces/shop/events"]
    assert asked(Outside(refusing=lambda node, pod: "no" if node == "two" else "")) == [LEASE, STATUS]
