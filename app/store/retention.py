"""Forgets what is old: whole partitions of the logs, and the few rows beside them that nothing refers to any more.

A partition is detached CONCURRENTLY and then dropped: readers and writers of the log go on meanwhile, and the room
comes back at once, without a DELETE and the vacuum after it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.store import arrivals, audit, call_edges, notices
from app.store.codes import codes_of
from app.store.partitions import SPAN

PATIENCE = timedelta(minutes=1)
"""For so long it is waited for who reads a log."""
_NAME = re.compile(r"(?P<table>[a-z_]+)_(?P<day>\d{8})")
_PARTITIONS = text(
    "SELECT c.relname, c.relispartition, coalesce(i.inhdetachpending, false) FROM pg_class c"
    " LEFT JOIN pg_inherits i ON i.inhrelid = c.oid"
    " WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname ~ '_[0-9]{8}$'"
    " ORDER BY c.relname"
)
_INCIDENTS = """
    DELETE FROM incidents WHERE coalesce(merged_into, id) IN (
        SELECT coalesce(merged_into, id) FROM incidents GROUP BY 1
        HAVING max(greatest(started_at, CASE status WHEN 'open' THEN 'infinity' ELSE resolved_at END)) < :before
    )
"""
"""An incident goes with what was merged into it, once all of that is over for so long: what is open stays. What is
suspected and has no end (its cluster tells nothing any more) counts from its beginning."""
_BESIDE = {
    "changes": (
        "UPDATE recorded SET from_at = least(to_at, :before) WHERE from_at < :before",
        "DELETE FROM objects WHERE deleted_at < :before",
        _INCIDENTS,
        "DELETE FROM quarantine WHERE at < :before",
        "DELETE FROM call_edges WHERE last_seen < :before",
        "DELETE FROM import_positions WHERE updated_at < :before",
        "DELETE FROM idempotency_keys WHERE at < :before",
        "DELETE FROM tokens WHERE coalesce(revoked_at, expires_at) < :before",
    )
}
"""Small tables that are not partitioned, and the log whose age they share."""


@dataclass(frozen=True, slots=True)
class SampleAges:
    """The ages at which samples are forgotten: each of them, those kept of a minute, and those kept of an hour."""

    each: timedelta
    minutes: timedelta
    hours: timedelta


def ages(*, changes: timedelta, calls: timedelta, requests: timedelta, samples: SampleAges) -> dict[str, timedelta]:
    """The age at which each log is forgotten: what changed, what was called, each single write, and what was measured.

    What was told of samples is kept until it is packed: something of it may be younger than the oldest tier.
    """
    told = dict.fromkeys(SPAN, changes) | {"call_minutes": calls, "requests": requests}
    return told | {
        "samples": samples.each,
        "samples_minutes": samples.minutes,
        "samples_hours": samples.hours,
        "samples_told": max(samples.each, samples.minutes, samples.hours),
    }


def end_of(name: str) -> datetime | None:
    """Where the time range of a partition ends, by its name; None for a table that is not a partition of ours."""
    parts = _NAME.fullmatch(name)
    if parts is None or parts["table"] not in SPAN:
        return None
    return datetime.strptime(parts["day"], "%Y%m%d").replace(tzinfo=UTC) + SPAN[parts["table"]]


async def drop_expired(engine: AsyncEngine, age_of: Mapping[str, timedelta], *, now: datetime) -> list[str]:
    """Drops the partitions whose last moment is older than their log's age; returns their names.

    What an earlier run left half done (killed, or out of patience behind a long reader) is finished first. Raises
    OperationalError, once all else is forgotten, when a log must be waited for too long: the next run goes on from
    there.
    """
    dropped = []
    awaited: dict[str, OperationalError] = {}
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as conn:
        # Waiting for old readers stops nobody else; it may still not take for ever.
        await conn.execute(text(f"SET statement_timeout = {PATIENCE // timedelta(milliseconds=1)}"))
        try:
            for name, attached, detaching in (await conn.execute(_PARTITIONS)).all():
                end = end_of(name)
                table = name[: -len("_20260101")]
                if end is None or end > now - age_of[table] or table in awaited:
                    continue
                try:
                    await _drop(conn, table, name, attached=attached, detaching=detaching)
                except OperationalError as error:
                    if error.connection_invalidated:
                        raise
                    awaited[table] = error
                else:
                    dropped.append(name)
        finally:
            await conn.execute(text("RESET statement_timeout"))
    async with engine.begin() as conn:
        codes_of(conn).forget(lambda key: key[0] == "partition" and key[1] in dropped)
        await call_edges.forget(conn, now)
        await arrivals.forget(conn, now)
        await notices.forget(conn, now)
        await audit.forget(conn, now)
        for log, statements in _BESIDE.items():
            for statement in statements:
                # A span more: a partition goes when its last moment is too old, its first ones stay that long.
                await conn.execute(text(statement), {"before": now - age_of[log] - SPAN[log]})
    for first in awaited.values():
        raise first
    return dropped


async def _drop(conn: AsyncConnection, table: str, name: str, *, attached: bool, detaching: bool) -> None:
    if detaching:
        await conn.execute(text(f"ALTER TABLE {table} DETACH PARTITION {name} FINALIZE"))
    elif attached:
        await conn.execute(text(f"ALTER TABLE {table} DETACH PARTITION {name} CONCURRENTLY"))
    await conn.execute(text(f"DROP TABLE {name}"))
