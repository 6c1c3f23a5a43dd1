"""Tokens: good for one purpose, for a while, once where they must be, and never stored."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.roles import Role
from app.store import sessions, tokens
from app.store.audit import Action, Wanted, read
from app.store.database import Database
from app.store.tokens import Purpose

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


@pytest.mark.parametrize("role", list(Role))
async def test_a_token_answers_with_its_role(conn: AsyncConnection, role: Role) -> None:
    token = await tokens.create(conn, role, purpose=Purpose.API, now=NOW)
    assert token.startswith("fs_")
    assert await tokens.check(conn, token, purpose=Purpose.API, now=LATER) is role


@pytest.mark.parametrize("wrong", ["", "fs_", "Bearer nothing", "\ud800", "fs_" + "a" * 100_000])
async def test_anything_else_answers_nothing(conn: AsyncConnection, wrong: str) -> None:
    await tokens.create(conn, Role.ADMIN, purpose=Purpose.API, now=NOW)
    assert await tokens.check(conn, wrong, purpose=Purpose.API, now=LATER) is None


async def test_a_token_is_good_for_its_purpose_alone(conn: AsyncConnection) -> None:
    for made in Purpose:
        token = await tokens.create(conn, Role.VIEWER, purpose=made, now=NOW)
        for asked in Purpose:
            found = await tokens.check(conn, token, purpose=asked, now=LATER)
            assert (found is not None) == (asked is made)


async def test_a_token_ends_with_its_life(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=NOW, life=timedelta(hours=1))
    just_before = NOW + timedelta(minutes=59, seconds=59)
    assert await tokens.check(conn, token, purpose=Purpose.API, now=just_before) is Role.VIEWER
    assert await tokens.check(conn, token, purpose=Purpose.API, now=NOW + timedelta(hours=1)) is None


async def test_a_revoked_token_is_dead_at_once(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.ADMIN, purpose=Purpose.SESSION, now=NOW)
    assert await tokens.revoke(conn, token, now=LATER)
    assert await tokens.check(conn, token, purpose=Purpose.SESSION, now=LATER) is None
    assert not await tokens.revoke(conn, token, now=LATER)


async def test_tokens_are_listed_without_the_token_and_revoked_by_id(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=NOW, note="the bot")
    await tokens.create(conn, Role.ADMIN, purpose=Purpose.SESSION, now=NOW)
    [listed] = await tokens.read(conn, now=LATER)
    assert (listed.role, listed.note, listed.last_used_at) == (Role.RESPONDER, "the bot", None)
    assert token not in repr(listed)
    assert await tokens.revoke_by_id(conn, listed.id, now=LATER)
    assert await tokens.read(conn, now=LATER) == []


@pytest.mark.parametrize("cluster", ["", "shop"])
async def test_a_token_of_changes_tells_of_its_cluster_and_is_no_role(conn: AsyncConnection, cluster: str) -> None:
    token = await tokens.create_for_cluster(conn, cluster, purpose=Purpose.CHANGES, now=NOW)
    found = await tokens.check_for_changes(conn, token, now=LATER)
    assert found is not None
    assert found.cluster == cluster
    await tokens.note_used(conn, {found.id: LATER})
    assert await tokens.check_for_changes(conn, token, now=NOW + tokens.LIFETIME[Purpose.CHANGES]) is None
    assert await tokens.check(conn, token, purpose=Purpose.API, now=LATER) is None
    assert await tokens.read_of_clusters(conn, now=LATER) == {}
    [listed] = await tokens.read(conn, now=LATER)
    assert (listed.role, listed.purpose, listed.cluster, listed.last_used_at) == (None, "changes", cluster, LATER)
    await tokens.revoke_by_id(conn, listed.id, now=LATER)
    assert await tokens.check_for_changes(conn, token, now=LATER) is None


async def test_use_is_noted_to_the_hour(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=NOW)
    for minutes in (1, 2, 62):
        assert await use(conn, token, Purpose.API, at=NOW + timedelta(minutes=minutes))
        [listed] = await tokens.read(conn, now=NOW)
        assert listed.last_used_at == NOW + timedelta(minutes=62 if minutes == 62 else 1)


async def test_of_a_session_it_is_noted_to_five_minutes(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.SESSION, now=NOW)
    for minutes in (1, 2, 6, 7):
        assert await use(conn, token, Purpose.SESSION, at=NOW + timedelta(minutes=minutes))
        [listed] = await sessions.read(conn, now=NOW)
        assert listed.last_used_at == NOW + timedelta(minutes=7 if minutes == 7 else 1)


async def use(conn: AsyncConnection, token: str, purpose: Purpose, *, at: datetime) -> bool:
    """Whether a token is good then; and that it was used is noted."""
    found = await tokens.bearer(conn, token, purpose=purpose, now=at)
    if found is None:
        return False
    assert found.token_id is not None
    await tokens.note_used(conn, {found.token_id: at})
    return True


async def test_a_session_that_nobody_uses_ends_before_its_life_does(conn: AsyncConnection) -> None:
    session = await tokens.create(conn, Role.VIEWER, purpose=Purpose.SESSION, now=NOW)
    almost, minutes = tokens.IDLE - timedelta(minutes=6), timedelta(minutes=1)

    async def lives(at: datetime) -> bool:
        return await use(conn, session, Purpose.SESSION, at=at)

    assert await lives(NOW + almost), "begun is used"
    assert await lives(NOW + 2 * almost)
    used = NOW + 2 * almost
    assert len(await sessions.read(conn, now=used + tokens.IDLE - minutes)) == 1
    assert await sessions.read(conn, now=used + tokens.IDLE) == []
    assert not await lives(used + tokens.IDLE)
    for at in range(0, 12, 1):
        await lives(NOW + timedelta(hours=at))
    assert not await lives(NOW + tokens.LIFETIME[Purpose.SESSION]), "used or not"


async def test_a_token_of_a_program_may_be_idle(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=NOW)
    assert await tokens.check(conn, token, purpose=Purpose.API, now=NOW + timedelta(days=300))


async def test_who_is_signed_in_is_listed_and_signed_out_by_id_by_name_or_all(conn: AsyncConnection) -> None:
    made = [
        await tokens.create(conn, Role.ADMIN, purpose=Purpose.SESSION, now=NOW, note=who)
        for who in ("alice", "alice", "bob", "", "")
    ]
    program = await tokens.create(conn, Role.ADMIN, purpose=Purpose.API, now=NOW, note="alice")
    listed = await sessions.read(conn, now=LATER)
    assert [(one.note, one.role) for one in listed] == [(who, Role.ADMIN) for who in ("alice", "alice", "bob", "", "")]
    assert not any(token in repr(listed) for token in made)
    assert await sessions.end(conn, session_id=listed[3].id, now=LATER) == 1
    assert await sessions.end(conn, who="alice", now=LATER) == 2
    assert await sessions.end(conn, who="alice", now=LATER) == 0
    assert await sessions.end(conn, session_id=-1, now=LATER) == 0
    assert [one.note for one in await sessions.read(conn, now=LATER)] == ["bob", ""]
    for token, lives in zip(made, (False, False, True, False, True), strict=True):
        assert (await tokens.check(conn, token, purpose=Purpose.SESSION, now=LATER) is not None) == lives
    assert await sessions.end(conn, now=LATER) == 2
    assert await tokens.check(conn, program, purpose=Purpose.API, now=LATER), "a program's token is no session"
    noted = await read(conn, Wanted(action=Action.SESSION_ENDED), before=None, limit=10)
    assert sorted(one.about.partition(": ")[2] for one in noted) == [
        "admin, a login link",
        "admin, a login link",
        "admin, alice",
        "admin, alice",
        "admin, bob",
    ]


async def test_a_session_whose_last_use_is_not_noted_yet_is_ended_like_any(conn: AsyncConnection) -> None:
    """Who revokes asks the database alone; the process that serves knows that it was used a moment ago."""
    session = await tokens.create(conn, Role.VIEWER, purpose=Purpose.SESSION, now=NOW, note="alice")
    now = NOW + tokens.IDLE + timedelta(seconds=30)

    async def is_let_in() -> bool:
        used = now - timedelta(seconds=40)
        return bool(await tokens.bearer(conn, session, purpose=Purpose.SESSION, now=now, used=lambda _: used))

    assert await is_let_in()
    assert await sessions.end(conn, now=now) == 1
    assert not await is_let_in()
    expired = NOW + tokens.LIFETIME[Purpose.SESSION]
    await tokens.create(conn, Role.VIEWER, purpose=Purpose.SESSION, now=NOW, note="alice")
    assert await sessions.end(conn, who="alice", now=expired) == 0


async def test_of_many_who_use_a_login_token_one_gets_in(database: Database) -> None:
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.ADMIN, purpose=Purpose.LOGIN, now=NOW)

    async def attempt() -> Role | None:
        async with database.write.begin() as conn:
            found = await tokens.use_login(conn, token, now=LATER)
        return None if found is None else found.role

    answers = await asyncio.gather(*(attempt() for _ in range(4)))
    assert sorted(str(answer) for answer in answers) == ["None", "None", "None", "admin"]


async def test_a_late_login_token_does_not_open(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.ADMIN, purpose=Purpose.LOGIN, now=NOW)
    assert await tokens.use_login(conn, token, now=NOW + tokens.LIFETIME[Purpose.LOGIN]) is None


async def test_the_token_itself_is_stored_nowhere(conn: AsyncConnection) -> None:
    token = await tokens.create(conn, Role.ADMIN, purpose=Purpose.API, now=NOW)
    row = (await conn.execute(text("SELECT t::text FROM tokens t ORDER BY id DESC LIMIT 1"))).scalar_one()
    assert token not in row
    assert token.removeprefix("fs_").encode().hex() not in row
