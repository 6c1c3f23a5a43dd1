"""The audit webhook under load: a real kube-apiserver tells a real ``foreshock serve`` of each of many requests, while
PostgreSQL is stopped for a part of the time. Ends with 1 when anything is lost.

``python -m bench.webhook --rate 2000 --minutes 5 --away-minutes 2`` needs KUBEBUILDER_ASSETS (docs/contributing.md).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from prometheus_client.parser import text_string_to_metric_families

from app.store import calls, embedded
from app.store.migrate import migrate
from bench.gates import Gate
from tests.cluster import webhook
from tests.cluster.control_plane import ControlPlane
from tests.serving import program
from tests.test_audit_webhook import token_for
from tests.test_tls import certificate

CLUSTER = "bench"
CONNECTIONS = 8
TICK_SECONDS = 0.02
AGENT = "bench-webhook"
PATH = "/api/v1/namespaces/default/configmaps/none?resourceVersion=0"
"""Answered with 404 out of the API server's own memory: the cheapest request that is an audit event like any other."""
LAST = b"GET /livez HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
WITHIN_MS = 250
DRAIN_SECONDS = 600
KEYS = "SELECT k.id FROM call_keys k JOIN words w ON w.id = k.agent_id WHERE w.word = %s"


class Load:
    """Requests at a steady rate over a few connections, several in a row on each without waiting (HTTP pipelining)."""

    def __init__(self, plane: ControlPlane) -> None:
        host = plane.url.removeprefix("https://")
        self._host, _, port = host.partition(":")
        self._port, self._tls = int(port), ssl.create_default_context(cafile=plane.ca)
        head = f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {plane.token('admin')}\r\n"
        self._request = f"{head}User-Agent: {AGENT}\r\n\r\n".encode()
        self.sent = self.answered = 0

    async def run(self, rate: int, seconds: float) -> float:
        """Send for so long; the rate that was reached."""
        streams = [
            await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=1 << 20)
            for _ in range(CONNECTIONS)
        ]
        readers = [asyncio.create_task(self._count(reader)) for reader, _ in streams]
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate) - self.sent
            if self.sent - self.answered < rate:  # the API server is a second behind: wait for it
                for number, (_, writer) in enumerate(streams):
                    share = (due + number) // CONNECTIONS
                    writer.write(self._request * share)
                    self.sent += share
            await asyncio.sleep(TICK_SECONDS)
        for _, writer in streams:
            writer.write(LAST % self._host.encode())  # the server ends the connection behind its answer
        await asyncio.gather(*readers)
        return self.answered / (time.monotonic() - began)

    async def _count(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"HTTP/1.1 404")
                self.answered += 1


@dataclass(frozen=True, slots=True)
class Told:
    """What the API server says of its audit webhook: events, those it dropped, and its requests by how long each took
    (``within``: of how many the answer came within so many seconds)."""

    events: float
    dropped: float
    requests: float
    refused: float
    within: dict[float, float]

    def __sub__(self, before: Told) -> Told:
        within = {bound: count - before.within.get(bound, 0) for bound, count in self.within.items()}
        return Told(
            self.events - before.events,
            self.dropped - before.dropped,
            self.requests - before.requests,
            self.refused - before.refused,
            within,
        )

    def quantile(self, share: float) -> str:
        """Within how many milliseconds this share of the answers came, as far as the buckets tell."""
        total = max(self.within.values(), default=0)
        below = next((bound for bound, count in sorted(self.within.items()) if count >= share * total), float("inf"))
        return f"<= {below * 1000:g}"


def told_by(plane: ControlPlane, address: str) -> Told:
    host = address.removeprefix("https://")
    with plane.client() as admin:
        text = admin.get("/metrics").text
    kept = "\n".join(line for line in text.splitlines() if "apiserver_audit_" in line or "rest_client_request" in line)
    samples = [one for family in text_string_to_metric_families(kept + "\n") for one in family.samples]

    def total(name: str, **labels: str) -> float:
        return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())

    requests = total("rest_client_requests_total", host=host)
    return Told(
        total("apiserver_audit_event_total"),
        total("apiserver_audit_error_total"),
        requests,
        requests - total("rest_client_requests_total", host=host, code="200"),
        {
            float(one.labels["le"]): one.value
            for one in samples
            if one.name == "rest_client_request_duration_seconds_bucket" and one.labels["host"] == host
        },
    )


def rss_mb(pid: int, what: str) -> float:
    """VmRSS or VmHWM of a process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(f"{what}:"))


def recorded(dsn: str) -> int:
    """How many of our requests are."""
    with psycopg.connect(dsn) as conn:
        keys = [key for (key,) in conn.execute(KEYS, (AGENT,))]
        packed = [payload for (payload,) in conn.execute("SELECT payload FROM call_minutes")]
    counts = map(calls.unpack, packed)
    return sum(int(found[np.isin(found[:, 0], keys), 2].sum()) for found in counts)


@contextmanager
def postgres() -> Iterator[list[embedded.Server]]:
    """Our PostgreSQL, the last of a list: who stops it puts the next one there."""
    folder = Path(tempfile.mkdtemp(prefix="fb"))
    folder.chmod(0o711)  # the server's account must pass
    servers = [embedded.start(folder)]
    migrate(servers[0].dsn)
    try:
        yield servers
    finally:
        servers[-1].stop()
        shutil.rmtree(folder)


async def stopped(servers: list[embedded.Server], *, after: float, seconds: float) -> None:
    """Take the database away for so long."""
    await asyncio.sleep(after)
    folder = servers[-1].folder
    await asyncio.to_thread(servers[-1].stop)
    await asyncio.sleep(seconds)
    servers.append(await asyncio.to_thread(embedded.start, folder))


async def measure(
    plane: ControlPlane, servers: list[embedded.Server], *, rate: int, seconds: float, away: float
) -> tuple[Load, float]:
    load = Load(plane)
    reached, _ = await asyncio.gather(
        load.run(rate, seconds), stopped(servers, after=(seconds - away) / 2, seconds=away)
    )
    return load, reached


def run(folder: Path, *, rate: int, seconds: float, away: float) -> list[Gate]:
    cert, key = certificate(folder)
    with postgres() as servers:
        dsn = servers[0].dsn
        token = token_for(dsn, CLUSTER)
        tls = ("--tls-cert", str(cert), "--tls-key", str(key))
        with (
            program(dsn, folder / "data", "--port", "0", *tls) as (serve, address),
            webhook.telling(folder, address, "--audit-log-path=", cluster=CLUSTER, token=token, cert=cert) as plane,
        ):
            before, memory = told_by(plane, address), rss_mb(plane.apiserver.pid or 0, "VmRSS")
            load, reached = asyncio.run(measure(plane, servers, rate=rate, seconds=seconds, away=away))
            ended = time.monotonic()
            while recorded(dsn) < load.answered and time.monotonic() - ended < DRAIN_SECONDS:
                time.sleep(0.5)
            drained = time.monotonic() - ended
            told = told_by(plane, address) - before
            lost = load.answered - recorded(dsn)
            print(f"{seconds:g} s, PostgreSQL stopped for {away:g} s of them")
            print(f"  requests        {load.answered:,} at {reached:,.0f}/s; wanted {rate:,}/s")
            print(f"  audit events    {told.events:,.0f}; dropped by the API server {told.dropped:g}")
            print(f"  batches         {told.requests:,.0f}; {told.refused:g} not answered with 200")
            print(f"  answers, ms     p50 {told.quantile(0.5)}, p99 {told.quantile(0.99)}, all {told.quantile(1)}")
            print(f"  recorded        {load.answered - lost:,}; all {drained:.0f} s after the last request")
            print(f"  serve           {rss_mb(serve.pid, 'VmHWM'):.0f} MB at most")
            print(f"  kube-apiserver  {memory:.0f} MB before, {rss_mb(plane.apiserver.pid or 0, 'VmHWM'):.0f} at most")
    answers = max(told.within.values(), default=0)
    late = answers - told.within.get(WITHIN_MS / 1000, 0)
    return [
        Gate("requests that are not recorded", abs(lost), "", at_most=0),
        Gate("events that the API server dropped", told.dropped, "", at_most=0),
        Gate(f"answers after more than {WITHIN_MS} ms", 100 * late / max(answers, 1), "%", at_most=1),
        Gate("the rate that was reached", reached, "requests/s", at_least=0.95 * rate),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="The audit webhook under load.")
    parser.add_argument("--rate", type=int, default=2000, help="requests a second")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--away-minutes", type=float, default=2, help="so long PostgreSQL is stopped")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fb"))
    try:
        gates = run(folder, rate=asked.rate, seconds=60 * asked.minutes, away=60 * asked.away_minutes)
    finally:
        shutil.rmtree(folder)
    for gate in gates:
        print(gate)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
