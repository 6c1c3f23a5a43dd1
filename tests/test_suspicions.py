"""Which clusters are looked at for what turned bad: those that are followed, and those that told something lately."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from app import correlate
from app import main as root
from app.core.model import Batch
from app.settings import Settings
from app.store import incidents
from app.store.database import Database
from app.store.record import record
from tests.core.factories import a_change, a_resource

ACCOUNT = a_resource("ServiceAccount", "web", "shop")
PATH = ("metadata", "annotations", "owner")


def fight(cluster: str, until: datetime) -> Batch:
    """Two who write an annotation, each time another way, once a second."""
    blows = [
        a_change(
            replace(ACCOUNT, cluster=cluster),
            at=until - timedelta(seconds=150 - number),
            path=PATH,
            old="ab"[number % 2],
            new="ba"[number % 2],
        )
        for number in range(150)
    ]
    return Batch(cluster, changes=tuple(replace(blow, sources=frozenset({"audit"})) for blow in blows))


async def test_a_cluster_that_is_fed_is_looked_at_as_one_that_is_followed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    monkeypatch.setattr(root, "now", lambda: now)
    async with database.write.begin() as conn:
        await record(conn, fight("fed", now))
        await record(conn, fight("long-ago", now - 2 * correlate.LIVELY))
    (worker,) = (one for one in root.workers(Settings(), database) if one.name == "suspicions")
    await worker.work()
    async with database.read.connect() as conn:
        found = await incidents.list_incidents(conn, status="suspected")
    assert [(one.cluster, one.title[:29]) for one in found] == [("fed", "Write fight over annotation o")]
    now += correlate.LIVELY - timedelta(minutes=1)
    await worker.work()
    async with database.read.connect() as conn:
        (over,) = await incidents.list_incidents(conn, status="suspected")
    assert over.resolved_at is not None, "it is looked at until that has ended"
