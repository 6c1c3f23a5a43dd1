from datetime import UTC, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import partitions

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


async def test_a_batch_s_times_get_the_partitions_they_fall_into(conn: AsyncConnection) -> None:
    await partitions.ensure(conn, "changes", [NOW, NOW - timedelta(days=7), NOW])
    await partitions.ensure(conn, "requests", [NOW])
    rows = await conn.execute(text("SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' ORDER BY 1"))
    assert rows.scalars().all() == ["changes_20261109", "changes_20261116", "requests_20261121"]
