"""Changes in outline, and what is read of a busy day by them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app import correlate
from app.core.model import Actor, ActorSource, Batch, Change
from app.core.ranking.suspects import rank
from app.store import changes, gathering, incidents
from app.store.database import Database
from app.store.record import record
from app.store.sketches import read_sketches
from tests.core.factories import CI, NOON, a_change, a_resource, after, an_alert, an_incident

ROBOT = Actor("robot", ActorSource.AUDIT)


async def recorded(database: Database, cluster: str, told: list[Change]) -> None:
    async with database.write.begin() as conn:
        await record(conn, Batch(cluster, changes=tuple(told)))


async def test_an_outline_tells_when_of_what_by_whom_and_whether_near(database: Database) -> None:
    web, role, other = (
        a_resource(),
        a_resource("ClusterRole", "reader", None),
        a_resource(name="web", namespace="infra"),
    )
    told = [a_change(web), a_change(role, at=after(1), actor=ROBOT), a_change(other, at=after(2.000001), actor=ROBOT)]
    told.append(a_change(web, at=after(3), actor=ROBOT))
    await recorded(database, "outline", told)
    hour = timedelta(hours=1)
    async with database.read.connect() as conn:
        rows, keys = await read_sketches(conn, "outline", NOON - hour, NOON + hour, near=["shop"], limit=10)
        newest, _ = await read_sketches(conn, "outline", NOON - hour, NOON + hour, near=[], limit=2)
        whole = await changes.read_chosen(conn, "outline", keys[[0, 2]].tolist(), start=NOON, end=after(3))
        empty, none = await read_sketches(conn, "outline", NOON - hour, NOON - hour, near=["shop"], limit=10)
    assert keys.tolist() == [change.key for change in reversed(told)]
    assert [round(at - NOON.timestamp(), 6) for at in rows.at.tolist()] == [3, 2.000001, 1, 0]
    assert rows.near.tolist() == [True, False, True, True]
    assert rows.object[0] == rows.object[3]
    assert len(set(rows.object.tolist())) == 3
    assert (rows.actor[0], rows.actor[2]) == (rows.actor[1], rows.actor[1])
    assert rows.actor[3] != rows.actor[0]
    assert newest.near.tolist() == [False, False]
    assert [(change.key, change.diffs) for change in whole] == [(told[n].key, told[n].diffs) for n in (1, 3)]
    assert (len(empty), len(none)) == (0, 0)


async def test_on_a_busy_day_what_is_likely_beforehand_is_weighed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_READ", 50)
    culprit = a_change(at=after(-2400))
    busy = [
        a_change(a_resource("ConfigMap", f"c{n % 70}", f"team-{n % 7}"), at=after(-20 * n), actor=ROBOT, new=str(n))
        for n in range(400)
    ]
    await recorded(database, "busy", [culprit, *busy])
    incident = replace(an_incident(an_alert(NOON, namespace="shop", deployment="web")), cluster="busy")
    gathered = await gathering.gather(database.read, incident, NOON)
    assert culprit.key in {change.key for change in gathered.changes}
    assert (len(gathered.changes), gathered.unread.count) == (50, 351)
    ranking = rank(gathered)
    assert ranking.suspects[0].change.key == culprit.key
    assert "351 changes that are older, elsewhere, or repeated since." in ranking.not_measured
    repeated = next(s for s in ranking.suspects if s.change.resource.name == "c0")
    assert "The same actor wrote it 5 times before in this window." in {e.sentence for e in repeated.evidence}


async def test_a_storm_of_blows_is_told_by_runs_of_them_and_hidden_whole(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_FOUGHT", 300)
    account, path = a_resource("ServiceAccount", "shared"), ("metadata", "annotations", "owner")
    blows = [
        a_change(account, at=after(n / 10), path=path, old="ab"[n % 2], new="ba"[n % 2], actor=(ROBOT, CI)[n % 2])
        for n in range(1000)
    ]
    await recorded(database, "storm", blows)
    incident = replace(an_incident(an_alert(after(90))), cluster="storm")
    async with database.write.begin() as conn:
        await incidents.save_incident(conn, incident)
    await correlate.rank_news(database.write, "storm", after(200))
    async with database.read.connect() as conn:
        found = await incidents.read_incident(conn, incident.id)
        rows, _ = await read_sketches(conn, "storm", NOON, after(200), near=[], limit=2000)
        loud = await changes.read_rewritten(conn, "storm", NOON, after(200), least=1, limit=2000, with_noise=False)
    assert found is not None
    assert found[1] is not None
    (fight,) = found[1].fights
    assert (len(rows), fight.writes, fight.began_at, fight.ended_at) == (1000, 1000, NOON, after(99.9))
    assert len(fight.writers) == 2
    assert loud == []
