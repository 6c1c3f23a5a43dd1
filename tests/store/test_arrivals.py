"""In which order changes were recorded, whatever their times; each is told once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Batch, Change
from app.store import arrivals
from app.store.record import record
from app.store.timeline import ChangeFilter
from tests.store.factories import CLUSTER, a_change, a_resource

ANY = ChangeFilter(derived="shown")


async def told(
    conn: AsyncConnection, places: arrivals.Places, wanted: ChangeFilter = ANY, *, most: int = 100
) -> tuple[list[str], dict[int, arrivals.Place]]:
    """The versions of what arrived behind ``places``, and where one is then."""
    arrived = await arrivals.read_after(conn, places, wanted.cluster, most=most)
    found = await arrivals.read_changes(conn, arrived, wanted)
    return [change.resource_version for _, change in found], {**places, **{a.cluster_id: a.place for a in arrived}}


async def write(conn: AsyncConnection, *changes: Change, cluster: str = CLUSTER) -> None:
    await record(conn, Batch(cluster, changes=changes))


async def test_changes_are_told_in_the_order_of_their_recording(conn: AsyncConnection) -> None:
    await write(conn, a_change("1"), a_change("2", seconds=5))
    places = await arrivals.read_places(conn, None)
    assert (await told(conn, places))[0] == []
    await write(conn, a_change("late", seconds=-86_400 * 20))
    await write(conn, a_change("new", seconds=9))
    assert (await told(conn, places))[0] == ["late", "new"]


async def test_what_is_told_again_or_better_does_not_arrive_again(conn: AsyncConnection) -> None:
    await write(conn, a_change("1"))
    places = await arrivals.read_places(conn, None)
    await write(conn, a_change("1"))
    await write(conn, a_change("1", audit_id="6f1c5d7e-0000-4000-8000-000000000001", sources=frozenset({"audit"})))
    assert (await told(conn, places))[0] == []


async def test_one_goes_on_in_the_middle_of_a_batch(conn: AsyncConnection) -> None:
    places: dict[int, arrivals.Place] = {}
    await write(conn, *(a_change(str(n), seconds=n) for n in range(7)))
    await write(conn, *(a_change(str(n), seconds=n) for n in range(7, 9)))
    found: list[list[str]] = []
    while True:
        versions, places = await told(conn, places, most=3)
        if not versions:
            break
        found.append(versions)
    assert found == [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"]]


async def test_clusters_have_places_of_their_own(conn: AsyncConnection) -> None:
    def of(cluster: str, version: str) -> Change:
        return a_change(version, resource=replace(a_resource(), cluster=cluster))

    await write(conn, of("north", "n1"))
    places = await arrivals.read_places(conn, "north")
    assert len(places) == 1
    await write(conn, of("south", "s1"), cluster="south")
    await write(conn, of("north", "n2"))
    assert (await told(conn, places, ChangeFilter(cluster="north")))[0] == ["n2"]
    assert (await told(conn, places, ChangeFilter(cluster="south")))[0] == ["s1"]
    both, after = await told(conn, places)
    assert both == ["s1", "n2"]
    assert after == await arrivals.read_places(conn, None)


async def test_what_does_not_fit_a_filter_is_left_out(conn: AsyncConnection) -> None:
    await write(
        conn,
        a_change("here"),
        a_change("there", resource=a_resource("x", namespace="identity")),
        a_change("config", resource=a_resource("y", kind="ConfigMap")),
        a_change("derived", begun_by="0" * 28),
    )
    assert (await told(conn, {}, ChangeFilter(namespace="identity")))[0] == ["there"]
    assert (await told(conn, {}, ChangeFilter(kind="configmap")))[0] == ["config"]
    assert (await told(conn, {}, ChangeFilter(text="NOTHING LIKE IT")))[0] == []
    assert (await told(conn, {}))[0] == ["here", "there", "config", "derived"]
    assert (await told(conn, {}, ChangeFilter()))[0] == ["here", "there", "config"]


async def test_arrivals_are_forgotten_after_a_day_and_numbers_go_on(conn: AsyncConnection) -> None:
    now = datetime.now(UTC)
    await write(conn, a_change("1"))
    last = await arrivals.read_last_number(conn)
    await arrivals.forget(conn, now + timedelta(hours=24))
    assert (await told(conn, {}))[0] == ["1"]
    await arrivals.forget(conn, now + timedelta(hours=26))
    assert (await conn.execute(text("SELECT count(*) FROM arrivals"))).scalar_one() == 0
    await write(conn, a_change("2"))
    assert await arrivals.read_last_number(conn) == last + 1
    assert (await told(conn, {}))[0] == ["2"]
