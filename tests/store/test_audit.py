"""The audit log: what is noted stands in the transaction of what was done, and nobody changes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.roles import Role
from app.store import audit, retention, tokens
from app.store.audit import ASKER, KEPT, Action, Asker, Wanted
from app.store.database import Database
from app.store.tokens import Purpose

NOW = datetime.now(UTC).replace(microsecond=0)


async def entries(conn: AsyncConnection, **wanted: object) -> list[audit.Entry]:
    return list(await audit.read(conn, Wanted(**wanted), before=None, limit=100))  # type: ignore[arg-type]


async def test_who_asks_is_known_by_what_they_sent(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.ADMIN, purpose=Purpose.API, now=NOW, note="alice")
    (made,) = await entries(conn)
    asker = ASKER.set(Asker("192.0.2.7", tokens.digest(token), lambda: "alice"))
    await audit.note(conn, Action.INCIDENT_CHANGED, "1f3a", now=NOW)
    ASKER.reset(asker)
    await audit.note(conn, Action.VERDICT_SAID, "1f3a", by="bob in Slack", now=NOW)
    slack, web, _ = await entries(conn)
    assert (made.action, made.who, made.address, made.token) == (Action.TOKEN_MADE, "", "", None)
    assert made.about.endswith(": admin, alice")
    assert (web.who, web.address, web.about, web.times) == ("alice", "192.0.2.7", "1f3a", 1)
    assert web.token == int(made.about.split(":")[0].split()[1])
    assert (slack.who, slack.address, slack.token) == ("bob in Slack", "", None)
    assert token not in repr([made, web, slack])


async def test_a_login_and_its_end_and_a_revocation_are_noted(conn: AsyncConnection) -> None:
    link = await tokens.create(conn, Role.VIEWER, purpose=Purpose.LOGIN, now=NOW)
    assert await tokens.use_login(conn, link, now=NOW)
    session = await tokens.create(conn, Role.VIEWER, purpose=Purpose.SESSION, now=NOW)
    await tokens.revoke(conn, session, now=NOW)
    await tokens.create_for_cluster(conn, "shop", now=NOW, note="apiserver")
    (kept,) = [one for one in await tokens.read(conn, now=NOW) if one.cluster == "shop"]
    await tokens.revoke_by_id(conn, kept.id, now=NOW)
    await tokens.revoke_by_id(conn, kept.id, now=NOW)
    found = [(one.action, one.who) for one in reversed(await entries(conn))]
    assert found == [
        (Action.LINK_MADE, ""),
        (Action.SIGNED_IN, "a viewer"),
        (Action.SIGNED_OUT, "a viewer"),
        (Action.TOKEN_MADE, ""),
        (Action.TOKEN_REVOKED, ""),
    ]
    assert (await entries(conn))[0].about == f"token {kept.id}: audit of shop, apiserver"


async def test_what_is_not_done_is_not_noted(database: Database) -> None:
    class ThinksBetterError(Exception):
        """Before it is committed."""

    async def think_better() -> None:
        async with database.write.begin() as conn:
            await audit.note(conn, Action.VIEW_SAVED, "never", now=NOW)
            raise ThinksBetterError

    with pytest.raises(ThinksBetterError):
        await think_better()
    async with database.read.connect() as conn:
        assert [one for one in await entries(conn) if one.about == "never"] == []


@pytest.mark.parametrize(
    "statement", ["UPDATE audit_log SET who = 'nobody'", "DELETE FROM audit_log", "TRUNCATE audit_log"]
)
async def test_a_row_is_neither_changed_nor_deleted(conn: AsyncConnection, statement: str) -> None:
    await audit.note(conn, Action.DENIED, now=NOW)
    with pytest.raises(DBAPIError, match="audit_log is only added to"):
        await conn.execute(text(statement))


async def test_it_is_forgotten_when_it_is_old_and_not_before(database: Database) -> None:
    async with database.write.begin() as conn:
        await audit.note(conn, Action.DENIED, "old", now=NOW - KEPT - timedelta(minutes=1))
        await audit.note(conn, Action.DENIED, "young", now=NOW - KEPT + timedelta(hours=1))
    ages = retention.ages(
        changes=timedelta(days=1),
        calls=timedelta(days=1),
        requests=timedelta(days=1),
        samples=retention.SampleAges(*[timedelta(days=1)] * 3),
    )
    await retention.drop_expired(database.write, ages, now=NOW)
    async with database.read.connect() as conn:
        assert [one.about for one in await entries(conn, action="denied")] == ["young"]


async def test_entries_are_found_by_what_who_and_when_and_page_by_page(conn: AsyncConnection) -> None:
    for number in range(6):
        action = (Action.VIEW_SAVED, Action.VIEW_DELETED)[number % 2]
        at = NOW + timedelta(minutes=number)
        await audit.note(conn, action, str(number), by=("alice", "bob")[number // 3], now=at)
    assert [one.about for one in await entries(conn, action="view saved")] == ["4", "2", "0"]
    assert [one.about for one in await entries(conn, who="alice")] == ["2", "1", "0"]
    within = await entries(conn, from_at=NOW + timedelta(minutes=1), to_at=NOW + timedelta(minutes=3))
    assert [one.about for one in within] == ["2", "1"]
    first = await audit.read(conn, Wanted(), before=None, limit=4)
    rest = await audit.read(conn, Wanted(), before=first[-1].id, limit=4)
    assert [one.about for one in (*first, *rest)][:6] == ["5", "4", "3", "2", "1", "0"]


async def test_the_last_of_what_begins_so_is_found(conn: AsyncConnection) -> None:
    for about in ("a_b: 1", "a_b: 2", "axb: 3", "c: 4"):
        await audit.note(conn, Action.SETTINGS_READ, about, now=NOW)
    await audit.note(conn, Action.VIEW_SAVED, "a_b: 5", now=NOW)
    assert await audit.last(conn, Action.SETTINGS_READ, "a_b: ") == "2"
    assert await audit.last(conn, Action.SETTINGS_READ, "d: ") == ""


async def test_what_is_long_or_odd_is_kept_as_far_as_it_can_be(conn: AsyncConnection) -> None:
    await audit.note(conn, Action.VIEW_SAVED, "a\x00\ud800" + "x" * 500, by="y" * 500, now=NOW)
    found = (await entries(conn))[0]
    assert (found.about[:3], len(found.about), len(found.who)) == ("a\ufffd\ufffd", 200, 200)
