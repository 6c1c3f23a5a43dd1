"""`foreshock evaluate --own`: how good the rankings of this installation were by what people said of them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.commands.scores import own_as_table, read_own
from app.core.findings import NONE, Opinion, Verdict
from app.failures import Exit
from app.store import incidents, verdicts
from app.store.database import Database
from app.store.record import record
from tests.test_cli import foreshock
from tests.web import world

INCIDENT, RANKING = world.incident(), world.ranking()
PASSED = replace(INCIDENT, id="0000000000ab", title="It passed by itself")
LEADS = RANKING.suspects[0]


async def test_what_people_said_is_counted(dsn: str, database: Database) -> None:
    none_led = replace(RANKING, incident_id=PASSED.id, suspects=(), none_of_these=0.3)
    async with database.write.begin() as conn:
        await record(conn, world.batch())
        for incident, ranking in ((INCIDENT, RANKING), (PASSED, none_led)):
            await incidents.save_incident(conn, incident)
            await incidents.save_ranking(conn, ranking)
    assert [*own_as_table(await read_own(database))] == [
        "0 incidents of which it is known what it was, 0 of them no change"
    ]
    at = RANKING.ranked_at + timedelta(hours=1)
    async with database.write.begin() as conn:
        await verdicts.say(conn, INCIDENT.id, Verdict(LEADS.change.id, Opinion.IT, "alice", at))
        await verdicts.say(conn, PASSED.id, Verdict(NONE, Opinion.IT, "alice", at))
    first, few, second, *figures = own_as_table(await read_own(database))
    assert first == "2 incidents of which it is known what it was, 1 of them no change"
    assert second == '"none of these" led in 1 of these 1'
    assert few.startswith("these are few")
    assert figures[:4] == [f"AC@{k} {when}: 1.00 [0.21 1.00] of 1" for when in ("at first", "at last") for k in (1, 3)]
    assert [line.split(":")[0] for line in figures[4:]] == ["said 0.30 (1)", f"said {LEADS.probability:.2f} (1)"]
    done = foreshock("evaluate", "--own", "--json", DATABASE_URL=dsn)
    assert done.returncode == Exit.DONE, done.stderr
    elsewhere = foreshock("evaluate", "--own", DATABASE_URL=dsn, FORESHOCK_URL="https://foreshock.example")
    assert (elsewhere.returncode, elsewhere.stdout) == (2, "")
    assert "https://foreshock.example" in elsewhere.stderr
    told = json.loads(done.stdout)
    assert (told["judged"], told["without_culprit"], told["none_led"]) == (2, 1, 1)
    assert {when: one["first"]["share"] for when, one in told["ranked"].items()} == {"at first": 1.0, "at last": 1.0}
    assert [one["said"] for one in told["reliability"]] == [0.3, LEADS.probability]


async def test_what_was_merged_counts_once_with_what_was_said_of_its_parts(conn: AsyncConnection) -> None:
    whole = replace(INCIDENT, id="0000000000cd")
    part = replace(INCIDENT, id="0000000000ce", status="merged", merged_into=whole.id)
    other = RANKING.suspects[1].change.id
    await record(conn, world.batch())
    for incident in (whole, part):
        await incidents.save_incident(conn, incident)
        await incidents.save_ranking(conn, replace(RANKING, incident_id=incident.id))
    for minutes, incident, change_id, opinion in (
        (0, part, LEADS.change.id, Opinion.NOT_IT),
        (1, whole, LEADS.change.id, Opinion.IT),
        (2, part, other, Opinion.NOT_IT),
    ):
        at = RANKING.ranked_at + timedelta(minutes=minutes)
        await verdicts.say(conn, incident.id, Verdict(change_id, opinion, "alice", at))
    judged = [one for one in await verdicts.read_judged(conn) if one.incident_id in (whole.id, part.id)]
    assert [one.incident_id for one in judged] == [whole.id]
    assert [(one.change_id, one.opinion) for one in judged[0].verdicts] == [
        (LEADS.change.id, Opinion.IT),
        (other, Opinion.NOT_IT),
    ]


async def test_the_newest_incidents_are_judged_whole_however_often_each_was_ranked(
    conn: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has one row where its first ranking is its newest, else two."""
    monkeypatch.setattr(verdicts, "MOST_JUDGED", 2)
    await record(conn, world.batch())
    ids = [f"0000000001a{n}" for n in range(3)]
    for n, incident_id in enumerate(ids):
        started = INCIDENT.started_at + timedelta(days=30, minutes=-n)
        await incidents.save_incident(conn, replace(INCIDENT, id=incident_id, started_at=started))
        for minutes in range(min(n + 1, 3)):
            ranked = RANKING.ranked_at + timedelta(minutes=minutes)
            await incidents.save_ranking(conn, replace(RANKING, incident_id=incident_id, ranked_at=ranked))
        await verdicts.say(conn, incident_id, Verdict(LEADS.change.id, Opinion.IT, "alice", RANKING.ranked_at))
    judged = await verdicts.read_judged(conn)
    assert [one.incident_id for one in judged] == ids[:2]
    assert [one.newest.ranked_at - one.first.ranked_at for one in judged] == [timedelta(0), timedelta(minutes=1)]


async def test_an_incident_of_which_only_what_it_was_not_is_known_is_told_as_left_out(database: Database) -> None:
    async with database.write.begin() as conn:
        await record(conn, world.batch())
        await incidents.save_incident(conn, INCIDENT)
        await incidents.save_ranking(conn, RANKING)
        await verdicts.say(conn, INCIDENT.id, Verdict(LEADS.change.id, Opinion.NOT_IT, "alice", RANKING.ranked_at))
    told = [*own_as_table(await read_own(database))]
    assert told[1].startswith("these are few")
    assert [line for line in told if " at first: " in line] == [
        "AC@1 at first: 0.00 [0.00 0.79] of 1",
        "AC@3 at first: of no incident it is known, 1 left out",
    ]
    assert " ".join(told).count("Of 1 incident people said only what it was not.") == 1
    assert max(map(len, told)) <= 80


def test_it_takes_no_folder(tmp_path: Path) -> None:
    done = foreshock("evaluate", "--own", str(tmp_path))
    assert done.returncode not in (Exit.DONE, Exit.UNUSABLE)
    assert "--own takes neither DIR" in done.stderr
