"""`foreshock serve` beside a scripted API server: memory of each watched object, and how soon a change is on the page.

`python -m bench.live`, eight minutes: with bench.pipeline, which takes seconds, all of what live clusters cost.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import psycopg

from app.allocation import TRIMMED_EVERY
from app.store import embedded
from app.store.migrate import migrate
from app.store.scratch import create_database
from bench import pipeline
from bench.apiserver import KINDS, ApiServer
from bench.gates import Gate
from bench.own import postgres
from tests.serving import program

FEW, MANY = 10_000, 50_000
"""Watched objects between which the slope is measured."""
RATE = 500
SECONDS = 60
MARKED = 25
"""One change in so many is looked for: made in a namespace of its own, so that asking costs little."""
MARK = "marked"
LOOK = 0.05
"""Seconds between two looks at the page."""
WITHIN = 240.0
REST = TRIMMED_EVERY + 10.0
"""Seconds after which what was in flight is freed, and went back to the system."""


@dataclass(frozen=True)
class Served:
    """A process of ``serve`` that follows a scripted API server."""

    api: ApiServer
    dsn: str
    pid: int
    address: str


def _kubeconfig(folder: Path, address: str) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": address}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    folder.mkdir()
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


def _token(dsn: str) -> str:
    command = [sys.executable, "-m", "app", "token", "create", "--role", "viewer"]
    made = subprocess.run(command, env={**os.environ, "DATABASE_URL": dsn}, capture_output=True, text=True, check=True)
    return made.stdout.split()[-1]


@asynccontextmanager
async def _serving(api: ApiServer, dsn: str, folder: Path) -> AsyncIterator[Served]:
    """The program at a cluster, once all of its objects, and what it remembers, are recorded."""
    there = api.count
    async with api.running() as address:
        environment = {"KUBECONFIG": str(_kubeconfig(folder, address)), "FORESHOCK_CLUSTERS_FILE": ""}
        starting = program(dsn, folder, "--port", "0", **environment)
        process, own = await asyncio.to_thread(starting.__enter__)
        try:
            await _until(dsn, "SELECT count(*) FROM objects", there)
            await _until(dsn, "SELECT count(*) FROM collectors WHERE past_known", 1)
            await asyncio.sleep(REST)
            yield Served(api, dsn, process.pid, own)
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)


async def _until(dsn: str, query: str, count: int) -> None:
    """Wait until the database counts so many."""
    ends = time.monotonic() + WITHIN
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        while True:
            row = await (await conn.execute(query)).fetchone()
            if row and row[0] >= count:
                return
            if time.monotonic() > ends:
                raise TimeoutError(f"{query}: {row}, not {count:,}")
            await asyncio.sleep(0.5)


def _memory(pid: int) -> tuple[int, int]:
    """Bytes of a process that are in memory, and that were at most (proc_pid_status(5))."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(lines[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM"))
    return now, most


def _fill(api: ApiServer, begin: int, end: int) -> None:
    """Objects of each kind in turn."""
    paths = list(KINDS)
    for number in range(begin, end):
        api.say(paths[number % len(paths)], "ADDED", number // len(paths))


def _slope(few: int, many: int) -> float:
    return (many - few) / (MANY - FEW)


async def watched(dsns: tuple[str, str], folder: Path) -> list[Gate]:
    """The memory of who follows a cluster of so many objects, and what each of them costs."""
    sizes, most = list[int](), 0
    for count, dsn in zip((FEW, MANY), dsns, strict=True):
        api = ApiServer()
        _fill(api, 0, count)
        async with _serving(api, dsn, folder / f"of-{count}") as served:
            size, most = _memory(served.pid)
            sizes.append(size)
        print(f"      memory: {size >> 20} MB at a cluster of {count:,} objects, {most >> 20} MB at most")
    return [
        Gate("memory of a watched object", _slope(*sizes), "B", at_most=1500),
        Gate(f"memory at {MANY:,} objects, at most", most / (1 << 20), "MB", at_most=512),
    ]


async def created(served: Served) -> list[Gate]:
    """What each object costs that is created before its eyes: it is a change, too, and remembered for a while."""
    before, _ = _memory(served.pid)
    began = time.monotonic()
    for begin in range(FEW, MANY, RATE):
        _fill(served.api, begin, begin + RATE)
        await asyncio.sleep(0)
    await _until(served.dsn, "SELECT count(*) FROM objects", MANY)
    took = time.monotonic() - began
    await asyncio.sleep(REST)
    after, most = _memory(served.pid)
    print(
        f"      while {MANY - FEW:,} are created in {took:.0f} s: {_slope(before, after):,.0f} B each,"
        f" {after >> 20} MB, {most >> 20} MB at most"
    )
    return [
        Gate("memory of an object that is created", _slope(before, after), "B", at_most=1500),
        Gate(f"memory once {MANY:,} objects are there, at most", most / (1 << 20), "MB", at_most=512),
    ]


async def latency(served: Served) -> list[Gate]:
    """From the event's first byte to GET /api/v1/changes."""
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    path, total = next(iter(KINDS)), RATE * SECONDS
    token = await asyncio.to_thread(_token, served.dsn)
    done = asyncio.Event()

    async def look() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=served.address, headers=headers, timeout=30, trust_env=False) as client:
            ends = time.monotonic() + WITHIN
            while not done.is_set() or len(seen) < len(sent):
                after: str | None = ""
                while after is not None:  # all that is new, however much came together
                    asked = {"namespace": MARK, "limit": "100"} | ({"after": after} if after else {})
                    answer = (await client.get("/api/v1/changes", params=asked)).raise_for_status().json()
                    now, names = time.monotonic(), [one["resource"]["name"] for one in answer["items"]]
                    after = answer["next"] if seen.keys().isdisjoint(names) else None
                    for name in names:
                        seen.setdefault(name, now)
                if now > ends:
                    raise TimeoutError(f"{len(seen)} of {len(sent)} changes are seen")
                await asyncio.sleep(LOOK)

    looking = asyncio.create_task(look())
    began = time.monotonic()
    for number in range(total):
        late = began + number / RATE - time.monotonic()
        if late > 0:
            await asyncio.sleep(late)
        if number % MARKED == 0:
            sent[served.api.say(path, "ADDED", MANY + number, namespace=MARK)] = time.monotonic()
        else:
            served.api.say(path, "MODIFIED", number % 15_000, release=2 + number // 15_000)
    rate = total / (time.monotonic() - began)
    done.set()
    await looking
    in_order = [seen[one] - at for one, at in sent.items()]
    part = len(in_order) // 6
    parts = (statistics.median(in_order[at : at + part]) for at in range(0, len(in_order), part))
    waits = sorted(in_order)
    p50, p99 = statistics.median(waits), waits[int(len(waits) * 0.99)]
    print(
        f"      event to page at {rate:.0f} events/s for {SECONDS} s, {len(waits)} seen: p50 {p50:.2f} s,"
        f" p99 {p99:.2f} s, the longest {waits[-1]:.2f} s, load {os.getloadavg()[0]:.1f};"
        f" median of each ten seconds {', '.join(f'{one:.1f}' for one in parts)}"
    )
    return [Gate(f"event to page at {RATE}/s, p99", p99, "s", at_most=2.0)]


async def run(dsns: tuple[str, str, str], folder: Path) -> list[Gate]:
    gates = await watched(dsns[:2], folder)
    api = ApiServer()
    _fill(api, 0, FEW)
    async with _serving(api, dsns[2], folder / "created") as served:
        return [*gates, *await created(served), *await latency(served)]


def main() -> int:
    gates = pipeline.throughput()
    with postgres() as server:
        few, many, more = (_database(server.dsn, which) for which in ("bench_few", "bench_many", "bench_more"))
        gates += asyncio.run(run((few, many, more), server.folder))
    print(f"      {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f}")
    for gate in gates:
        print(gate)
    return 0 if all(gate.holds for gate in gates) else 1


def _database(dsn: str, name: str) -> str:
    create_database(dsn, name)
    made = dsn.replace(f"/{embedded.DATABASE}?", f"/{name}?")
    migrate(made)
    return made


if __name__ == "__main__":
    sys.exit(main())
