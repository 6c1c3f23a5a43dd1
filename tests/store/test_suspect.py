"""What turned bad and nobody told of, from the record to a suspected incident and its end."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate

from msgspec.structs import replace

from app import correlate
from app.core.model import Batch, CallCount, MetricSeries
from app.store import changes, incidents
from app.store.database import Database
from app.store.record import record
from tests.core.factories import NOON, a_change, a_resource, after, calls

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


def kubelets(verb: str, *, rate: float, start: float, end: float) -> list[CallCount]:
    made = [c for n in range(20) for c in calls(f"system:node:n{n}", verb, "pods", rate=rate, start=start, end=end)]
    return [replace(one, key=replace(one.key, user_agent="kubelet")) for one in made]


async def test_a_relist_storm_is_suspected(database: Database) -> None:
    watched = calls("steady", "get", "pods", rate=4, start=-600) + kubelets("watch", rate=0.2, start=-500, end=-495)
    storm = [one for verb in ("list", "watch") for one in kubelets(verb, rate=0.6, start=0, end=60)]
    async with database.write.begin() as conn:
        await record(conn, Batch("stormy", calls=tuple(watched)))
    assert await correlate.suspect(database.write, "stormy", after(0)) is None
    async with database.write.begin() as conn:
        await record(conn, Batch("stormy", calls=tuple(storm)))
    opened = await correlate.suspect(database.write, "stormy", after(60))
    assert opened is not None
    assert opened.title.startswith("Relist storm of 20 kubelet clients")
    assert abs((opened.started_at - after(0)).total_seconds()) <= 5
    assert opened.scope.control_plane


async def test_a_line_of_the_control_plane_that_rose_and_stays_up_is_suspected(database: Database) -> None:
    times = tuple(NOON.timestamp() + second for second in range(-900, 5 * 3600, 15))
    told = accumulate(15.0 * (10 if at <= NOON.timestamp() else 200) for at in times)
    labels = (("code", "200"), ("instance", "a:6443"), ("job", "apiserver"), ("resource", "pods"), ("verb", "LIST"))
    measured = MetricSeries("apiserver_request_total", labels, "counter", times, tuple(told))
    async with database.write.begin() as conn:
        await record(conn, Batch("busy-plane", series=(measured,)))
    assert await correlate.suspect(database.write, "busy-plane", after(240)) is None, "it may yet pass"
    opened = await correlate.suspect(database.write, "busy-plane", after(600))
    assert opened is not None
    assert opened.title.startswith("Requests (LIST pods) rose from 10 to 200")
    assert abs((opened.started_at - after(0)).total_seconds()) <= 30
    assert opened.scope.control_plane
    assert await correlate.suspect(database.write, "busy-plane", after(3 * 3600)) is None, "it is up still"
    over = await correlate.suspect(database.write, "busy-plane", after(4 * 3600 + 60))
    assert over is not None
    assert over.resolved_at is not None, "that is how things stand"


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
