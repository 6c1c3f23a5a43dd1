"""The recording that comes along, through everything: import, incident, ranking, evaluation."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from app import installation, main
from app.collect.inputs import InputKind
from app.commands import demo, evaluate
from app.commands.evaluate_cases import recording
from app.commands.importing import import_paths, summary
from app.commands.scores import as_json, as_table
from app.core.findings import Ranking
from app.core.model import ActorSource
from app.settings import Settings
from app.store.database import Database
from app.store.incidents import read_incident
from app.store.retention import drop_expired

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CULPRIT = ("Deployment", "platform", "archetype-controller")


async def ranking_of(database: Database, incident_id: str) -> Ranking:
    async with database.read.connect() as conn:
        found = await read_incident(conn, incident_id)
    assert found is not None
    assert found[1] is not None
    return found[1]


def _of_1970(source: str, copy: str) -> None:
    shutil.copyfile(source, copy)
    os.utime(copy, (0, 0))


async def test_the_demo_shows_what_began_it_and_why(database: Database) -> None:
    incident_id = await demo.replay(database.write, now=NOW)
    ranking = await ranking_of(database, incident_id)
    first = ranking.suspects[0]
    resource = first.change.resource
    assert (resource.kind, resource.namespace, resource.name) == CULPRIT
    assert first.change.actor.source is ActorSource.AUDIT
    said = " ".join(e.sentence for e in first.evidence)
    assert "rite fight over annotation archetype.example/owner-signature" in said
    assert "writes/s since" in said
    assert first.probability > 0.85
    assert NOW - timedelta(minutes=8) < ranking.onset.at < NOW - timedelta(minutes=5)


async def test_the_demo_is_as_recorded_however_old_its_files_are(database: Database, tmp_path: Path) -> None:
    """Those of a checkout are as old as it is, those of an archive may be of 1970."""
    folder = tmp_path / "demo"
    shutil.copytree(demo.FOLDER, folder, copy_function=_of_1970)
    ranking = await ranking_of(database, await demo.replay(database.write, now=NOW, folder=folder))
    first = ranking.suspects[0].change.resource
    assert (first.kind, first.namespace, first.name) == CULPRIT
    assert NOW - timedelta(minutes=8) < ranking.onset.at < NOW - timedelta(minutes=5)


async def test_the_demo_is_replayed_once(database: Database) -> None:
    first = await demo.replay(database.write, now=NOW)
    assert await demo.replay(database.write, now=NOW + timedelta(hours=1)) == first


async def test_the_demo_is_replayed_again_when_what_it_was_ranked_by_is_forgotten(database: Database) -> None:
    """An incident stays for up to a week longer than that."""
    known = await demo.replay(database.write, now=NOW)
    for later in (NOW + timedelta(days=93), NOW + timedelta(days=200)):
        await drop_expired(database.write, installation.ages_of(Settings()), now=later)
        again = await demo.replay(database.write, now=later)
        ranking = await ranking_of(database, again)
        suspect = ranking.suspects[0].change.resource
        assert again != known
        assert (suspect.kind, suspect.namespace, suspect.name) == CULPRIT
        assert later - timedelta(minutes=8) < ranking.onset.at < later - timedelta(minutes=5)
        known = again
        assert await demo.replay(database.write, now=later) == known


async def test_serve_leads_to_no_demo_that_is_forgotten_a_moment_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = NOW + timedelta(days=400)
    await demo.replay(database.write, now=later - timedelta(days=100))
    monkeypatch.setattr(main, "now", lambda: later)

    async def replayed(database: Database) -> str:
        return await demo.replay(database.write, now=later)

    again = await main.forgetful(replayed, Settings())(database)
    async with database.read.connect() as conn:
        found = await read_incident(conn, again)
    assert found is not None
    assert later - timedelta(minutes=6) < found[0].started_at


async def test_no_write_is_counted_twice_and_blows_are_noise(database: Database) -> None:
    await demo.replay(database.write, now=NOW)
    async with database.read.connect() as conn:
        doubled = await conn.execute(
            text("SELECT count(*) FROM (SELECT object_id, resource_version FROM changes WHERE resource_version <> ''"
                 " GROUP BY 1, 2 HAVING count(*) > 1) AS twice")
        )  # fmt: skip
        loud = await conn.execute(
            text("SELECT count(*) FROM changes c JOIN kinds k ON k.id = c.kind_id"
                 " WHERE k.kind = 'ServiceAccount' AND NOT noise")
        )  # fmt: skip
        assert doubled.scalar_one() == 0
        assert loud.scalar_one() < 20


async def test_an_import_tells_what_it_did(database: Database) -> None:
    report, incidents = await import_paths(database.write, [str(demo.FOLDER)], "shown", now=NOW)
    told = "\n".join(summary(report, incidents))
    assert "8,450" not in told.split(" lines", maxsplit=1)[0]  # the watch's and the metrics' lines count too
    assert f"incident {incidents[0].id}: Typha ping latency high" in told
    again, _ = await import_paths(database.write, [str(demo.FOLDER)], "shown", now=NOW)
    assert again.tally.lines == 0
    assert "already imported" in "\n".join(summary(again, []))


@pytest.mark.parametrize("without", [frozenset(), frozenset({InputKind.AUDIT})])
async def test_an_evaluation_compares_with_the_answer(dsn: str, without: frozenset[InputKind]) -> None:
    folders = evaluate.recordings(demo.FOLDER)
    result = await evaluate.evaluate(dsn, folders, now=NOW, leave_out=without)
    assert [(v.when, v.rank) for v in result.verdicts] == [("alert", 1.0), ("later", 1.0)]
    assert result.accuracy["most recent"].ac1 < 0.2
    table = "\n".join(as_table(result))
    assert "rank 1 of" in table
    assert '"verdicts"' in as_json(result)


@pytest.mark.parametrize("seconds", [-60, 10])
async def test_an_evaluation_can_tell_the_start_wrong(dsn: str, tmp_path: Path, seconds: int) -> None:
    (tmp_path / "linked").symlink_to(demo.FOLDER)
    (folder,) = evaluate.recordings(tmp_path)
    case, _ = await recording(dsn, folder, now=NOW, shift=timedelta(seconds=seconds))
    right, _ = await recording(dsn, folder, now=NOW)
    assert case.at_alert.now == right.at_alert.now
    assert case.at_alert.incident.started_at - right.at_alert.incident.started_at == timedelta(seconds=seconds)
    result = await evaluate.evaluate(dsn, [folder], now=NOW, shift=timedelta(seconds=seconds))
    assert [verdict.rank for verdict in result.verdicts] == [1.0, 1.0]


async def test_what_was_recorded_with_a_wrong_start_is_ranked_when_the_alert_came(dsn: str, tmp_path: Path) -> None:
    made = a_recording(tmp_path, "early")
    alerts, label = (json.loads((made / name).read_text()) for name in ("alerts.json", "label.json"))
    for alert in alerts["alerts"]:
        alert["startsAt"] = (datetime.fromisoformat(alert["startsAt"]) - timedelta(seconds=60)).isoformat()
    (made / "alerts.json").write_text(json.dumps(alerts))
    (made / "label.json").write_text(json.dumps(label | {"alert_shift_seconds": -60}))
    case, _ = await recording(dsn, made, now=NOW)
    told, _ = await recording(dsn, demo.FOLDER, now=NOW, shift=timedelta(seconds=-60))
    assert case.at_alert.incident.started_at == told.at_alert.incident.started_at
    assert (case.at_alert.now, case.later.now) == (told.at_alert.now, told.later.now)
    assert [one.score for one in case.first.suspects] == [one.score for one in told.first.suspects]


def a_recording(folder: Path, name: str, **files: bytes | None) -> Path:
    """The demo's recording under another name, with other files (None: without); ``label`` stands for label.json."""
    made = folder / name
    made.mkdir()
    for path in demo.FOLDER.iterdir():
        text = files.get(path.name.split(".")[0], path.read_bytes())
        if text is not None and path.name != "README.md":
            (made / path.name).write_bytes(text)
    return made


async def test_a_recording_that_cannot_be_judged_is_told_and_the_others_are_evaluated(dsn: str, tmp_path: Path) -> None:
    a_recording(tmp_path, "good")
    broken: dict[str, dict[str, bytes | None]] = {
        "cut-label": {"label": b'{"culprit": {"ki'},
        "empty-culprit": {"label": b'{"culprit": {}}'},
        "no-zone": {"label": b'{"culprit": {"kind": "Pod", "name": "a", "at": "2026-11-21T05:00:00"}}'},
        "cut-alerts": {"alerts": b'{"version": "4", "alerts": [{"status": "fir'},
        "empty-alerts": {"alerts": b'{"version": "4", "alerts": []}'},
        "no-alerts": {"alerts": None},
        "cut-audit": {"audit": b"\x1f\x8b\x08"},
        "nothing": {"alerts": None, "audit": None, "watch": None, "metrics": None, "state": None},
    }
    for name, files in broken.items():
        a_recording(tmp_path, name, **files)
    result = await evaluate.evaluate(dsn, evaluate.recordings(tmp_path), now=NOW)
    assert [(v.name, v.when, v.rank) for v in result.verdicts] == [("good", "alert", 1.0), ("good", "later", 1.0)]
    reasons = {one.name: one.reason.replace(f"{tmp_path}/", "") for one in result.not_judged}
    assert {name: reason.split(": ")[0] for name, reason in reasons.items()} == {
        "cut-label": "cut-label/label.json",
        "empty-culprit": "empty-culprit/label.json",
        "no-zone": "no-zone/label.json",
        "cut-alerts": "cut-alerts/alerts.json, line 1, column 1",
        "empty-alerts": "empty-alerts/alerts.json",
        "no-alerts": "no-alerts",
        "cut-audit": "cut-audit/audit.jsonl.gz, line 1",
        "nothing": "nothing",
    }
    assert 'it must say {"culprit": {"kind", "namespace", "name", "at"}}' in reasons["cut-label"]
    assert "missing required field `kind`" in reasons["empty-culprit"]
    assert "put the payload there" in reasons["cut-alerts"]
    assert "no alert that fired" in reasons["empty-alerts"]
    table = "\n".join(as_table(result))
    assert all(f"{name}: not judged: " in table for name in reasons)
    assert {one["name"] for one in json.loads(as_json(result))["not_judged"]} == reasons.keys()
