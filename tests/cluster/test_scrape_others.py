"""CoreDNS and a controller of controller-runtime are scraped as `scrape` in clusters.yaml names them: real ones, and
what they told is what the page of the control plane draws and the ranking watches."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np

from app.core.metrics.families import FAMILIES
from app.core.metrics.lines import laid, lines
from app.core.metrics.measures import Measure
from app.store import series
from app.store.database import Database
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import Program, wait_until
from tests.cluster.test_metrics import make
from tests.cluster.test_scrape import WINDOW, Scraping, scraping, values
from tests.collect.test_importer import T0
from tests.programs import found_scraped, free_address

COREFILE = """
.:{port} {{
    bind 127.0.0.1
    health {health}
    errors
    prometheus {metrics}
    hosts {{
        10.0.0.1 web.example
        fallthrough
    }}
    forward broken.example 127.0.0.1:1
    forward . {upstream}
}}
.:{upstream_port} {{
    bind 127.0.0.1
    hosts {{
        10.0.0.2 elsewhere.example
    }}
}}
"""
"""It knows a name, asks another server for others, and cannot reach the one that it is to ask for broken.example."""
NOERROR, SERVFAIL = 0, 2
"""Codes of answers: https://www.rfc-editor.org/rfc/rfc1035#section-4.1.1 ."""
WAITING = 5


@contextmanager
def started(program: Program) -> Iterator[None]:
    try:
        program.start()
        yield
    finally:
        program.stop(kill=True)


def asked_for(name: str, address: str) -> int:
    """The code of a name server's answer to a question for the address of a name."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, 1, 1)
    host, port = address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(10)
        one.sendto(question, (host, int(port)))
        return int(one.recv(512)[3] & 0x0F)


async def watched(one: Scraping, database: Database, title: str) -> dict[tuple[str, ...], float]:
    """What the ranking sees of one of its families: by what splits it, the highest value."""
    (family,) = (family for family in FAMILIES if family.title == title)
    async with database.read.connect() as conn:
        told = laid(await series.read(conn, one.wanted.name, T0, T0 + WINDOW), until=(T0 + WINDOW).timestamp())
    assert told
    return {split: float(np.nanmax(line)) for split, line in lines(told, family).items()}


async def test_what_a_coredns_tells_is_drawn_and_watched(database: Database, tmp_path: Path) -> None:
    dns, upstream, health, metrics = (free_address() for _ in range(4))
    file = tmp_path / "Corefile"
    port, upstream_port = (address.partition(":")[2] for address in (dns, upstream))
    file.write_text(
        COREFILE.format(port=port, health=health, metrics=metrics, upstream=upstream, upstream_port=upstream_port)
    )
    command = [found_scraped("coredns"), "-conf", str(file)]
    with started(Program(command, tmp_path / "log", health=f"http://{health}/health")):
        target = {"job": "coredns", "url": f"http://{metrics}/metrics"}
        async with scraping(database, tmp_path, target) as one:
            for name, code in (
                ("web.example", NOERROR),
                ("elsewhere.example", NOERROR),
                ("db.broken.example", SERVFAIL),
            ):
                assert await asyncio.to_thread(asked_for, name, dns) == code, name
            await one.again()
            await one.again()
            assert one.measuring.remarks == ()

            codes = await one.panel("dns")
            assert {line.of[0] for line in codes.curves} == {"NOERROR", "SERVFAIL"}
            assert max(values(codes, "NOERROR")) == 2 * max(values(codes, "SERVFAIL")) > 0
            for key, split in (("dnslatency", ()), ("resolvers", (upstream,))):
                latency = await one.panel(key)
                assert latency.measure is Measure.QUANTILE, key
                assert 0 < max(values(latency, *split)) < 10, key
            assert set(await watched(one, database, "DNS failures")) == {("SERVFAIL",)}
            assert min(values(await one.panel("memory"), "coredns")) > 1e6


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


def said(address: str, series: str) -> float:
    """The sum of those series of a program that begin so, as it says itself."""
    told = httpx2.get(f"http://{address}/metrics", trust_env=False).text.splitlines()
    return sum(float(line.split()[-1]) for line in told if line.startswith(series))


def depth(address: str) -> float:
    """How much waits."""
    return said(address, "workqueue_depth{")


def at_work(address: str) -> float:
    """How many objects it sees to just now."""
    return said(address, "controller_runtime_active_workers{")


def failed(address: str) -> float:
    """How often an object was not brought to what is wanted."""
    return said(address, "controller_runtime_reconcile_errors_total{")


async def test_what_a_controller_tells_is_drawn_and_watched(
    database: Database, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    metrics = free_address()
    command = [
        found_scraped("controller"),
        f"--kubeconfig={control_plane.kubeconfig()}",
        f"--namespace={namespace}",
        f"--metrics={metrics}",
    ]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with (
        started(Program(command, tmp_path / "log", health=f"http://{metrics}/metrics")),
        control_plane.client() as admin,
    ):
        target = {"job": "controller", "url": f"http://{metrics}/metrics"}
        async with scraping(database, tmp_path, target) as one:
            make(admin, path, config_map("first", wait="true"))
            await asyncio.to_thread(wait_until, lambda: at_work(metrics) == 1, "the first is seen to")
            for number in range(WAITING):
                make(admin, path, config_map(f"wanted-{number}", annotation="seen"))
            make(admin, path, config_map("refused", annotation="not valid!"))
            await asyncio.to_thread(wait_until, lambda: depth(metrics) == WAITING + 1, "others wait behind the first")
            await one.again()
            assert admin.delete(f"{path}/first").is_success
            await asyncio.to_thread(wait_until, lambda: failed(metrics) >= 3, "what is refused is tried again")
            await one.again()
            assert one.measuring.remarks == ()

            assert max(values(await one.panel("depth"), "configmap")) >= WAITING + 1
            assert max(values(await one.panel("refused"), "controller", "422")) > 0
            for key in ("adds", "retries", "work", "reconcile", "failed"):
                assert max(values(await one.panel(key), "configmap")) > 0, key
            for key in ("work", "reconcile"):
                latency = await one.panel(key)
                assert latency.measure is Measure.QUANTILE, key
                assert max(values(latency, "configmap")) < 600, key
            for title in ("Queue depth", "Queue adds", "Retries", "Failed reconciles"):
                told = await watched(one, database, title)
                assert told["configmap",] > 0, title
            assert min(values(await one.panel("memory"), "controller")) > 1e6
