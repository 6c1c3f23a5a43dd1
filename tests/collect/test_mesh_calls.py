"""A real Prometheus that scrapes proxies of meshes is asked who calls whom; so is an imported file of theirs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from app.collect import measuring
from app.collect.contexts import WantedCluster
from app.collect.measuring import Measuring
from app.collect.mesh_calls import CALLS_EVERY, ask, query
from app.collect.outbound import Outbound, OutboundError
from app.collect.prometheus import Prometheus
from app.collect.scrape import Kept
from app.core.edges.mesh_calls import COUNTERS
from app.core.model import CallEdge
from app.core.objects.redact import Redactor
from app.store import call_edges, series
from tests.collect.test_importer import T0, Lab, lab
from tests.collect.test_measuring import Clock
from tests.collect.test_measuring import running as measured
from tests.collect.test_outbound import FORM, answering
from tests.listening import listening
from tests.programs import found, free_address, running

__all__ = ["lab"]
REDACTOR = Redactor(b"k" * 32)
ISTIO = (
    'reporter="{reporter}",source_workload="cart",source_workload_namespace="shop",destination_workload="ledger-v2",'
    'destination_workload_namespace="pay",destination_service_name="ledger",destination_service_namespace="pay",'
    'response_code="{code}"'
)
LINKERD = 'direction="{direction}",dst_namespace="media",dst_deployment="thumbnails",dst_service="images",tls="true"'
PAGE = "\n".join(
    [
        "# TYPE istio_requests_total counter",
        *(
            f"istio_requests_total{{{ISTIO.format(reporter=reporter, code=code)}}} 7"
            for reporter in ("source", "destination")
            for code in (200, 503)
        ),
        "# TYPE request_total counter",
        *(f"request_total{{{LINKERD.format(direction=direction)}}} 3" for direction in ("outbound", "inbound")),
        'request_total{path="/an/app/s/own"} 5',
        "",
    ]
)
CALLS = {
    (("shop", "cart"), "Service", ("pay", "ledger")),
    (("shop", "cart"), "Workload", ("pay", "ledger-v2")),
    (("web", "gallery"), "Service", ("media", "images")),
    (("web", "gallery"), "Workload", ("media", "thumbnails")),
}


@pytest.fixture(scope="module")
async def target() -> AsyncIterator[str]:
    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text=PAGE)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    async with listening(app) as url:
        yield url.removeprefix("http://")


@pytest.fixture(scope="module")
def prometheus(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Scrapes the page as each of two pods of a Deployment, whose labels Linkerd's scrape configuration adds."""
    executable, folder = found("prometheus", package="prometheus"), tmp_path_factory.mktemp("prometheus")
    pods = [
        {
            "targets": [target],
            "labels": {"cluster": cluster, "namespace": "web", "deployment": "gallery", "pod": f"gallery-{pod}"},
        }
        for pod in "xy"
        for cluster in ("shop", "other")
    ]
    config = folder / "prometheus.yml"
    every = {"scrape_interval": "500ms", "scrape_timeout": "400ms"}
    config.write_text(
        json.dumps({"global": every, "scrape_configs": [{"job_name": "proxies", "static_configs": pods}]})
    )
    command = [executable, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with running(*command, address=free_address(), folder=folder) as url:
        yield url


async def scraped(url: str) -> None:
    """Wait until it knows all pods."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        async with Outbound.to(Prometheus(url)) as outbound:
            body = await outbound.post("/api/v1/query", {"query": 'count(request_total{direction="outbound"})'})
        result = json.loads(body)["data"]["result"]
        if result and int(result[0]["value"][1]) == 4:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("nothing was scraped")


def keys(edges: list[CallEdge]) -> set[tuple[tuple[str, str], str, tuple[str, str]]]:
    return {(one.caller, one.kind, one.callee) for one in edges}


async def test_a_prometheus_says_who_calls_whom_each_pair_once(prometheus: str) -> None:
    await scraped(prometheus)
    now = datetime.now(UTC)
    edges, warnings = await ask(Prometheus(prometheus, matchers='cluster="shop"'), COUNTERS, REDACTOR, now)
    assert warnings == ()
    assert keys(edges) == CALLS
    assert len(edges) == len(CALLS)
    assert {(one.first_seen, one.last_seen) for one in edges} == {(now, now)}
    for source in (
        Prometheus(prometheus, matchers='cluster="mars"'),
        Prometheus(prometheus, matchers='cluster="shop"', app_matchers='cluster="mars"'),
    ):
        assert await ask(source, COUNTERS, REDACTOR, now) == ([], ())
    long_ago = now - timedelta(hours=1)
    assert await ask(Prometheus(prometheus), COUNTERS, REDACTOR, long_ago) == ([], ())


async def test_what_it_says_is_recorded_and_seen_for_longer_each_time(prometheus: str, lab: Lab) -> None:
    await scraped(prometheus)
    clock = Clock(sleeps=1)
    clock.now = datetime.now(UTC)
    wanted = WantedCluster(lab.cluster, prometheus=Prometheus(prometheus))
    one = Measuring(lab.database.write, wanted, pace=clock.pace(), kept=Kept(), questions=(), calls=tuple(COUNTERS))
    began = clock.now
    async with measured(one):
        await clock.over.wait()
    assert one.remarks == ()
    async with lab.database.read.connect() as conn:
        edges = await call_edges.read(conn, lab.cluster, clock.now)
        assert await series.read(conn, lab.cluster, began - timedelta(days=1), clock.now) == []
    assert keys(edges) == CALLS
    assert {one.first_seen for one in edges} == {began}
    assert clock.now == began + CALLS_EVERY
    assert {one.last_seen for one in edges} == {clock.now}


async def test_what_fails_is_said_until_it_answers_again(lab: Lab) -> None:
    asked: list[str] = []
    remarks: list[tuple[str, ...]] = []

    def answer(request: web.Request) -> web.Response:
        asked.append(request[FORM]["query"])
        remarks.append(one.remarks)
        if len(asked) == 1:
            return web.json_response({"status": "error", "error": "query timed out"}, status=503)
        metric = dict(pair.split("=") for pair in ISTIO.format(reporter="source", code=200).replace('"', "").split(","))
        line = {"metric": metric, "value": [0, "1"]}
        result = [line] if "istio_requests_total" in asked[-1] else []
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    clock = Clock(sleeps=1)
    async with answering(answer) as url:
        wanted = WantedCluster(lab.cluster, prometheus=Prometheus(url, matchers='cluster="shop"'))
        one = Measuring(lab.database.write, wanted, pace=clock.pace(), kept=Kept(), questions=(), calls=tuple(COUNTERS))
        async with measured(one):
            await clock.over.wait()
    assert f"no metrics from {url} of who calls whom since" in remarks[1][0]
    assert "503" in remarks[1][0]
    assert one.remarks == ()
    assert asked[1:] == [query(name, 'cluster="shop"') for name in COUNTERS]
    async with lab.database.read.connect() as conn:
        assert len(await call_edges.read(conn, lab.cluster, clock.now)) == 2


async def test_more_than_are_kept_is_said_and_what_the_answers_warned_of(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "MOST_EDGES", 3)
    lines = [
        {
            "metric": {
                "direction": "outbound",
                "namespace": "web",
                "deployment": f"app-{number}",
                "dst_namespace": "media",
                "dst_service": "images",
            },
            "value": [0, "1"],
        }
        for number in range(4)
    ]

    def answer(request: web.Request) -> web.Response:
        result = lines if "request_total{direction" in request[FORM]["query"] else []
        data = {"resultType": "vector", "result": result}
        return web.json_response({"status": "success", "data": data, "warnings": ["store-1 is away"]})

    clock = Clock(sleeps=0)
    async with answering(answer) as url:
        wanted = WantedCluster(lab.cluster, prometheus=Prometheus(url))
        one = Measuring(lab.database.write, wanted, pace=clock.pace(), kept=Kept(), questions=(), calls=tuple(COUNTERS))
        async with measured(one):
            await clock.over.wait()
    many, warned = one.remarks
    assert "4 pairs call each other, of which 3 are kept" in many
    assert warned == f"{url} of who calls whom warned when it answered at {T0:%H:%M} UTC: store-1 is away"
    async with lab.database.read.connect() as conn:
        assert len(await call_edges.read(conn, lab.cluster, clock.now)) == 3


async def test_an_answer_of_something_else_is_an_error() -> None:
    async with answering(lambda _: web.json_response({"status": "success", "data": []})) as url:
        with pytest.raises(OutboundError, match="does not answer as a Prometheus does"):
            await ask(Prometheus(url), COUNTERS, REDACTOR, T0)


async def test_an_imported_file_tells_it_too_of_its_own_time(lab: Lab, tmp_path: Path) -> None:
    at = T0.timestamp()
    istio = ISTIO.format(reporter="source", code=200)
    linkerd = LINKERD.format(direction="outbound") + ',namespace="web",deployment="gallery"'
    (tmp_path / "metrics.om").write_text(
        "\n".join(
            [
                "# TYPE istio_requests counter",
                f"istio_requests_total{{{istio}}} 0 {at:.0f}",
                f"istio_requests_total{{{istio}}} 4 {at + 30:.0f}",
                f"istio_requests_total{{{istio}}} 9 {at + 60:.0f}",
                "# TYPE request counter",
                f"request_total{{{linkerd}}} 1 {at + 10:.0f}",
                "# EOF",
                "",
            ]
        )
    )
    for _ in range(2):
        await lab.imported(tmp_path / "metrics.om")
    async with lab.database.read.connect() as conn:
        edges = await call_edges.read(conn, lab.cluster, T0 + timedelta(minutes=2))
        kept = await series.read(conn, lab.cluster, T0 - timedelta(days=1), T0 + timedelta(days=1))
    assert keys(edges) == CALLS
    seen = {one.caller: ((one.first_seen - T0).total_seconds(), (one.last_seen - T0).total_seconds()) for one in edges}
    assert seen == {("shop", "cart"): (30, 60), ("web", "gallery"): (10, 10)}
    assert {one.name for one in kept} == {"istio_requests_total"}, "what only says who calls whom is no line"
