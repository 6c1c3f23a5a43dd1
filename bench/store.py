"""The write step beside raw COPY of the same rows, already encoded, into the same tables with the same indexes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.store import calls, changes, codes, objects, partitions, requests
from app.store.copy import copy
from bench.gates import Gate
from bench.made import CLUSTER, START, Company

KEY: dict[str, tuple[str, Callable[[Any], int]]] = {
    "changes": ("version_key", lambda one: one.key),
    "requests": ("event_key", lambda one: one.event_key),
}
LOG: dict[str, Any] = {"changes": changes, "requests": requests}


def _names(table: str) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, LOG[table].COLUMNS))


async def _step(engine: AsyncEngine, table: str, batch: list[Any]) -> float:
    """Seconds of the write step: coded rows to commit."""
    async with engine.connect() as conn, conn.begin() as transaction:
        rows = list(await LOG[table].rows(conn, await codes.cluster(conn, CLUSTER), batch))
        began = time.perf_counter()
        await copy(conn, table, LOG[table].COLUMNS, rows)
        await transaction.commit()
        return time.perf_counter() - began


async def _whole(engine: AsyncEngine, table: str, batch: list[Any]) -> float:
    """Seconds of all of it: nouns, told before or not, to commit."""
    async with engine.connect() as conn, conn.begin() as transaction:
        began = time.perf_counter()
        await LOG[table].write(conn, await codes.cluster(conn, CLUSTER), batch)
        await transaction.commit()
        return time.perf_counter() - began


def _encoded(conn: psycopg.Connection[Any], table: str, batch: list[Any]) -> bytes:
    """The rows of a batch that is stored, in its order, as binary COPY gives them."""
    column, key = KEY[table]
    query = sql.SQL("COPY (SELECT {} FROM {} WHERE {} = ANY({}) ORDER BY ctid) TO STDOUT (FORMAT binary)").format(
        _names(table), sql.Identifier(table), sql.Identifier(column), sql.Literal([key(one) for one in batch])
    )
    with conn.cursor().copy(query) as stream:
        return b"".join(bytes(block) for block in stream)


def _raw(conn: psycopg.Connection[Any], table: str, encoded: bytes) -> float:
    """Seconds that the database needs for the same rows when nothing is left to do but take them."""
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(sql.Identifier(table), _names(table))
    began = time.perf_counter()
    with conn.cursor() as cursor, cursor.copy(statement) as stream:
        stream.write(encoded)
    conn.commit()
    return time.perf_counter() - began


async def write_step(
    ours: AsyncEngine, theirs: AsyncEngine, dsns: tuple[str, str], *, table: str, size: int, pairs: int
) -> Gate:
    """The median over ``pairs`` of raw time / our time for batches of ``size``; the two take turns.

    The gate is on the write step, coded rows to commit. Printed beside it: all of write(), with its coding of
    nouns and its look for writes that are known already.
    """
    company = Company(size)
    for engine in (ours, theirs):
        async with engine.begin() as conn:
            await objects.upsert(conn, await codes.cluster(conn, CLUSTER), company.states())
            await partitions.ensure(conn, table, [START])
    ratios: dict[str, list[float]] = {"step": [], "whole": []}
    limit = []
    with (
        psycopg.connect(dsns[0], autocommit=True) as source,
        psycopg.connect(dsns[1]) as target,
        psycopg.connect(dsns[1], autocommit=True) as reader,
    ):
        for name, ours_of in (("step", _step), ("whole", _whole)):
            for turn in range(pairs + 2):
                batch: list[Any] = company.changes(size) if table == "changes" else company.requests(size)
                took = await ours_of(ours, table, batch)
                raw = _raw(target, table, _encoded(source, table, batch))
                _encoded(reader, table, batch)  # both sides' rows are read once: reading sets hint bits
                if turn >= 2:  # the first pairs fill the caches
                    ratios[name].append(raw / took)
                    limit.append(size / raw)
    steps = ratios["step"]
    print(
        f"      {table}, {size} a batch, {pairs} pairs: raw COPY {statistics.median(limit):,.0f} rows/s,"
        f" write step {statistics.median(steps):.2f} of it ({min(steps):.2f} to {max(steps):.2f}),"
        f" with coding and the look for known writes {statistics.median(ratios['whole']):.2f}"
    )
    return Gate(f"write step of {table}, {size} a batch, beside raw COPY", statistics.median(steps), "", at_least=0.85)


async def _bytes_a_row(conn: AsyncConnection, table: str, rows: int) -> float:
    """What a table with its partitions, indexes and TOAST weighs, shared by ``rows``."""
    size = await conn.execute(
        text("SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(CAST(:table AS regclass))"),
        {"table": table},
    )
    return float(size.scalar_one()) / rows


async def storage(engine: AsyncEngine) -> list[Gate]:
    """What a request, a change and a key-minute of calls weigh with their indexes, in tables filled once."""
    company, rows, minutes, keys = Company(7), 60_000, 60, 1000
    async with engine.begin() as conn:
        number = await codes.cluster(conn, CLUSTER)
        await objects.upsert(conn, number, company.states())
        for _ in range(rows // 2000):
            await requests.write(conn, number, company.requests(2000))
        changed = company.changes(rows // 3)
        for first in range(0, len(changed), 2000):
            await changes.write(conn, number, changed[first : first + 2000])
        for minute in range(minutes):
            await calls.write(conn, number, company.minute(keys, minute))
        return [
            Gate("a request", await _bytes_a_row(conn, "requests", rows), "B with its index", at_most=130),
            Gate("a change", await _bytes_a_row(conn, "changes", len(changed)), "B all in", at_most=600),
            Gate("a key-minute", await _bytes_a_row(conn, "call_minutes", minutes * keys), "B all in", at_most=25),
        ]
