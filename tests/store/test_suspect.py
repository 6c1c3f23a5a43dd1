"""What turned bad and nobody told of, from the record to a suspected incident and its end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import accumulate

import pytest
from msgspec.structs import replace

from app import correlate
from app.core.model import Batch, CallCount, MetricSeries
from app.store import changes, compaction, incidents
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


LISTS = (("code", "200"), ("instance", "a:6443"), ("job", "apiserver"), ("resource", "events"), ("verb", "LIST"))


def lists(rate: Callable[[float], float], *, until: timedelta) -> MetricSeries:
    """LISTs of events, of which ``rate`` says by the seconds since NOON how many a second there are."""
    told = list(range(-1800, int(until.total_seconds()), 30))
    return MetricSeries(
        "apiserver_request_total",
        LISTS,
        "counter",
        tuple(NOON.timestamp() + second for second in told),
        tuple(accumulate(30 * rate(second) for second in told)),
    )


async def looked_at(database: Database, cluster: str, *, until: timedelta) -> list[tuple[float, float]]:
    """When something was suspected and when that was over, in minutes since NOON, looking every two minutes."""
    found: dict[str, tuple[float, float]] = {}
    for minute in range(0, int(until.total_seconds()) // 60, 2):
        now = NOON + timedelta(minutes=minute)
        if one := await correlate.suspect(database.write, cluster, now):
            opened = found.get(one.id, (minute, 0))[0]
            found[one.id] = (opened, minute if one.resolved_at else 0)
    return list(found.values())


@pytest.mark.parametrize("compacted", [False, True])
async def test_what_rises_every_hour_is_suspected_once(database: Database, *, compacted: bool) -> None:
    cluster = f"hourly-{compacted}"
    until = timedelta(hours=4)
    every_hour = lists(lambda second: 15.0 if second % 3600 < 600 and second >= 0 else 0.1, until=until)
    async with database.write.begin() as conn:
        await record(conn, Batch(cluster, series=(every_hour,)))
    if compacted:
        async with database.write.begin() as conn:
            while await compaction.compact(conn, now=NOON + timedelta(days=2)):
                pass
    (only,) = await looked_at(database, cluster, until=until)
    assert 6 <= only[0] <= 10, "the first time, it is news"
    assert only[1] < 60


async def test_what_rises_every_night_is_suspected_the_first_night_alone(database: Database) -> None:
    until = timedelta(hours=25)
    nightly = lists(lambda second: 15.0 if 3600 <= second % 86400 < 6000 else 0.1, until=until + timedelta(hours=1))
    async with database.write.begin() as conn:
        await record(conn, Batch("nightly", series=(nightly,)))
    first, second = NOON + timedelta(hours=1, minutes=8), NOON + timedelta(hours=25, minutes=8)
    assert await correlate.suspect(database.write, "nightly", first) is not None
    over = await correlate.suspect(database.write, "nightly", first + timedelta(hours=2))
    assert over is not None
    assert over.resolved_at is not None
    assert await correlate.suspect(database.write, "nightly", second) is None


async def test_what_rises_further_than_it_does_every_hour_is_suspected(database: Database) -> None:
    until = timedelta(hours=4)
    last = 3 * 3600
    risen = lists(lambda second: 0.1 if second % 3600 >= 600 else 5.0 if second < last else 50.0, until=until)
    async with database.write.begin() as conn:
        await record(conn, Batch("higher", series=(risen,)))
    found = await looked_at(database, "higher", until=until)
    assert [opened // 60 for opened, _ in found][-1] == 3


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
