"""Incidents as alerts come in, one transaction after another."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app import correlate
from app.core.findings import Incident, Opinion, Ranking, Said, Verdict
from app.core.model import Batch, Symptom
from app.store import incidents, verdicts
from app.store.database import Database
from app.store.gathering import CALLS_WINDOW, gather
from app.store.record import record
from tests.core.factories import NOON, after, an_alert, an_incident


async def told(conn: AsyncConnection, *alerts: Symptom) -> list[Incident]:
    for alert in alerts:
        await record(conn, Batch("lab", symptoms=(alert,)))
        await correlate.open_incidents(conn, "lab", [alert])
    return await incidents.list_incidents(conn, cluster="lab")


async def test_an_end_told_hours_later_with_another_start_ends_the_incident(conn: AsyncConnection) -> None:
    first = an_alert(NOON, namespace="shop")
    moved = replace(first, at=NOON + timedelta(hours=2))
    (incident,) = await told(conn, first, moved, replace(moved, ended_at=NOON + timedelta(hours=9)))
    assert (incident.status, len(incident.alerts), incident.started_at) == ("resolved", 1, NOON)


async def test_a_firing_that_comes_after_the_end_leaves_the_end(conn: AsyncConnection) -> None:
    alert = an_alert(NOON, namespace="shop")
    ended = replace(alert, ended_at=NOON + timedelta(hours=5))
    (incident,) = await told(conn, ended, alert, replace(alert, at=NOON + timedelta(hours=3)))
    assert (incident.status, incident.resolved_at) == ("resolved", ended.ended_at)


async def test_incidents_during_a_time_are_those_that_had_begun_and_not_ended(conn: AsyncConnection) -> None:
    one, two = an_alert(NOON, namespace="shop"), an_alert(after(-7200), name="Other", namespace="infra")
    await told(conn, one, replace(two, ended_at=after(-3600)))

    async def names(start: float, end: float) -> list[str]:
        found = await incidents.list_during(conn, "lab", start=after(start), end=after(end))
        return [incident.alerts[0].reason for incident in found]

    assert await names(-7200, -1) == ["Other"]
    assert await names(-3601, 0) == ["Other", one.reason]
    assert await names(-3599, 0) == [one.reason]
    assert await names(90_000, 90_000) == [one.reason]
    assert await incidents.list_during(conn, "elsewhere", start=NOON, end=NOON) == []


async def test_alerts_that_come_at_once_are_ranked_one_after_the_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a storm of them waits for each other's connections until it is refused."""
    at_once: list[int] = []
    rank, running = correlate.rank_incident, 0

    async def counted(engine: AsyncEngine, incident: Incident, now: datetime) -> Ranking | None:
        nonlocal running
        running += 1
        at_once.append(running)
        try:
            return await rank(engine, incident, now)
        finally:
            running -= 1

    monkeypatch.setattr(correlate, "rank_incident", counted)
    alerts = [an_alert(NOON, name=f"Alert{n}", namespace=f"team-{n}") for n in range(12)]
    taken = await asyncio.gather(*(correlate.take_alerts(database.write, "lab", [one], after(60)) for one in alerts))
    assert set(at_once) == {1}
    async with database.read.connect() as conn:
        found = [await incidents.read_incident(conn, one.id) for opened in taken for one in opened]
    assert len([one for one in found if one and one[1]]) == 12


async def test_who_waits_for_the_same_incident_is_served_by_one_ranking(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun after all of them were recorded; where it fails, the next one who waits ranks."""
    ranked: list[int] = []
    rank = correlate.rank_incident

    async def counted(engine: AsyncEngine, incident: Incident, now: datetime) -> Ranking | None:
        async with engine.connect() as conn:
            known = await incidents.read_incident(conn, incident.id)
        ranked.append(len(known[0].alerts) if known else 0)
        if len(ranked) == 1:
            raise ConnectionError("away")
        return await rank(engine, incident, now)

    monkeypatch.setattr(correlate, "rank_incident", counted)
    alerts = [an_alert(NOON, name=f"Alert{n}", namespace="stormy") for n in range(12)]
    async with asyncio.timeout(60):
        taken = await asyncio.gather(
            *(correlate.take_alerts(database.write, "storm", [one], after(60)) for one in alerts),
            return_exceptions=True,
        )
    failed = [one for one in taken if isinstance(one, BaseException)]
    (incident_id,) = {one.id for opened in taken if not isinstance(opened, BaseException) for one in opened}
    assert [type(one) for one in failed] == [ConnectionError]
    assert ranked[-1] == 12, "the last ranking knows all alerts"
    assert len(ranked) < 12
    async with database.read.connect() as conn:
        found = await incidents.read_incident(conn, incident_id)
    assert found is not None
    assert found[1] is not None


async def test_the_suspected_stand_beside_the_list_newest_first(conn: AsyncConnection) -> None:
    await record(conn, Batch("listed"))
    alerts = {n: an_alert(after(n), name=f"Alert{n}", namespace=f"team-{n}") for n in range(6)}
    for n, alert in alerts.items():
        status = "suspected" if n % 2 else "open"
        await incidents.save_incident(conn, replace(an_incident(alert), cluster="listed", status=status))
    list_newest = partial(incidents.list_with_suspected, conn, limit=2)
    found, quiet, firsts = await list_newest(cluster="listed", before=None, suspected=5)
    assert [one.started_at for one in found] == [after(4), after(2)]
    assert [one.started_at for one in quiet] == [after(5), after(3), after(1)]
    assert firsts == {}, "none is ranked"
    last = (found[-1].started_at, found[-1].id)
    found, quiet, _ = await list_newest(cluster="listed", before=last, suspected=1)
    assert [one.started_at for one in (*found, *quiet)] == [after(0), after(5)]
    assert await list_newest(cluster="x", before=None, suspected=1) == ([], [], {})


@pytest.mark.parametrize("what", ["start", "merge"])
async def test_what_people_do_while_a_ranking_waits_its_turn_is_not_undone_by_it(
    database: Database, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The ranking after three minutes has read which incidents are due, and comes to this one after what they did."""
    cluster, hands = f"hands {what}", correlate.ByHand(database.write)
    ids = []
    for n in range(2):
        alert = an_alert(after(n * 1200), name=f"Alert{n}", namespace=f"team-{n}")
        ids += [one.id for one in await correlate.take_alerts(database.write, cluster, [alert], after(n * 1200 + 10))]
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(engine: AsyncEngine, incident: Incident, now: datetime) -> object:
        begun.set()
        await goes_on.wait()
        return await gather(engine, incident, now)

    monkeypatch.setattr(correlate, "gather", slow)
    ranking = asyncio.create_task(correlate.rerank(database.write, after(1400)))
    await begun.wait()
    first, second = ids
    moved = Said(started_at=after(300))
    doing = (
        hands.amend(second, moved, now=after(1401)) if what == "start" else hands.merge(second, first, now=after(1401))
    )
    known, done = await standing(database, second), asyncio.create_task(doing)
    for _ in range(1000):  # until it is written: its own ranking waits behind the one that goes on
        if await standing(database, second) != known:
            break
        await asyncio.sleep(0.01)
    goes_on.set()
    await asyncio.gather(ranking, done)
    async with database.read.connect() as conn:
        found = [await incidents.read_incident(conn, one) for one in ids]
        assert await incidents.list_unranked(conn, cluster=cluster) == []
    (_, of_first), (now_second, of_second) = (one for one in found if one)
    assert of_first
    assert of_second
    if what == "start":
        assert of_second.window[0] == now_second.started_at - CALLS_WINDOW
    else:
        assert (now_second.status, now_second.ranked_at) == ("merged", after(1210)), "a part is ranked no more"


async def test_what_is_said_of_one_incident_and_its_parts_is_said_of_no_other(conn: AsyncConnection) -> None:
    """Though all of them suspect the same change."""
    await record(conn, Batch("said"))
    alert = an_alert(NOON)
    whole, part, other = (replace(an_incident(alert), id=one * 12, cluster="said") for one in "abc")
    for one in (whole, replace(part, status="merged", merged_into=whole.id), other):
        await incidents.save_incident(conn, one)
    for n, one in enumerate((whole, part)):
        await verdicts.say(conn, one.id, Verdict(f"{n:028x}", Opinion.IT, "alice", NOON))
    listed = await incidents.list_incidents(conn, cluster="said")
    said = {one.id: [verdict.change_id[-1] for verdict in one.verdicts] for one in listed}
    assert said == {whole.id: ["0", "1"], other.id: []}
    read = await incidents.read_incident(conn, other.id)
    assert read
    assert read[0].verdicts == ()


async def standing(database: Database, incident_id: str) -> incidents.Standing:
    async with database.read.connect() as conn:
        found = await incidents.read_standing(conn, incident_id)
    assert found
    return found
