"""`foreshock evaluate --own`: how good the rankings of this installation were by what people said of them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

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
    first, second, heading, *figures = own_as_table(await read_own(database))
    assert first == "2 incidents of which it is known what it was, 1 of them no change"
    assert second == '"none of these" led in 1 of these 1'
    assert heading.split() == ["AC@1", "AC@3", "MRR"]
    assert [line[:34].strip() for line in figures[:2]] == ["at first", "at last"]
    assert all("1.00 [0.21 1.00]" in line for line in figures[:2])
    assert [line.split(":")[0] for line in figures[2:]] == ["said 0.30 (1)", f"said {LEADS.probability:.2f} (1)"]
    done = foreshock("evaluate", "--own", "--json", DATABASE_URL=dsn)
    assert done.returncode == Exit.DONE, done.stderr
    told = json.loads(done.stdout)
    assert (told["judged"], told["without_culprit"], told["none_led"]) == (2, 1, 1)
    assert {when: one["ac1"] for when, one in told["accuracy"].items()} == {"at first": 1.0, "at last": 1.0}
    assert [one["said"] for one in told["reliability"]] == [0.3, LEADS.probability]


def test_it_takes_no_folder(tmp_path: Path) -> None:
    done = foreshock("evaluate", "--own", str(tmp_path))
    assert done.returncode not in (Exit.DONE, Exit.UNUSABLE)
    assert "--own takes neither DIR" in done.stderr
