"""Ranking one incident with everything stored: from its gathering, and from an alert's webhook, until it is saved.

Calls are packed as they always are, and repeated by the database, minute after minute, up to the demo's incident. Then
what its apps count of their requests is stored, too, for the window that a ranking reads.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx2
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.collect.garbage import loaded_stays
from app.commands.demo import CLUSTER, replay
from app.core.model import SLOT_SECONDS, CallCount, CallKey
from app.core.ranking.suspects import rank
from app.core.roles import Role
from app.correlate import rank_incident
from app.store import calls, tokens
from app.store.database import Database
from app.store.gathering import CALLS_WINDOW, gather
from app.store.incidents import read_incident
from app.store.partitions import ensure
from app.store.tokens import Purpose
from bench import apps, large_cluster
from bench.gates import Gate, yardstick
from bench.made import Company
from bench.pages import DAYS
from tests.serving import served

KEYS = 240
MINUTES_MADE = 8
"""Minutes of calls that differ; the others repeat them."""
EVERY = 8
"""Of the other clusters, every eighth minute is told of: seven in ten of all call-minutes are theirs."""
ROUNDS = 10
WEBHOOKS = 5
RANKED_MS = 300.0
WEBHOOK_MS = 2000.0

_CALLS = """
INSERT INTO call_minutes (cluster_id, at, total, payload)
SELECT c.id, to_timestamp(60 * m), made.total, made.payload
FROM clusters c CROSS JOIN generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) m
JOIN unnest(CAST(:totals AS int[]), CAST(:payloads AS bytea[])) WITH ORDINALITY AS made (total, payload, number)
  ON made.number = 1 + (m + m / :every) % :made
WHERE c.name = :cluster OR m % :every = 0
"""


def _packed(ids: dict[CallKey, int], minute: list[CallCount]) -> bytes:
    return calls.pack(
        [(ids[one.key], one.slot % calls.MINUTE // SLOT_SECONDS, one.count, one.latency_us) for one in minute]
    )


async def fill(conn: AsyncConnection, start: datetime, end: datetime) -> int:
    """Calls of KEYS callers in every minute of the demo's cluster, fewer in the others; how many call-minutes."""
    company = Company(1)
    made = [company.minute(KEYS, number) for number in range(MINUTES_MADE)]
    ids = await calls.key_ids(conn, (one.key for minute in made for one in minute))
    await ensure(conn, "call_minutes", [start + timedelta(days=day) for day in range((end - start).days + 2)])
    filled = await conn.execute(
        text(_CALLS),
        {
            "totals": [sum(one.count for one in minute) for minute in made],
            "payloads": [_packed(ids, minute) for minute in made],
            "first": int(start.timestamp()) // calls.MINUTE,
            "last": int(end.timestamp()) // calls.MINUTE - 1,
            "every": EVERY,
            "made": MINUTES_MADE,
            "cluster": CLUSTER,
        },
    )
    return filled.rowcount * KEYS


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds, in each round: all of it, saved too; what gathering and ranking alone take; and the yardstick."""

    whole: list[float]
    gathering: list[float]
    ranking: list[float]
    machine: list[float]
    changes: int
    """That were gathered."""


async def _ranked(database: Database, incident_id: str) -> Times:
    """Ranks an incident once more in each round; the first two only warm up."""
    async with database.read.connect() as conn:
        found = await read_incident(conn, incident_id)
    if found is None or found[1] is None:
        raise LookupError(f"incident {incident_id} has no ranking")
    times = Times([], [], [], [], len((await gather(database.write, found[0], found[1].ranked_at)).changes))
    for number in range(ROUNDS + 2):
        now = found[1].ranked_at + timedelta(milliseconds=number)
        began = time.perf_counter()
        gathered = await gather(database.write, found[0], now)
        between = time.perf_counter()
        rank(gathered)
        ended = time.perf_counter()
        await rank_incident(database.write, found[0], now)
        whole, machine = time.perf_counter() - ended, yardstick()
        if number >= 2:
            times.gathering.append((between - began) * 1000)
            times.ranking.append((ended - between) * 1000)
            times.whole.append(whole * 1000)
            times.machine.append(machine)
    return times


def _payload(number: int, at: datetime) -> dict[str, object]:
    """An alert of one namespace, as Alertmanager tells of it."""
    labels = {"alertname": f"KubePodCrashLooping{number}", "namespace": f"team-{number}", "severity": "critical"}
    return {
        "version": "4",
        "groupKey": "{}",
        "status": "firing",
        "alerts": [
            {
                "status": "firing",
                "labels": labels,
                "annotations": {"summary": "pods crash"},
                "startsAt": at.isoformat(),
                "endsAt": "0001-01-01T00:00:00Z",
                "fingerprint": f"bench{number}",
            }
        ],
    }


async def _webhooks(database: Database, dsn: str, first: int = 0) -> list[float]:
    """Milliseconds from an alert that is sent to a real `foreshock serve` until the ranking of its incident is stored,
    of several alerts, of which ``first`` is the number of the first."""
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=datetime.now(UTC))
    times, headers = [], {"Authorization": f"Bearer {token}"}
    with served(dsn) as address:
        async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=60) as client:
            for number in range(first, first + WEBHOOKS):
                alert = _payload(number, datetime.now(UTC) - timedelta(minutes=1))
                began = time.perf_counter()
                answer = (await client.post(f"/intake/alertmanager/{CLUSTER}", json=alert)).raise_for_status()
                times.append((time.perf_counter() - began) * 1000)
                async with database.read.connect() as conn:
                    (found,) = [await read_incident(conn, one) for one in answer.json()["incidents"]]
                if found is None or found[1] is None:
                    raise LookupError(f"the alert of team-{number} was answered before its incident was ranked")
    return times


async def ranking(database: Database, dsn: str, *, changes: int) -> list[Gate]:
    """The gates, where ``changes`` fill the last ninety days: with ten million of them, a hundred million call-minutes
    do too; with fewer, as many fewer fill the last days of it, as densely. Without what apps tell, and with it; and
    from a webhook on, in a cluster of few objects and of many.
    """
    now = datetime.now(UTC)
    incident = await replay(database.write, now=now)
    async with database.write.begin() as conn:
        filled = await fill(conn, now - timedelta(days=max(1, DAYS * changes // 10_000_000)), now)
    await _settle(database)
    stored = f"{changes:,} changes, {filled:,} call-minutes"
    with loaded_stays():  # as `serve` does
        gates = [_gate(stored, await _ranked(database, incident))]
        async with database.write.begin() as conn:
            await apps.fill(conn, CLUSTER, now - 2 * CALLS_WINDOW, now)
        await _settle(database)
        stored = f"{stored}, {apps.SERIES:,} series of apps"
        gates.append(_gate(stored, await _ranked(database, incident)))
        gates.append(_told(stored, await _webhooks(database, dsn)))
        async with database.write.begin() as conn:
            await large_cluster.fill(conn, CLUSTER, now - CALLS_WINDOW)
        await _settle(database)
        stored = f"{stored}, {large_cluster.OBJECTS:,} objects"
        gates.append(_told(stored, await _webhooks(database, dsn, first=WEBHOOKS)))
    return gates


async def _settle(database: Database) -> None:
    """What was filled is as it is after a while."""
    async with database.write.connect() as raw:
        conn = await raw.execution_options(isolation_level="AUTOCOMMIT")
        await conn.execute(text("VACUUM ANALYZE call_minutes, series_keys, samples_told, samples, objects"))
        await conn.execute(text("CHECKPOINT"))


def _told(stored: str, times: list[float]) -> Gate:
    title = f"{stored}: alert to stored ranking, the slowest of {len(times)} (median {statistics.median(times):.0f})"
    return Gate(title, max(times), "ms", at_most=WEBHOOK_MS)


def _gate(stored: str, times: Times) -> Gate:
    shares = (
        f"gathering {statistics.median(times.gathering):.0f}, ranking {statistics.median(times.ranking):.0f}, "
        f"a million additions of Python's {statistics.median(times.machine):.0f}"
    )
    return Gate(
        f"{stored}: one incident ranked, of {times.changes:,} changes, p95 (medians: {shares})",
        statistics.quantiles(times.whole, n=20, method="inclusive")[-1],
        "ms",
        at_most=RANKED_MS,
    )
