"""Incidents and what is recorded of them, whatever comes first and whoever is killed in between."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from sqlalchemy import text, update

from app import correlate
from app.collect.importer import Import
from app.collect.inputs import InputKind, find_inputs
from app.commands import demo
from app.commands.importing import import_paths
from app.core.findings import Incident, Ranking
from app.core.model import Batch
from app.store import incidents, tables
from app.store.database import Database
from app.store.incidents import list_incidents, read_incident
from app.store.record import record
from tests.core.factories import a_change, an_alert, an_incident

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CULPRIT = ("Deployment", "platform", "archetype-controller")


async def the_only(database: Database, cluster: str) -> tuple[Incident, Ranking]:
    async with database.read.connect() as conn:
        (incident,) = await list_incidents(conn, cluster=cluster)
        found = await read_incident(conn, incident.id)
    assert found is not None
    assert found[1] is not None
    return found[0], found[1]


def first_of(ranking: Ranking) -> tuple[str, str | None, str]:
    resource = ranking.suspects[0].change.resource
    return resource.kind, resource.namespace, resource.name


async def test_files_one_by_one_in_any_order_end_in_the_same_ranking(database: Database) -> None:
    for path in sorted(demo.FOLDER.glob("*.gz"), reverse=True) + sorted(demo.FOLDER.glob("alerts.json")):
        await import_paths(database.write, [str(path)], "alerts last", now=NOW)
    for path in sorted(demo.FOLDER.glob("alerts.json")) + sorted(demo.FOLDER.glob("*.gz")):
        await import_paths(database.write, [str(path)], "alerts first", now=NOW)
    last, first = [await the_only(database, f"alerts {when}") for when in ("last", "first")]
    assert first_of(last[1]) == first_of(first[1]) == CULPRIT
    assert abs(last[1].onset.at - first[1].onset.at) < timedelta(seconds=1)


async def test_an_import_killed_before_it_ranked_is_ranked_by_the_next(database: Database) -> None:
    inputs = find_inputs([str(demo.FOLDER)])
    run = Import(database.write, "killed", now=NOW, progress=lambda *_: None, on_alerts=correlate.open_incidents)
    await run.run(inputs)  # and no ranking: killed here
    report, ranked = await import_paths(database.write, [str(demo.FOLDER)], "killed", now=NOW)
    assert len(report.skipped) == len(inputs)
    incident, ranking = await the_only(database, "killed")
    assert [one.id for one in ranked] == [incident.id]
    assert first_of(ranking) == CULPRIT
    _, again = await import_paths(database.write, [str(demo.FOLDER)], "killed", now=NOW)
    assert again == []


async def test_a_demo_ended_in_its_midst_goes_on_where_it_was(database: Database) -> None:
    inputs = find_inputs([str(demo.FOLDER)])
    half = [replace(one, file_hash=f"{one.file_hash}+1000s") for one in inputs if one.kind is InputKind.AUDIT]
    await Import(database.write, demo.CLUSTER, now=NOW, progress=lambda *_: None, shift_seconds=1000).run(half)
    await demo.replay(database.write, now=NOW + timedelta(seconds=40))
    async with database.read.connect() as conn:
        read = await conn.execute(
            text("SELECT sum(total) FROM call_minutes JOIN clusters ON id = cluster_id WHERE name = 'demo'")
        )
        calls = read.scalar_one()
        shifts = await conn.execute(text("SELECT DISTINCT split_part(file_hash, '+', 2) FROM import_positions"))
        assert {row[0] for row in shifts} == {"", "1000s"}
    await import_paths(database.write, [str(demo.FOLDER)], "beside", now=NOW)
    async with database.read.connect() as conn:
        read = await conn.execute(
            text("SELECT sum(total) FROM call_minutes JOIN clusters ON id = cluster_id WHERE name = 'beside'")
        )
        assert calls == read.scalar_one()


def payload(*alerts: dict[str, object]) -> str:
    return json.dumps({"version": "4", "alerts": alerts})


def alert(at: datetime, **more: object) -> dict[str, object]:
    return {"startsAt": at.isoformat(), "labels": {"alertname": "Down"}, "fingerprint": "f", **more}


async def test_an_alert_told_again_after_hundreds_changes_nothing(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    times = [NOW - timedelta(minutes=31 * number) for number in range(210)]
    found = [alert(at, fingerprint=f"f{number}") for number, at in enumerate(times)]
    path.write_text(payload(*found, alert(times[-1], fingerprint="g")))
    await import_paths(database.write, [str(path)], "many", now=NOW)
    async with database.read.connect() as conn:
        before = await list_incidents(conn, cluster="many", limit=1000)
    assert (len(before), len(before[-1].alerts)) == (210, 2)
    async with database.write.begin() as conn:
        again = await correlate.open_incidents(conn, "many", before[-1].alerts[:1])
    assert [one.alerts for one in again] == [before[-1].alerts]
    async with database.read.connect() as conn:
        assert await list_incidents(conn, cluster="many", limit=1000) == before


async def test_one_bad_alert_does_not_take_the_others_with_it(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    odd: list[dict[str, object]] = [{"labels": {}}, alert(NOW, labels={"n": 5})]
    path.write_text(payload(alert(NOW, annotations=None), *odd))
    report, _ = await import_paths(database.write, [str(path)], "odd", now=NOW)
    assert [problem.split(": ", 1)[1].split(":")[0] for problem in report.problems] == [
        "alert 2 of 3",
        "alert 3 of 3",
    ]
    async with database.read.connect() as conn:
        (incident,) = await list_incidents(conn, cluster="odd")
    assert [one.reason for one in incident.alerts] == ["Down"]


@pytest.mark.parametrize("ends", [None, "0001-01-01T00:00:00Z"])
async def test_what_is_resolved_and_does_not_say_when_is_resolved(
    database: Database, tmp_path: Path, ends: str | None
) -> None:
    path = tmp_path / "alerts.json"
    path.write_text(payload(alert(NOW, status="resolved", endsAt=ends)))
    await import_paths(database.write, [str(path)], f"resolved {ends}", now=NOW)
    async with database.read.connect() as conn:
        (incident,) = await list_incidents(conn, cluster=f"resolved {ends}")
    assert incident.status == "resolved"


async def test_serve_ranks_what_came_late_once_it_is_quiet(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    began = datetime.now(UTC) - timedelta(hours=3)
    path.write_text(payload(alert(began)))
    await import_paths(database.write, [str(path)], "late", now=datetime.now(UTC))
    before, _ = await the_only(database, "late")
    change = structs.replace(a_change(at=began - timedelta(minutes=1)), sources=frozenset({"watch"}))
    async with database.write.begin() as conn:
        await record(conn, Batch("late", changes=(change,)))
    now = datetime.now(UTC)
    assert before.id not in await correlate.rerank(database.write, now)
    async with database.write.begin() as conn:
        table = tables.incidents
        earlier = {name: table.c[name] - correlate.QUIET for name in ("news_at", "ranked_news_at")}
        await conn.execute(update(table).where(table.c.id == before.id).values(**earlier))
    assert before.id in await correlate.rerank(database.write, now)
    after, ranking = await the_only(database, "late")
    assert first_of(ranking)[2] == change.resource.name
    assert before.ranked_at is not None
    assert after.ranked_at is not None
    assert after.ranked_at > before.ranked_at
    assert before.id not in await correlate.rerank(database.write, now)


@pytest.mark.parametrize("status", ["open", "resolved", "suspected"])
async def test_what_is_over_or_suspected_is_ranked_again_in_time_as_what_is_open(
    database: Database, status: str
) -> None:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=4)
    incident = structs.replace(an_incident(an_alert(began, name="Brief")), id=f"{status:0>12}", cluster="brief")
    async with database.write.begin() as conn:
        await record(conn, Batch("brief", changes=(a_change(at=began),)))
        await incidents.save_incident(
            conn, structs.replace(incident, status=status, ranked_at=began + timedelta(minutes=1))
        )
    assert incident.id in await correlate.rerank(database.write, datetime.now(UTC))


async def test_what_is_told_long_after_it_began_is_ranked_again_in_time(database: Database) -> None:
    now = datetime.now(UTC)
    alert = an_alert(now - timedelta(minutes=14), name="Early")
    (incident,) = await correlate.take_alerts(database.write, "told late", [alert], now)
    assert incident.id not in await correlate.rerank(database.write, now + timedelta(minutes=2))
    assert incident.id in await correlate.rerank(database.write, now + timedelta(minutes=3))
    assert incident.id in await correlate.rerank(database.write, now + timedelta(minutes=10))


async def test_an_alert_that_joins_leaves_the_ranking_in_place(database: Database) -> None:
    incident, ranking = await the_only(database, "late")
    async with database.write.begin() as conn:
        await incidents.save_incident(conn, structs.replace(incident, onset=None, ranked_at=None, title="Another"))
    after, kept = await the_only(database, "late")
    assert (after.title, after.onset, after.ranked_at, kept) == ("Another", incident.onset, incident.ranked_at, ranking)
