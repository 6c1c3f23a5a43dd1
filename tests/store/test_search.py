"""What no index leads to is found all the same, and counted, with bounded work."""

from datetime import timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change, Verb
from app.store import search, timeline
from app.store.record import record
from app.store.timeline import ChangeFilter
from tests.store.test_timeline import Counting, told
from tests.web import world


async def spread(conn: AsyncConnection) -> list[Change]:
    """Three weeks of changes in two clusters, one every three hours, every fourth of them alice's; newest first."""
    made = [
        world.a_change(
            f"app-{number % 3}",
            at=world.END - timedelta(hours=3 * number + 1),
            actor="alice" if number % 4 == 0 else world.ARGOCD,
            version=str(number),
            cluster=("shop", "plant")[number % 2],
        )
        for number in range(160)
    ]
    for cluster in ("shop", "plant"):
        mine = tuple(change for change in made if change.resource.cluster == cluster)
        await record(conn, replace(world.batch(0), cluster=cluster, changes=mine, rollouts=(), objects=(), gaps=()))
    return made


@pytest.mark.parametrize(
    "wanted",
    [
        ChangeFilter(actor="alice"),
        ChangeFilter(text="APP-1"),
        ChangeFilter(verb=Verb.UPDATE, text="app-2", to_at=world.END - timedelta(days=3)),
        ChangeFilter("shop", actor="alice"),
        ChangeFilter(actor="nobody"),
        ChangeFilter(text="app-1", from_at=world.END - timedelta(days=2)),
    ],
)
async def test_a_search_day_by_day_finds_what_one_search_of_all_finds(
    conn: AsyncConnection, wanted: ChangeFilter
) -> None:
    await spread(conn)
    everything = told(await timeline.list_changes(conn, wanted, limit=1000))
    assert bool(everything) == (wanted.actor != "nobody")
    for limit in (1, 5, 1000):
        assert told(await search.find_changes(conn, wanted, world.END, limit=limit)) == everything[:limit]
    seen: list[str] = []
    before = None
    while page := await search.find_changes(conn, wanted, world.END, before=before, limit=7):
        seen += told(page)
        before = timeline.after(page[-1])
    assert seen == everything


async def test_a_search_that_fills_a_page_early_looks_no_further(conn: AsyncConnection) -> None:
    await spread(conn)
    for wanted, limit, queries in (
        (ChangeFilter(text="app"), 4, 1),
        (ChangeFilter(text="app"), 30, 2),
        (ChangeFilter(text="app"), 1000, 3),
        (ChangeFilter("shop", text="app"), 1000, 1),
        (ChangeFilter(namespace="payments"), 1000, 1),
    ):
        with Counting(conn) as counted:
            await search.find_changes(conn, wanted, world.END, limit=limit)
        assert counted.count == queries, (wanted, limit)


async def test_changes_are_counted_no_further_than_asked(conn: AsyncConnection) -> None:
    made = await spread(conn)
    for wanted, every in (
        (ChangeFilter(), 160),
        (ChangeFilter("plant"), 80),
        (ChangeFilter(actor="alice"), 40),
        (ChangeFilter(kind="Deployment", from_at=made[9].at), 10),
        (ChangeFilter("elsewhere"), 0),
        (ChangeFilter(kind="Nothing"), 0),
    ):
        assert await search.count_changes(conn, wanted, most=1000) == every, wanted
        assert await search.count_changes(conn, wanted, most=7) == min(every, 7), wanted
