"""What no index leads to is found all the same, and counted, with bounded work."""

from datetime import timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change, Verb
from app.store import search, timeline
from app.store.record import record
from app.store.timeline import ChangeFilter, Cursor
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


@pytest.mark.parametrize("within", [2, 20, 1000])
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
async def test_a_search_bit_by_bit_finds_what_one_search_of_all_finds(
    conn: AsyncConnection, wanted: ChangeFilter, within: int
) -> None:
    await spread(conn)
    everything = told(await timeline.list_changes(conn, wanted, limit=1000))
    assert bool(everything) == (wanted.actor != "nobody")
    seen: list[str] = []
    found = await search.find_changes(conn, wanted, limit=7, within=within)
    while found.next:
        seen += told(found.changes)
        found = await search.find_changes(conn, wanted, before=found.next, limit=7, within=within)
    assert seen + told(found.changes) == everything


async def test_a_search_goes_on_behind_any_number_of_changes_of_one_moment(conn: AsyncConnection) -> None:
    """As an import tells them, whose times are whole seconds."""
    at = world.END - timedelta(hours=1)
    made = [world.a_change(f"app-{number}", at=at, version=str(number)) for number in range(9)]
    rare = world.a_change("rare", at=at - timedelta(hours=1), actor="alice", version="20")
    batch = replace(world.batch(0), changes=(*made, rare), rollouts=(), objects=(), gaps=())
    await record(conn, batch)
    found, pages = await search.find_changes(conn, ChangeFilter(actor="alice"), limit=7, within=3), 1
    while found.next and pages < 20:
        before, pages = found.next, pages + 1
        found = await search.find_changes(conn, ChangeFilter(actor="alice"), before=before, limit=7, within=3)
        if found.changes:
            break
    assert told(found.changes) == told([rare])


async def test_a_search_looks_at_so_many_changes_and_says_how_far_they_reach(conn: AsyncConnection) -> None:
    made = await spread(conn)
    for wanted, reached in (
        (ChangeFilter(actor="nobody"), made[20]),
        (ChangeFilter("shop", actor="nobody"), made[40]),
        (ChangeFilter(kind="deployment", namespace="payments", actor="nobody"), made[20]),
        (ChangeFilter(kind="Secret", actor="nobody"), None),
        (ChangeFilter("elsewhere", actor="nobody"), None),
        (ChangeFilter(actor="nobody", from_at=made[9].at), None),
    ):
        found = await search.find_changes(conn, wanted, limit=7, within=20)
        assert found.changes == []
        assert found.next == (Cursor(reached.at, 0) if reached else None), wanted


async def test_a_search_is_one_query(conn: AsyncConnection) -> None:
    await spread(conn)
    for wanted, goes_on in (
        (ChangeFilter(text="app"), True),
        (ChangeFilter("shop", verb=Verb.UPDATE), True),
        (ChangeFilter("shop", kind="Deployment"), False),
        (ChangeFilter(namespace="payments"), False),
    ):
        with Counting(conn) as counted:
            found = await search.find_changes(conn, wanted, limit=1000, within=20)
        assert counted.count == 1, wanted
        assert (found.next is not None) == goes_on


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
