"""What an autoscaler asks is answered with a figure, or that there is none of that name."""

from __future__ import annotations

import asyncio
import json
import ssl

from tests.lab.api import Json
from tests.lab.metrics_api import ROOT, MetricsApi


async def told(api: MetricsApi, where: str) -> tuple[str, Json]:
    """The status and the body of an answer."""
    host, port = api.address.split(":")
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, int(port), ssl=trust)
    writer.write(f"GET {where} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, body = (await reader.read()).decode().split("\r\n\r\n", 1)
    writer.close()
    return head.split(" ")[1], json.loads(body)


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
