"""Pages and REST with a million, or ten million, changes stored: server time, statements, bytes.

The history is made in the database itself; the incident is the demo's, in the busiest cluster, at its end.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime, timedelta

import httpx2
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.commands.demo import replay
from app.core.roles import Role
from app.store import tokens
from app.store.database import Database
from app.store.partitions import ensure
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app
from bench.gates import Gate, yardstick

DAYS = 90
CLUSTERS = 20
ROUNDS = 60
P95_MS = 50.0
STATEMENTS = 4

_NAMES = """
INSERT INTO clusters (name) SELECT 'c' || g FROM generate_series(1, :clusters) g ON CONFLICT DO NOTHING;
INSERT INTO words (word) SELECT 'team-' || g FROM generate_series(1, 300) g ON CONFLICT DO NOTHING;
INSERT INTO words (word) SELECT 'system-serviceaccount-team-' || g FROM generate_series(1, 300) g
  ON CONFLICT DO NOTHING;
INSERT INTO objects (cluster_id, kind_id, namespace_id, name, uid, resource_version, seen_at)
  SELECT c.id, k.id, w.id, 'app-' || g, 'uid-' || c.id || '-' || g, '1', now()
  FROM generate_series(1, 1000) g
  CROSS JOIN clusters c
  JOIN LATERAL (SELECT id FROM kinds ORDER BY (id * 7919 + g) % 97 LIMIT 1) k ON true
  JOIN LATERAL (SELECT id FROM words WHERE word = 'team-' || (g % 300 + 1)) w ON true
  ON CONFLICT DO NOTHING
"""

_HISTORY = """
INSERT INTO changes (at, version_key, cluster_id, object_id, kind_id, namespace_id, actor_id, agent_id, pod_id, verb,
                     actor_source, diff_source, sources, noise, resource_version, summary, diff)
SELECT :start + (random() * :seconds) * interval '1 second', CAST(random() * 9e18 AS bigint), o.cluster_id, o.id,
       o.kind_id, o.namespace_id, a.id, a.id, a.id, 1, 0, 0, 3, random() < 0.3, CAST(g AS text),
       'image of ' || o.name || ': v1.' || g % 90 || '.0 → v1.' || g % 90 + 1 || '.0', '[]'
FROM generate_series(1, :count) g
JOIN LATERAL (SELECT g % :objects AS pick) p ON true
JOIN made o ON o.number = (CASE WHEN g % 10 < 3 THEN p.pick % 1000 ELSE p.pick END)
JOIN actors a ON a.number = g % 300
"""


async def fill(database: Database, count: int, *, start: datetime, end: datetime) -> None:
    """``count`` changes between two times; three in ten of them in the demo's cluster."""
    async with database.write.begin() as conn:
        await ensure(conn, "changes", [start + timedelta(days=day) for day in range((end - start).days + 1)])
        for statement in _NAMES.split(";"):
            await conn.execute(text(statement), {"clusters": CLUSTERS} if ":clusters" in statement else {})
        await conn.execute(
            text(
                "CREATE TEMP TABLE made ON COMMIT DROP AS"
                " SELECT row_number() OVER (ORDER BY (c.name <> 'demo'), o.id) - 1 AS number, o.*"
                " FROM objects o JOIN clusters c ON c.id = o.cluster_id WHERE o.name LIKE 'app-%'"
            )
        )
        await conn.execute(
            text(
                "CREATE TEMP TABLE actors ON COMMIT DROP AS SELECT row_number() OVER (ORDER BY id) - 1 AS number, id"
                " FROM words WHERE word LIKE 'system-serviceaccount-team-%'"
            )
        )
        for table in ("made", "actors"):
            await conn.execute(text(f"CREATE INDEX ON {table} (number)"))
            await conn.execute(text(f"ANALYZE {table}"))
        objects = (await conn.execute(text("SELECT count(*) FROM made"))).scalar_one()
        step = 500_000
        for first in range(0, count, step):
            part = {"count": min(step, count - first), "objects": objects}
            await conn.execute(text(_HISTORY), {"start": start, "seconds": (end - start).total_seconds()} | part)
    async with database.write.connect() as raw:
        conn = await raw.execution_options(isolation_level="AUTOCOMMIT")
        await conn.execute(text("VACUUM ANALYZE"))
        await conn.execute(text("CHECKPOINT"))  # what was filled in is written now, not while pages are measured


class Counted:
    """Counts the statements of an engine."""

    def __init__(self, *engines: AsyncEngine) -> None:
        self.statements = 0
        for engine in engines:
            event.listen(engine.sync_engine, "before_cursor_execute", self._count)

    def _count(self, *_arguments: object) -> None:
        self.statements += 1


async def measure(database: Database, *, title: str, now: datetime) -> tuple[list[Gate], dict[str, float]]:
    """The gates of every page at this size, and each page's median in ms."""
    incident = await replay(database.write, now=now)
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=now)
    counted = Counted(database.read, database.write)
    deps = Deps(read=database.read, write=database.write, public_url="http://bench", clock=lambda: now)
    paths = {
        "incident": f"/incidents/{incident}",
        "incidents": "/",
        "changes": "/changes",
        "changes of a namespace": "/changes?cluster=demo&namespace=team-7",
        "changes of a kind": "/changes?cluster=demo&kind=Deployment",
        "changes with words": "/changes?text=v1.33",
        "changes with words that match nothing": "/changes?text=v1.99.9",
        "REST changes": "/api/v1/changes?cluster=demo&limit=100",
        "what-changed": "/api/v1/what-changed?minus=30m",
    }
    gates, medians = [], {}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=create_app(deps)),
        base_url="http://bench",
        headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"},
        timeout=60,
    ) as client:
        for name, path in paths.items():
            for _ in range(5):
                (await client.get(path)).raise_for_status()
            counted.statements, times = 0, []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                (await client.get(path)).raise_for_status()
                times.append((time.perf_counter() - began) * 1000)
            medians[name] = statistics.median(times)
            p95 = statistics.quantiles(times, n=20)[-1]
            gates.append(Gate(f"{title}: {name}, p95 (median {medians[name]:.1f})", p95, "ms", at_most=P95_MS))
            gates.append(Gate(f"{title}: {name}, statements", counted.statements / ROUNDS, "", at_most=STATEMENTS))
    return gates, medians


async def pages(database: Database, sizes: list[int]) -> list[Gate]:
    """Every size in turn, in one database; then how the medians grew."""
    now = datetime.now(UTC)
    gates: list[Gate] = []
    seen: list[dict[str, float]] = []
    stored = 0
    for size in sizes:
        await replay(database.write, now=now)
        await fill(database, size - stored, start=now - timedelta(days=DAYS), end=now)
        stored = size
        print(f"{size:,} changes: a million additions of Python's take {yardstick():.0f} ms")
        found, medians = await measure(database, title=f"{size:,} changes", now=now)
        gates += found
        seen.append(medians)
    if len(seen) > 1:
        gates += [
            Gate(f"{name}, {sizes[-1]:,} beside {sizes[0]:,}", seen[-1][name] / seen[0][name], "×", at_most=1.2)
            for name in seen[0]
        ]
    return gates
