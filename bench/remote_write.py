"""Remote-write, from the socket to the commit, beside decoding the same requests and raw COPY of the same samples.

And what a sample weighs: hours of a made-up control plane, as they come and once they are packed, in every tier.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import cramjam
import httpx2
import numpy as np
import psycopg
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.collect.remote_write import MESSAGES, decode
from app.core.model import MetricSeries
from app.store import codes, compaction, series, series_keys, tokens
from app.store.chunks import Columns
from app.store.database import Database
from app.store.series_keys import Key
from app.store.tokens import Purpose
from bench.gates import Gate
from tests.serving import served

CLUSTER = "bench"
SERIES, A_REQUEST, SCRAPES = 20_000, 2_000, 10
"""Prometheus sends 2,000 samples at a time, mostly one a series."""
AT_ONCE = 4
ROUNDS = 7
PACKED = 3_000
EACH = 480
"""Series whose weight is taken, and samples of each: of two hours, or of eight."""
START = datetime(2026, 11, 20, 12, tzinfo=UTC)


def _labels(number: int) -> list[tuple[str, str]]:
    """Those of a counter of the API server: ten in 350 bytes."""
    told = {
        "__name__": f"apiserver_request_total_{number % 50}",
        "code": str(200 + number % 7),
        "component": "apiserver",
        "dry_run": "",
        "group": "apps",
        "instance": f"10.0.0.{number % 3}:6443",
        "job": "kubernetes-apiservers",
        "resource": f"deployments-{number}",
        "scope": "namespace",
        "subresource": "status",
        "verb": "PATCH",
        "version": "v1",
    }
    return sorted(told.items())


def _raw_labels() -> list[list[bytes]]:
    label = MESSAGES["Label"]
    return [
        [label(name=name.encode(), value=value.encode()).SerializeToString() for name, value in _labels(number)]
        for number in range(SERIES)
    ]


def _requests(labels: list[list[bytes]], round_: int) -> Iterator[bytes]:
    """One round of scrapes, as they are sent."""
    now = int(time.time() * 1000)
    for scrape in range(SCRAPES):
        at = now - 600_000 + (round_ * SCRAPES + scrape) * 1000
        for first in range(0, SERIES, A_REQUEST):
            request = MESSAGES["Request"]()
            for number in range(first, first + A_REQUEST):
                one = request.timeseries.add(labels=labels[number])
                one.samples.add(value=float(scrape * number), timestamp=at)
            yield bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


async def _sent(address: str, token: str, bodies: list[bytes]) -> float:
    """Seconds until all are answered for, AT_ONCE at a time."""
    head = {"Authorization": f"Bearer {token}"}
    head |= {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
    waiting = iter(bodies)
    async with httpx2.AsyncClient(base_url=address, headers=head, timeout=60) as client:

        async def send() -> None:
            for body in waiting:
                answer = await client.post(f"/intake/prometheus/{CLUSTER}", content=body)
                assert answer.status_code == 204, answer.text

        began = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(AT_ONCE)))
        return time.perf_counter() - began


def _limit(conn: psycopg.Connection[object], bodies: list[bytes]) -> float:
    """Seconds to decode the same requests and COPY their samples, a row each and a transaction a request, into a table
    without an index; encoding the rows is left out."""
    encoded = []
    for body in bodies:
        request = decode(body, lambda _: True)
        with conn.cursor() as cursor:
            cursor.execute("TRUNCATE encoded")
            with cursor.copy("COPY encoded FROM STDIN (FORMAT binary)") as stream:
                stream.set_types(["int4", "int8", "float8"])
                for number, row in enumerate(zip(request.times, request.values, strict=True)):
                    stream.write_row((number, *row))
            with cursor.copy("COPY encoded TO STDOUT (FORMAT binary)") as stream:
                encoded.append(b"".join(bytes(block) for block in stream))
        conn.commit()
    began = time.perf_counter()
    for body, rows in zip(bodies, encoded, strict=True):
        decode(body, lambda _: True)
        with conn.cursor() as cursor, cursor.copy("COPY raw_samples FROM STDIN (FORMAT binary)") as stream:
            stream.write(rows)
        conn.commit()
    return time.perf_counter() - began


async def intake(database: Database, dsn: str) -> Gate:
    """Samples a second of a real ``foreshock serve``, its sender on the same cores."""
    async with database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, CLUSTER, purpose=Purpose.METRICS, now=datetime.now(UTC))
    labels, count = _raw_labels(), SERIES * SCRAPES
    ours, ratios = [], []
    with served(dsn) as address, psycopg.connect(dsn) as raw:
        raw.execute("CREATE TABLE encoded (series int4, at int8, value float8)")
        raw.execute("CREATE TABLE raw_samples (series int4, at int8, value float8)")
        raw.commit()
        for turn in range(ROUNDS + 1):
            bodies = list(_requests(labels, turn))
            took = await _sent(address, token, bodies)
            limit = await asyncio.to_thread(_limit, raw, bodies)
            if turn:  # the first names the series
                ours.append(count / took)
                ratios.append(limit / took)
            else:
                print(f"      remote-write of {SERIES:,} series that are new, and {count:,} samples: {took:.1f} s")
        raw.execute("DROP TABLE encoded, raw_samples")
        raw.commit()
    rate = statistics.median(ours)
    print(
        f"      remote-write, {ROUNDS} rounds of {count:,}: {min(ours):,.0f} to {max(ours):,.0f} samples/s,"
        f" {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of decode and raw COPY of rows"
    )
    return Gate("remote-write, from the socket to the commit", rate, "samples/s", at_least=100_000)


def _values(random: np.random.Generator, number: int, count: int, *, step: int) -> NDArray[np.float64]:
    """Of ten series five count calls, two of these never move; one sums seconds up; four are levels."""
    kind, passed = number % 10, step / 15
    if kind < 3:
        calls = random.poisson(random.choice([0.05, 2, 50, 1000]) * passed, count)
        return (np.cumsum(calls) + random.integers(0, 10**7)).astype(float)
    if kind < 5:
        return np.full(count, float(random.integers(0, 1000)))
    if kind == 5:
        return np.asarray(np.cumsum(random.exponential(0.01 * passed, count)) + random.random() * 1000)
    if kind == 6:
        return np.asarray(np.round(random.normal(20, 5, count)))
    if kind == 7:
        return np.asarray(1e8 + np.cumsum(random.integers(-50, 50, count)) * 4096.0, np.float64)
    if kind == 8:
        return np.asarray(np.round(np.cumsum(random.exponential(0.05, count)), 2))
    return np.where(random.random(count) < 0.05, 1.0, 0.0)


async def _weight(conn: AsyncConnection, table: str) -> int:
    size = await conn.execute(
        text("SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(CAST(:table AS regclass))"),
        {"table": table},
    )
    return int(size.scalar_one())


async def storage(database: Database, step: int, *, at_most: float) -> Gate:
    """What a sample weighs, of scrapes every ``step`` seconds, in tables that hold nothing else."""
    random, count = np.random.default_rng(11), EACH
    every = [_values(random, number, count, step=step) for number in range(PACKED)]
    values = np.array(every)
    names = ("requests_total", "errors_total", "seconds_sum", "depth", "bytes", "cpu_seconds_total", "up")
    keys = [Key(names[n % 7], (("n", str(n)),), "unknown") for n in range(PACKED)]
    first = int(START.timestamp() * 1000)
    async with database.write.begin() as conn:
        await conn.execute(text("TRUNCATE samples, samples_told, samples_minutes, samples_hours"))
        cluster_id = await codes.cluster(conn, f"{CLUSTER} {step}")
        ids = np.array(await series_keys.ids(conn, cluster_id, keys))
        for scrape in range(count):
            for part in range(0, PACKED, 1000):  # three targets, each at a moment of its own
                mine = slice(part, part + 1000)
                at = np.full(1000, first + scrape * step * 1000 + 137 * part // 1000)
                await series.append(conn, cluster_id, Columns(ids[mine], at, values[mine, scrape]))
    async with database.write.begin() as conn:
        told = await _weight(conn, "samples_told")
        began = time.perf_counter()
        while await compaction.compact(conn, now=START + timedelta(days=1)):
            pass
        took = time.perf_counter() - began
    async with database.read.connect() as conn:
        weights = {tier.table: await _weight(conn, tier.table) / (PACKED * count) for tier in series.TIERS}
        found: list[MetricSeries] = await series.read(
            conn, f"{CLUSTER} {step}", START, START + timedelta(days=1), names=["depth"]
        )
    assert sum(len(one.times) for one in found) == count * sum(key.name == "depth" for key in keys)
    tiers = ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items())
    print(
        f"      a sample of {PACKED:,} series scraped every {step} s, B: as it came {told / (PACKED * count):.1f},"
        f" then {tiers}; compacted {PACKED * count / took:,.0f} a second"
    )
    return Gate(f"a sample, every {step} s", weights["samples"], "B all in", at_most=at_most)


async def remote_write(database: Database, dsn: str) -> list[Gate]:
    """All of the above; what a sample weighs before there are other partitions, as an empty one has pages too."""
    return [
        await storage(database, 15, at_most=1.5),
        await storage(database, 60, at_most=1.5),
        await intake(database, dsn),
    ]
