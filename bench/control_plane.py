"""The page of a control plane with 20,000 series stored, all of which its graphs are made of: processor time.

The limit is what nobody who reads these rows can save: to fetch them and to unpack their zstd. It is measured in turn
with the page, which is gated as a multiple of it: both take longer where the cores are shared. The control plane is
made up: three API servers of a hundred kinds, and controllers; with codes that are first answered in the midst of it,
a scrape that failed and a server that began anew.

    python -m bench.control_plane
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx2
import numpy as np
from sqlalchemy import text

from app.collect.garbage import loaded_stays
from app.core.metrics.lines import STARTED
from app.core.metrics.measures import LOOKBACK_SECONDS, window_grid
from app.core.model import Batch
from app.core.roles import Role
from app.core.stale import STALE
from app.store import codec, codes, compaction, reach, series, series_keys, tokens
from app.store.chunks import Columns
from app.store.database import Database
from app.store.record import record
from app.store.series_keys import Key
from app.store.tokens import Purpose
from app.web.control_plane import BINS
from app.web.deps import Deps
from app.web.routes import create_app
from bench.gates import Gate
from bench.own import alone

CLUSTER = "bench"
SERIES = 20_000
SCRAPED = 30
"""Seconds between two scrapes, as Foreshock itself scrapes."""
A_REQUEST = 2_000
HOURS = 7
RESTART, FAILED = HOURS * 3600 - 1500, HOURS * 3600 - 900
"""When a server begins anew, and when another does not answer."""
END = datetime(2026, 11, 20, 12, 40, tzinfo=UTC)
"""The running hour is read as it was told."""
WINDOWS = {1: 20.0, 6: 45.0}
"""Hours that are asked for, and how many times the limit they may take."""
ROUNDS, WARM = 15, 2
"""The first ones read what is then remembered."""
VERBS = ("GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE", "APPLY")

_ROWS = text("""
SELECT payload FROM samples_told WHERE at >= :start
UNION ALL SELECT payload FROM samples WHERE at >= :start AND :fine
UNION ALL SELECT payload FROM samples_minutes WHERE at > CAST(:start AS timestamptz) - interval '6 hours' AND NOT :fine
""")
"""What a window that begins in the hour :start must read: samples of every scrape, or those that stand for minutes."""

Told = tuple[str, dict[str, str]]


def _server() -> Iterator[Told]:
    """What one API server tells."""
    for number in range(103):
        kind = {"group": f"group-{number % 12}.example", "resource": f"kind-{number}s", "version": "v1"}
        for verb in VERBS:
            request = kind | {"verb": verb, "scope": "namespace", "component": "apiserver", "subresource": ""}
            for code in ("200", "404", "409"):
                yield "apiserver_request_total", request | {"code": code, "dry_run": ""}
            for part in ("sum", "count"):
                yield f"apiserver_request_duration_seconds_{part}", request | {"dry_run": ""}
        for operation in ("get", "list", "create", "update", "delete", "listWithCount"):
            for part in ("sum", "count"):
                yield f"etcd_request_duration_seconds_{part}", {"operation": operation, "type": kind["resource"]}
        yield "apiserver_watch_events_total", kind | {"kind": f"Kind{number}"}
        yield "apiserver_longrunning_requests", kind | {"verb": "WATCH", "scope": "cluster"}
        yield "apiserver_storage_objects", {"resource": kind["resource"]}
        yield "apiserver_terminated_watchers_total", kind
    for number in range(12):
        level = {"priority_level": f"level-{number}", "flow_schema": f"schema-{number}"}
        yield "apiserver_flowcontrol_current_executing_requests", level
        yield "apiserver_flowcontrol_current_inqueue_requests", level
        yield "apiserver_flowcontrol_rejected_requests_total", level | {"reason": "queue-full"}
        for part in ("sum", "count"):
            yield f"apiserver_flowcontrol_request_wait_duration_seconds_{part}", level
            webhook = {"name": f"hook-{number}.example", "type": "admit", "operation": "CREATE"}
            yield f"apiserver_admission_webhook_admission_duration_seconds_{part}", webhook
    for sort in ("mutating", "readOnly"):
        yield "apiserver_current_inflight_requests", {"request_kind": sort}
    yield from _process()


def _process() -> Iterator[Told]:
    for name in ("process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total"):
        yield name, {}
    yield "go_goroutines", {}


def _controller(queues: int) -> Iterator[Told]:
    for number in range(queues):
        name = {"name": f"queue-{number}"}
        for metric in ("depth", "adds_total", "retries_total", "work_duration_seconds_sum"):
            yield f"workqueue_{metric}", name
        yield "workqueue_work_duration_seconds_count", name
    yield from _process()


def _targets() -> Iterator[tuple[str, str, list[Told]]]:
    """Job, instance and series of all that is scraped."""
    for number in range(3):
        yield "kube-apiserver", f"10.0.0.{number}:6443", list(_server())
    for number in range(2):
        yield "kube-controller-manager", f"10.0.0.{number}:10257", list(_controller(70))
    for number in range(200):
        yield f"operator-{number}", f"10.1.0.{number}:8080", list(_controller(1))


class _Plane:
    """Keys of SERIES series, and what each scrape of them tells."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(11)
        self.keys: list[Key] = []
        targets = []
        for number, (job, instance, told) in enumerate(_targets()):
            for name, labels in told[: SERIES - len(self.keys)]:
                self.keys.append(Key(name, tuple(sorted((labels | {"job": job, "instance": instance}).items())), ""))
                targets.append(number)
        self.target = np.array(targets)
        self.offset = self.random.integers(0, SCRAPED * 1000, targets[-1] + 1)[self.target]
        self.counts = np.array([key.counts for key in self.keys])
        self.starts = np.array([key.name == STARTED for key in self.keys])
        quiet = self.starts | (self.random.random(SERIES) < 0.6)
        self.pace = np.where(quiet, 0.0, self.random.lognormal(1, 2, SERIES))
        begun = self.random.integers(0, HOURS * 3600, SERIES)
        self.begun = np.where(~self.starts & (self.random.random(SERIES) < 0.02), begun, 0)
        self.now = self.random.integers(1, 10**6, SERIES).astype(float)
        self.now[self.starts] = (END - timedelta(days=20)).timestamp()

    def scrape(self, seconds: int, begin: datetime) -> Columns:
        """What all targets tell once, each at a moment of its own; series by their places in ``keys``."""
        steps = self.random.poisson(self.pace).astype(float)
        sign = np.where(self.counts, 1, self.random.choice([-1, 1], SERIES))
        now = np.maximum(self.now + sign * steps, 0.0)
        if seconds == RESTART:
            mine = self.target == 1
            now[mine & self.counts] = steps[mine & self.counts]
            now[mine & self.starts] = begin.timestamp() + seconds - 5
        self.now = now
        told = np.where((self.target == 2) & (seconds == FAILED), STALE, now)
        there = np.flatnonzero(self.begun <= seconds)
        return Columns(there, (int(begin.timestamp()) + seconds) * 1000 + self.offset[there], told[there])


async def fill(database: Database) -> None:
    """HOURS of it up to END, those that have ended packed."""
    plane, begin = _Plane(), END - timedelta(hours=HOURS)
    async with database.write.begin() as conn:
        await record(conn, Batch(CLUSTER, read_to=((reach.METRICS, END),)))
        cluster_id = await codes.cluster(conn, CLUSTER)
        ids = np.array(await series_keys.ids(conn, cluster_id, plane.keys))
    for seconds in range(0, HOURS * 3600, SCRAPED):
        rows = plane.scrape(seconds, begin)
        async with database.write.begin() as conn:
            for first in range(0, len(rows.series), A_REQUEST):
                part = rows.between(first, first + A_REQUEST)
                await series.append(conn, cluster_id, Columns(ids[part.series], part.times, part.values))
    more = True
    while more:
        async with database.write.begin() as conn:
            more = await compaction.compact(conn, now=END) is not None
    async with database.write.connect() as raw:
        await (await raw.execution_options(isolation_level="AUTOCOMMIT")).execute(text("VACUUM ANALYZE"))


async def _limit(database: Database, *, hours: int) -> float:
    """Milliseconds of processor time to fetch the samples of a window and to unpack their zstd."""
    start = END - timedelta(hours=hours, seconds=LOOKBACK_SECONDS)
    grid = window_grid(start.timestamp(), END.timestamp(), most=BINS)
    began = time.process_time()
    async with database.read.connect() as conn:
        asked = {"start": series.hour_of(start), "fine": grid.step < series.MINUTE.total_seconds()}
        for (payload,) in await conn.execute(_ROWS, asked):
            codec.unpack(payload[1:])
    return (time.process_time() - began) * 1000


async def measure(database: Database) -> list[Gate]:
    """The page of each of WINDOWS beside the limit, in turn: processor time of this process, without PostgreSQL's."""
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=END)
    deps = Deps(read=database.read, write=database.write, public_url="http://bench", clock=lambda: END)
    client = httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=create_app(deps)),
        base_url="http://bench",
        headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"},
        timeout=60,
    )
    with loaded_stays():  # as `serve` does
        async with client:
            return [await _page(client, database, hours=hours, at_most=most) for hours, most in WINDOWS.items()]


async def _page(client: httpx2.AsyncClient, database: Database, *, hours: int, at_most: float) -> Gate:
    """One page beside its limit."""
    path = f"/clusters/{CLUSTER}/control-plane?minus={hours}h"
    ours, limits = [], []
    for turn in range(ROUNDS + WARM):
        began = time.process_time()
        (await client.get(path)).raise_for_status()
        took = (time.process_time() - began) * 1000
        limit = await _limit(database, hours=hours)
        if turn >= WARM:
            ours.append(took)
            limits.append(limit)
    print(
        f"      control plane, {hours} h: {statistics.median(ours):.0f} ({min(ours):.0f} to {max(ours):.0f}) ms"
        f" of processor time; fetching and unpacking alone {statistics.median(limits):.0f}"
    )
    ratio = statistics.median(one / other for one, other in zip(ours, limits, strict=True))
    title = f"control plane of {SERIES:,} series, {hours} h, beside fetching and unpacking its samples"
    return Gate(title, ratio, "x", at_most=at_most)


async def control_plane(database: Database) -> list[Gate]:
    """All of it, in an empty database."""
    await fill(database)
    return await measure(database)


def main() -> int:
    gates = alone(control_plane)
    for gate in gates:
        print(gate)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
