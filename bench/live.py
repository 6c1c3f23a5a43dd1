"""`foreshock serve` beside a scripted API server: memory of each watched object, and how soon a change is on the page.

`python -m bench.live`, three minutes: with bench.pipeline, which takes seconds, all of what live clusters cost.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import psycopg
from aiohttp import web

from app.store import embedded
from app.store.migrate import migrate
from bench import objects, pipeline
from bench.gates import Gate
from tests.serving import program

FEW, MANY = 10_000, 50_000
"""Watched objects between which the slope is measured."""
RATE = 500
SECONDS = 60
MARKED = 25
"""One change in so many is looked for: made in a namespace of its own, so that asking costs little."""
MARK = "marked"
KINDS = {
    "/apis/apps/v1/deployments": ("Deployment", objects.deployment),
    "/api/v1/pods": ("Pod", objects.pod),
    "/api/v1/configmaps": ("ConfigMap", objects.config_map),
}
WITHIN = 240.0


class ApiServer:
    """Three kinds: all that there is as a stream, then what ``say`` is told."""

    def __init__(self) -> None:
        self._lines: dict[str, asyncio.Queue[bytes]] = {path: asyncio.Queue() for path in KINDS}
        self.version = 0

    def say(self, path: str, kind: str, number: int, *, release: int = 1) -> str:
        """One event of an object; its name."""
        self.version += 1
        one = KINDS[path][1](number, self.version, release=release)
        if number >= MANY:  # one that is looked for
            one["metadata"] |= {"namespace": MARK, "creationTimestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        self._lines[path].put_nowait(objects.line(kind, one) + b"\n")
        return str(one["metadata"]["name"])

    def all_said(self, path: str) -> None:
        self._bookmark(path, {"annotations": {"k8s.io/initial-events-end": "true"}})

    async def remind(self) -> None:
        """Bookmarks, as an API server sends them once a minute: a watch that says nothing is taken for dead."""
        while True:
            await asyncio.sleep(30)
            for path in KINDS:
                self._bookmark(path, {})

    def _bookmark(self, path: str, metadata: dict[str, object]) -> None:
        one = {"kind": KINDS[path][0], "metadata": {"resourceVersion": str(self.version), **metadata}}
        self._lines[path].put_nowait(objects.line("BOOKMARK", one) + b"\n")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/version":
            return web.json_response({"gitVersion": "v1.36.3"})
        if path in ("/api", "/apis"):
            return web.json_response(_discovery(path))
        if path not in self._lines:
            return web.json_response({"message": "not here"}, status=404)
        response = web.StreamResponse()
        await response.prepare(request)
        lines = self._lines[path]
        while True:
            await response.write(await lines.get())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reminding = asyncio.create_task(self.remind())
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        reminding.cancel()
        await runner.cleanup()


def _discovery(path: str) -> dict[str, object]:
    groups: dict[str, list[dict[str, object]]] = {}
    for served, (kind, _) in KINDS.items():
        if served.startswith(path + "/"):
            *_, group, _version, plural = ["", *served.removeprefix(path).strip("/").split("/")][-3:]
            one: dict[str, object] = {"resource": plural, "verbs": ["list", "watch"], "responseKind": {"kind": kind}}
            groups.setdefault(group, []).append(one)
    items = [
        {"metadata": {"name": group}, "versions": [{"version": "v1", "resources": resources}]}
        for group, resources in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}


def _kubeconfig(folder: Path, address: str) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": address}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


def _token(dsn: str) -> str:
    command = [sys.executable, "-m", "app", "token", "create", "--role", "viewer"]
    made = subprocess.run(command, env={**os.environ, "DATABASE_URL": dsn}, capture_output=True, text=True, check=True)
    return made.stdout.split()[-1]


async def _recorded(dsn: str, count: int) -> None:
    """Wait until so many objects are in the database."""
    ends = time.monotonic() + WITHIN
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        while True:
            row = await (await conn.execute("SELECT count(*) FROM objects")).fetchone()
            if row and row[0] >= count:
                return
            if time.monotonic() > ends:
                raise TimeoutError(f"{row} of {count} objects are recorded")
            await asyncio.sleep(0.5)


def _rss(pid: int) -> int:
    """Bytes of a process that are in memory (proc_pid_statm(5))."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def memory(server: ApiServer, dsn: str, pid: int) -> list[Gate]:
    """The slope of the process' memory, and where it ends."""
    said, sizes = 0, list[int]()
    for count in (FEW, MANY):
        while said < count:
            for path in KINDS:
                server.say(path, "ADDED", said // len(KINDS))
                said += 1
            if said % 300 == 0:
                await asyncio.sleep(0)
        if count == FEW:
            for path in KINDS:
                server.all_said(path)
        await _recorded(dsn, count)
        await asyncio.sleep(5)  # what was in flight is freed
        sizes.append(_rss(pid))
    print(f"      memory: {sizes[0] >> 20} MB at {FEW:,} objects, {sizes[1] >> 20} MB at {MANY:,}")
    return [
        Gate("memory of a watched object", (sizes[1] - sizes[0]) / (MANY - FEW), "B", at_most=1500),
        Gate("memory of all of it", sizes[1] / (1 << 20), "MB", at_most=512),
    ]


async def latency(server: ApiServer, address: str, token: str) -> list[Gate]:
    """From the event's first byte to GET /api/v1/changes."""
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    path, total = next(iter(KINDS)), RATE * SECONDS
    done = asyncio.Event()

    async def look() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=30, trust_env=False) as client:
            ends = time.monotonic() + WITHIN
            while not done.is_set() or len(seen) < len(sent):
                answer = await client.get("/api/v1/changes", params={"namespace": MARK, "limit": 100})
                now = time.monotonic()
                for one in answer.raise_for_status().json()["items"]:
                    seen.setdefault(one["resource"]["name"], now)
                if now > ends:
                    raise TimeoutError(f"{len(seen)} of {len(sent)} changes are seen")
                await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    began = time.monotonic()
    for number in range(total):
        late = began + number / RATE - time.monotonic()
        if late > 0:
            await asyncio.sleep(late)
        if number % MARKED == 0:
            sent[server.say(path, "ADDED", MANY + number)] = time.monotonic()
        else:
            server.say(path, "MODIFIED", number % 15_000, release=2 + number // 15_000)
    done.set()
    await looking
    waits = sorted(seen[one] - at for one, at in sent.items())
    p50, p99 = statistics.median(waits), waits[int(len(waits) * 0.99)]
    print(
        f"      event to page at {RATE} events/s for {SECONDS} s, {len(waits)} seen: p50 {p50:.2f} s, p99 {p99:.2f} s"
    )
    return [Gate(f"event to page at {RATE}/s, p99", p99, "s", at_most=2.0)]


async def run(dsn: str, folder: Path) -> list[Gate]:
    server = ApiServer()
    async with server.running() as address:
        environment = {"KUBECONFIG": str(_kubeconfig(folder, address)), "FORESHOCK_CLUSTERS_FILE": ""}
        starting = program(dsn, folder / "serve", "--port", "0", **environment)
        process, own = await asyncio.to_thread(starting.__enter__)
        try:
            gates = await memory(server, dsn, process.pid)
            return [*gates, *await latency(server, own, await asyncio.to_thread(_token, dsn))]
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)


def main() -> int:
    gates = pipeline.throughput()
    with tempfile.TemporaryDirectory(prefix="fb") as name:
        folder = Path(name)
        folder.chmod(0o711)  # the database server's account must pass
        database = embedded.start(folder)
        try:
            migrate(database.dsn)
            (folder / "serve").mkdir()
            gates += asyncio.run(run(database.dsn, folder))
        finally:
            database.stop()
    print(f"      {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f}")
    for gate in gates:
        print(gate)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
