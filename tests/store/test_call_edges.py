"""Who calls whom is one row however often it is told, of which the last seen are kept, and holds for a week."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Batch, CallEdge
from app.store import call_edges, codes
from app.store.call_edges import KEPT
from app.store.record import record
from tests.store.factories import CLUSTER, NOON
from tests.store.test_timeline import Counting


def minutes(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


def an_edge(callee: str, first: float, last: float, *, kind: str = "Service") -> CallEdge:
    return CallEdge(("shop", "cart"), kind, ("pay", callee), minutes(first), minutes(last))


async def rows(conn: AsyncConnection) -> set[str]:
    return set((await conn.execute(text("SELECT callee FROM call_edges"))).scalars())


async def test_an_edge_that_is_told_again_is_one_and_was_seen_for_longer(conn: AsyncConnection) -> None:
    told = (an_edge("ledger", 0, 0), an_edge("ledger", 10, 10), an_edge("ledger", 0, 0, kind="Workload"))
    for batch in (told, told[::-1], (an_edge("ledger", -5, 2),)):
        await record(conn, Batch(CLUSTER, edges=batch))
    await record(conn, Batch("another", edges=(an_edge("bank", 0, 0),)))
    with Counting(conn) as queries:
        found = await call_edges.read(conn, CLUSTER, minutes(60))
    assert queries.count == 1
    assert sorted(found, key=lambda one: one.kind) == [
        an_edge("ledger", -5, 10),
        an_edge("ledger", 0, 0, kind="Workload"),
    ]
    assert await call_edges.read(conn, "nobody's", minutes(60)) == []


async def test_it_holds_from_when_it_was_seen_until_a_week_after_it_was_seen_last(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, edges=(an_edge("ledger", 0, 10), an_edge("bank", 0, 20))))
    assert await call_edges.read(conn, CLUSTER, minutes(-1)) == []
    assert len(await call_edges.read(conn, CLUSTER, minutes(0))) == 2
    assert len(await call_edges.read(conn, CLUSTER, minutes(10) + KEPT)) == 2
    assert await call_edges.read(conn, CLUSTER, minutes(11) + KEPT) == [an_edge("bank", 0, 20)]
    assert await call_edges.read(conn, CLUSTER, minutes(30), limit=1) == [an_edge("bank", 0, 20)]


async def test_of_too_many_those_are_kept_that_were_seen_last(conn: AsyncConnection) -> None:
    cluster = await codes.cluster(conn, CLUSTER)
    other = await codes.cluster(conn, "another")
    await call_edges.write(conn, other, [an_edge("bank", 0, 0)], most=2)
    await call_edges.write(conn, cluster, [an_edge("a", 0, 0), an_edge("b", 0, 5)], most=2)
    await call_edges.write(conn, cluster, [an_edge("c", 6, 6)], most=2)
    assert await rows(conn) == {"b", "c", "bank"}


async def test_what_is_not_seen_for_a_week_is_forgotten_by_the_time_of_its_cluster(conn: AsyncConnection) -> None:
    """A cluster that was imported ends when its logs do: its edges stay beside its incidents."""
    week = KEPT / timedelta(minutes=1)
    await record(conn, Batch(CLUSTER, edges=(an_edge("ledger", 0, 0), an_edge("bank", 0, 2))))
    await record(conn, Batch(CLUSTER, read_to=(("watch", minutes(1)),)))
    await call_edges.forget(conn, minutes(10 * week))
    assert await rows(conn) == {"ledger", "bank"}
    await record(conn, Batch(CLUSTER, read_to=(("watch", minutes(week + 1)),)))
    await call_edges.forget(conn, minutes(week - 1))
    assert await rows(conn) == {"ledger", "bank"}, "a clock that is ahead forgets nothing"
    await call_edges.forget(conn, minutes(10 * week))
    assert await rows(conn) == {"bank"}
