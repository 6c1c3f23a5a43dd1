"""Samples as they are asked for, and how far each source of them was: noted in the transaction that records them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from math import isnan

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.lines import UP
from app.core.model import Batch, MetricSeries
from app.store import codec, codes, reach, series, tables

_table = tables.metric_positions


async def read_until(conn: AsyncConnection, cluster: str, source: str) -> datetime | None:
    """Up to when a source was asked; None where it never was."""
    number = await codes.find_cluster(conn, cluster)
    found = select(_table.c.until).where(_table.c.cluster_id == number, _table.c.source == codec.clean(source))
    return (await conn.execute(found)).scalar_one_or_none()


async def record(
    conn: AsyncConnection,
    cluster: str,
    told: Iterable[MetricSeries],
    *,
    source: str = "",
    until: datetime | None = None,
) -> None:
    """Record samples, up to when they tell of the cluster, and that ``source`` was asked up to then. Told again, a
    sample is one. The caller commits.

    No incident is ranked anew for them: that is done after three and after ten minutes.
    """
    found = list(told)
    number = await codes.cluster(conn, cluster)
    await series.write(conn, number, found)
    if until is not None:
        statement = insert(_table).values(cluster_id=number, source=codec.clean(source), until=until)
        await conn.execute(
            statement.on_conflict_do_update(
                index_elements=["cluster_id", "source"], set_={"until": statement.excluded.until}
            )
        )
    newest = max((one.times[-1] for one in found if _tells(one)), default=None)
    if newest is not None:
        reached = ((reach.METRICS, datetime.fromtimestamp(newest, UTC)),)
        await reach.write(conn, number, Batch(cluster, read_to=reached))


def _tells(one: MetricSeries) -> bool:
    """Whether a series goes on: that it ended, or that its target is down, tells nothing of the cluster."""
    return bool(one.times) and not isnan(one.values[-1]) and not (one.name == UP and one.values[-1] == 0)
