"""What an autoscaler asks is answered with a figure, or that there is none of that name."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any, cast

from tests.lab.api import Caller, Json, World
from tests.lab.metrics_api import OF_PODS, ROOT, MetricsApi, PodMetricsApi


async def told(api: MetricsApi, where: str) -> tuple[str, Any]:
    """The status and the body of an answer."""
    host, port = api.address.split(":")
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, int(port), ssl=trust)
    writer.write(f"GET {where} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, body = (await reader.read()).decode().split("\r\n\r\n", 1)
    writer.close()
    return head.split(" ")[1], json.loads(body) if "application/json" in head else body


def test_a_figure_is_what_it_is_now() -> None:
    async def play() -> None:
        asked = 40.0
        api = MetricsApi(lambda: {"offers_requests_per_second": lambda: asked})
        await api.start()
        status, listed = await told(api, ROOT)
        assert status == "200"
        assert [one["name"] for one in listed["resources"]] == ["offers_requests_per_second"]
        asked = 64.5
        status, found = await told(api, f"{ROOT}/namespaces/shop/offers_requests_per_second?labelSelector=")
        assert (status, found["items"][0]["value"]) == ("200", "64500m")
        status, none = await told(api, f"{ROOT}/namespaces/shop/offers_request_rate")
        assert (status, none["reason"]) == ("404", "NotFound")
        api.close()

    asyncio.run(play())


def test_whose_own_source_does_not_answer_has_no_figure() -> None:
    async def play() -> None:
        why = ["error when getting metric values: context deadline exceeded"]
        api = MetricsApi(lambda: {"orders": lambda: 12.0}, failure=lambda: why[0])
        await api.start()
        assert (await told(api, ROOT))[0] == "200"
        status, found = await told(api, f"{ROOT}/namespaces/shop/orders")
        assert (status, found["kind"], found["message"]) == ("500", "Status", why[0])
        why[0] = ""
        assert (await told(api, f"{ROOT}/namespaces/shop/orders"))[0] == "200"
        api.close()

    asyncio.run(play())


def test_what_pods_use_is_told_of_those_that_run_and_are_selected() -> None:
    def pod(name: str, app: str, phase: str) -> Json:
        meta = {"namespace": "shop", "name": name, "labels": {"app": app}}
        return {"metadata": meta, "spec": {"containers": [{"name": app}]}, "status": {"phase": phase}}

    async def play() -> None:
        world = World(cast("Caller", None))
        pods = (pod("a", "offers", "Running"), pod("b", "offers", "Pending"), pod("c", "prices", "Running"))
        world._objects["Pod"] = {("shop", one["metadata"]["name"]): one for one in pods}
        api = PodMetricsApi(world, lambda one: 62.4)
        await api.start()
        status, found = await told(api, f"/apis/{OF_PODS}/v1beta1/namespaces/shop/pods?labelSelector=app%3Doffers")
        assert (status, [one["metadata"]["name"] for one in found["items"]]) == ("200", ["a"])
        assert found["items"][0]["containers"] == [{"name": "offers", "usage": {"cpu": "62m", "memory": "80Mi"}}]
        api.close()

    asyncio.run(play())


def test_while_nobody_is_behind_it_the_api_of_pods_is_unavailable() -> None:
    async def play() -> None:
        is_up = False
        api = PodMetricsApi(World(cast("Caller", None)), lambda one: 62.4, is_up=lambda: is_up)
        await api.start()
        for where in (api.root, f"{api.root}/namespaces/shop/pods"):
            status, found = await told(api, where)
            assert (status, found) == ("503", "service unavailable\n")
        is_up = True
        assert (await told(api, api.root))[0] == "200"
        api.close()

    asyncio.run(play())
