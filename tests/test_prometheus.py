"""A real Prometheus, configured as docs/metrics.md says, scrapes itself and sends to the real program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from time import sleep

import httpx2
import pytest
from prometheus_client import CollectorRegistry, Histogram, start_http_server

from app.core.model import MetricSeries
from app.core.roles import Role
from app.store import reach, series, tokens
from app.store.database import Database
from app.store.tokens import Purpose
from tests.e2e.conftest import Program, serving
from tests.programs import found, free_address, running, wait_for

HISTOGRAM = "apiserver_request_duration_seconds"
DOCS = Path(__file__).parents[1] / "docs"
SCRAPE = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
scrape_configs:
  - job_name: prometheus
    static_configs: [{targets: ["ADDRESS"]}]
"""
RECORDING = """
  - job_name: apiserver
    static_configs: [{targets: ["TARGET"]}]
rule_files: [RULES]
"""


@pytest.fixture(scope="module")
def program(dsn: str, database: Database) -> Iterator[Program]:
    with serving(dsn, database) as started:
        yield started


def scraping(address: str, token: Path) -> str:
    """The snippet of the documentation that scrapes Foreshock itself; only address and token's file are changed."""
    [told] = re.findall(r"```yaml\nscrape_configs:\n(.*?)```", (DOCS / "configuration.md").read_text(), re.DOTALL)
    told = told.replace("foreshock:8000", address.removeprefix("http://"))
    return str(told.replace("/run/secrets/foreshock_scrape_token", str(token)))


def configuration(address: str, token: Path) -> str:
    """The snippet of the documentation; only address and token's file are changed."""
    [told] = re.findall(r"```yaml\n(remote_write:.*?)```", (DOCS / "metrics.md").read_text(), re.DOTALL)
    return str(told.replace("https://foreshock.example", address).replace("/run/secrets/foreshock_token", str(token)))


@contextmanager
def prometheus(folder: Path, told: str) -> Iterator[str]:
    """The address of a Prometheus that scrapes itself every second."""
    executable, address = found("prometheus", package="prometheus"), free_address()
    config = folder / "prometheus.yml"
    config.write_text(SCRAPE.replace("ADDRESS", address) + told)
    data = folder / "data"
    with running(
        executable, f"--config.file={config}", f"--storage.tsdb.path={data}", address=address, folder=folder
    ) as url:
        yield url


def asked(address: str, query: str) -> float:
    """The one value that Prometheus itself answers; 0 where there is none yet."""
    answer = httpx2.get(f"{address}/api/v1/query", params={"query": query}).raise_for_status().json()
    result = answer["data"]["result"]
    return float(result[0]["value"][1]) if result else 0.0


async def stored(database: Database) -> dict[str, list[MetricSeries]]:
    now = datetime.now(UTC)
    found: dict[str, list[MetricSeries]] = {}
    async with database.read.connect() as conn:
        for one in await series.read(conn, "shop", now - timedelta(hours=1), now):
            found.setdefault(one.name, []).append(one)
    return found


async def test_prometheus_sends_what_it_scrapes(program: Program, database: Database, tmp_path: Path) -> None:
    async with database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, "shop", purpose=Purpose.METRICS, now=datetime.now(UTC))
    (tmp_path / "token").write_text(f"{token}\n")
    url, sender = f"{program.address}/intake/prometheus/shop", {"Authorization": f"Bearer {token}"}
    wait_for(lambda: httpx2.post(url, headers=sender).status_code == 415)  # within ten seconds the token is known
    with prometheus(tmp_path, configuration(program.address, tmp_path / "token")) as address:
        sent = "sum(prometheus_remote_storage_samples_total) - sum(prometheus_remote_storage_samples_pending)"
        wait_for(lambda: asked(address, sent) > 300)
        failed = asked(address, "sum(prometheus_remote_storage_samples_failed_total)")
        truth = httpx2.get(f"{address}/api/v1/query", params={"query": "go_gc_duration_seconds_count[1h]"}).json()
    kept = await stored(database)
    scraped = {round(time, 3): float(value) for time, value in truth["data"]["result"][0]["values"]}
    [one] = kept["go_gc_duration_seconds_count"]
    both = {time: value for time, value in zip(one.times, one.values, strict=True) if round(time, 3) in scraped}
    assert len(both) >= 3
    assert {round(time, 3): value for time, value in both.items()}.items() <= scraped.items()
    assert dict(one.labels)["job"] == "prometheus"
    assert not any(name.endswith("_bucket") or name.startswith("prometheus_") for name in kept)
    assert failed == 0
    async with database.read.connect() as conn:
        assert "metrics" in await reach.read(conn, "shop")


def test_a_connection_rests_as_long_as_prometheus_waits_between_two_batches(program: Program) -> None:
    with closing(HTTPConnection(program.address.removeprefix("http://"))) as connection:
        for rests in (6, 0):  # batch_send_deadline is five seconds
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            ours = connection.sock
            sleep(rests)
        assert connection.sock is ours, "it is the same connection"


async def test_of_histograms_the_sums_of_their_buckets_come(
    program: Program, database: Database, tmp_path: Path
) -> None:
    async with database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, "shop", purpose=Purpose.METRICS, now=datetime.now(UTC))
        reader = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=datetime.now(UTC))
    (tmp_path / "token").write_text(f"{token}\n")
    registry = CollectorRegistry()
    took = Histogram(
        HISTOGRAM, "As an API server counts", ["verb", "resource"], registry=registry, buckets=(0.1, 0.25, 0.5, 1.0)
    )
    server, _ = start_http_server(0, "127.0.0.1", registry)
    question = {"cluster": "shop", "metric": HISTOGRAM, "measure": "quantile", "by": "verb", "minus": "5m"}
    told = RECORDING.replace("TARGET", f"127.0.0.1:{server.server_port}")
    told = told.replace("RULES", str(DOCS.parent / "deploy" / "recording-rules.yml"))

    def worst() -> dict[str, float]:
        for resource in ("pods", "nodes"):
            for seconds in (*[0.2] * 9, 0.9):  # of which the mean is 0.27
                took.labels("GET", resource).observe(seconds)
            took.labels("LIST", resource).observe(0.05)
        answer = httpx2.get(
            f"{program.address}/api/v1/series", params=question, headers={"Authorization": f"Bearer {reader}"}
        )
        if answer.status_code == httpx2.codes.NOT_FOUND:
            return {}  # other metrics came first
        answer.raise_for_status()
        return {one["of"]["verb"]: max(filter(None, one["values"])) for one in answer.json()["items"]}

    try:
        with prometheus(tmp_path, told + configuration(program.address, tmp_path / "token")):
            wait_for(lambda: len(worst()) == 2)
            found = worst()
    finally:
        server.shutdown()
        server.server_close()
    assert 0.5 < found["GET"] <= 1.0
    assert 0.05 < found["LIST"] <= 0.1
    kept = await stored(database)
    assert {name for name in kept if name.endswith("_bucket")} == {f"{HISTOGRAM}_bucket"}
    assert not any(":" in name for name in kept)
    buckets = [dict(one.labels) for one in kept[f"{HISTOGRAM}_bucket"]]
    assert {frozenset(one) for one in buckets} == {frozenset({"instance", "job", "le", "verb"})}
    assert len(buckets) == 2 * 5


async def test_prometheus_scrapes_how_foreshock_itself_does(program: Program, tmp_path: Path) -> None:
    async with program.database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, "", purpose=Purpose.SCRAPE, now=datetime.now(UTC))
    (tmp_path / "token").write_text(f"{token}\n")
    with prometheus(tmp_path, scraping(program.address, tmp_path / "token")) as address:
        wait_for(lambda: asked(address, 'sum(foreshock_database_up{job="foreshock"})') == 1)
        assert asked(address, 'up{job="foreshock"}') == 1
        assert asked(address, 'foreshock_worker_last_success_timestamp_seconds{worker="rankings"} > 1e9') > 1e9
        assert asked(address, 'scrape_duration_seconds{job="foreshock"}') < 5
