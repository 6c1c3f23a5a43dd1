"""A write fight that nobody told of, from the record to a suspected incident and its end."""

from __future__ import annotations

from datetime import timedelta

from app import correlate
from app.core.model import Batch
from app.store import changes, incidents
from app.store.database import Database
from app.store.record import record
from tests.core.factories import a_change, a_resource, after

ACCOUNT = a_resource("ServiceAccount", "web", "shop")


async def test_a_write_fight_is_suspected_until_it_rests(database: Database) -> None:
    path = ("metadata", "annotations", "owner")
    blows = [
        a_change(ACCOUNT, at=after(number), path=path, old="ab"[number % 2], new="ba"[number % 2])
        for number in range(150)
    ]
    async with database.write.begin() as conn:
        await record(conn, Batch("lab", changes=tuple(blows)))
    opened = await correlate.suspect(database.write, "lab", after(150))
    assert opened is not None
    assert opened.title.startswith("Write fight over annotation owner")
    assert await correlate.suspect(database.write, "lab", after(180)) is None
    async with database.read.connect() as conn:
        assert await incidents.list_incidents(conn, cluster="lab") == []
        assert await incidents.list_standings(conn, cluster="lab") == []
        (quiet,) = await incidents.list_incidents(conn, cluster="lab", status="suspected")
    assert quiet.ranked_at is not None
    over = await correlate.suspect(database.write, "lab", after(150) + timedelta(minutes=5))
    assert over is not None
    assert (over.id, over.status, over.resolved_at) == (opened.id, "suspected", after(450))


async def test_a_cluster_of_which_nothing_is_known_is_well(database: Database) -> None:
    assert await correlate.suspect(database.write, "quiet", after(150)) is None


async def test_objects_that_are_seldom_written_are_not_read_for_it(database: Database) -> None:
    often, seldom = a_resource("ConfigMap", "often"), a_resource("ConfigMap", "seldom")
    path = ("data", "owner")
    told = [a_change(often, at=after(n), path=path, old=str(n), new=str(n + 1)) for n in range(5)]
    told += [a_change(seldom, at=after(n + 0.5), path=path, old=str(n), new=str(n + 1)) for n in range(4)]
    async with database.write.begin() as conn:
        await record(conn, Batch("busy", changes=tuple(told)))
    async with database.read.connect() as conn:
        found = await changes.read_rewritten(conn, "busy", after(0), after(9), least=5, limit=100)
        newest = await changes.read_rewritten(conn, "busy", after(0), after(9), least=5, limit=2)
    assert {change.resource.name for change in found} == {often.name}
    assert [change.at for change in found] == [after(n) for n in range(5)]
    assert [change.at for change in newest] == [after(3), after(4)]
