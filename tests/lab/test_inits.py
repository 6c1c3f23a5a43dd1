"""Init containers that wait for a name."""

from __future__ import annotations

import asyncio
import json

import httpx2

from tests.lab.api import Caller, Json
from tests.lab.apps import Outside
from tests.lab.inits import are_done, awaits
from tests.lab.sandboxes import Sandbox
from tests.lab.statuses import Statuses
from tests.lab.test_network import reachable_world


def waiting_for(host: str) -> Json:
    return {"name": "wait", "image": "busybox:1", "command": ["sh", "-c", f"until nslookup {host}; do sleep 2; done"]}


def test_a_name_is_awaited_until_the_cluster_has_it() -> None:
    pod = {"metadata": {"namespace": "shop", "name": "a-1"}, "spec": {}}
    found = ("cart", "cart.shop", "cart.shop.svc.cluster.local", "kube-dns.kube-system")
    assert [awaits(reachable_world(), pod, waiting_for(host)) for host in found] == [""] * 4
    assert awaits(reachable_world(), pod, waiting_for("basket")) == "lookup basket.shop.svc.cluster.local: no such host"
    assert awaits(reachable_world(), pod, {"name": "migrate", "image": "migrate:1"}) == ""


def test_a_pod_says_which_of_them_goes_on() -> None:
    told: list[Json] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        told.append(json.loads(request.content)["status"])
        return httpx2.Response(200, json={})

    async def look(*hosts: str) -> bool:
        client = httpx2.AsyncClient(base_url="https://nowhere", transport=httpx2.MockTransport(answer))
        statuses = Statuses({"one": Caller(client, "kubelet", "", "kubelet")}, Outside())
        spec = {"initContainers": [waiting_for(host) for host in hosts], "containers": [{"name": "a", "image": "a:1"}]}
        pod = {"metadata": {"namespace": "shop", "name": "a-1"}, "spec": spec}
        return await are_done(reachable_world(), statuses, "one", pod, Sandbox())

    assert asyncio.run(look())
    assert not told
    assert asyncio.run(look("cart"))
    assert not asyncio.run(look("cart", "basket"))
    first, second = told[1]["initContainerStatuses"]
    assert first["state"]["terminated"]["reason"] == "Completed"
    assert "running" in second["state"]
    assert told[1]["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
