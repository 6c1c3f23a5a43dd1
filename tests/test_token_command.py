"""`foreshock token create --scope`, `token list` and `login --scope`: what goes together, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from app import installation
from app.commands import options
from app.commands import sessions as session_command
from app.commands import tokens as command
from app.commands.options import Bearer
from app.core.model import Batch
from app.core.roles import Role, Scope
from app.store import tokens
from app.store.database import Database
from app.store.record import record
from app.store.tokens import Purpose

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
SHOP = Scope.parse(["prod/shop", "stage"])


async def test_a_limited_token_is_made_and_listed_with_its_scope(database: Database) -> None:
    told = {"cluster": None, "note": "the shop's", "life": timedelta(days=1), "now": NOW}
    made = await command.create(database, Bearer.RESPONDER, scope=SHOP, **told)  # type: ignore[arg-type]
    await command.create(database, Bearer.VIEWER, scope=None, **told)  # type: ignore[arg-type]
    async with database.write.begin() as conn:
        found = await tokens.bearer(conn, made, purpose=Purpose.API, now=NOW)
    assert found == tokens.Bearer(Role.RESPONDER, "the shop's", SHOP)
    limited, unlimited = await command.listed(database, now=NOW)
    assert "responder of prod/shop, stage  until" in limited
    assert f" {'viewer':<{len('responder of prod/shop, stage')}}  until" in unlimited
    assert [line.index("  used never") for line in (limited, unlimited)] == [limited.index("  used never")] * 2
    assert limited.endswith("  the shop's")
    assert all(line == line.rstrip() for line in await command.listed(database, now=NOW))


async def test_of_what_nothing_is_recorded_a_token_is_made_and_the_known_clusters_are_named(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    async with database.write.begin() as conn:
        await record(conn, Batch("stage"))
    await command.create(
        database, Bearer.VIEWER, cluster=None, scope=SHOP, note="", life=timedelta(days=1), now=datetime.now(UTC)
    )
    assert capsys.readouterr().err == "foreshock: --scope, for now: there is no cluster 'prod': known are stage\n"
    link = await command.login_link(database, "http://f.test", role=Role.VIEWER, scope=Scope.parse(["prd", "stage"]))
    assert link.startswith("http://f.test/login?token=")
    assert capsys.readouterr().err == "foreshock: --scope, for now: there is no cluster 'prd': known are stage\n"
    await command.login_link(database, "http://f.test", role=Role.VIEWER, scope=None)
    assert capsys.readouterr().err == ""


async def test_that_there_is_no_token_is_said(database: Database) -> None:
    assert await command.listed(database, now=NOW + timedelta(days=3650)) == ["no tokens"]


async def test_a_link_that_logs_in_has_a_scope(database: Database) -> None:
    link = await installation.login_link(database, "http://f.test", role=Role.VIEWER, scope=SHOP)
    async with database.write.begin() as conn:
        found = await tokens.use_login(conn, link.split("token=")[1], now=datetime.now(UTC))
    assert found is not None
    assert found.scope == SHOP


@pytest.mark.parametrize(
    ("bearer", "cluster", "scope", "words"),
    [
        (Bearer.VIEWER, "prod", None, "take --scope"),
        (Bearer.AUDIT, "prod", SHOP, "--scope goes with"),
        (Bearer.SCRAPE, None, SHOP, "--scope goes with"),
        (Bearer.AUDIT, None, None, "takes --cluster"),
    ],
)
def test_what_does_not_go_together_is_refused(
    bearer: Bearer, cluster: str | None, scope: Scope | None, words: str
) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        command.purpose_of(bearer, cluster=cluster, scope=scope)


def test_what_is_no_scope_is_refused_and_none_is_everything() -> None:
    assert options.scope_of(None) is None
    assert options.scope_of(["prod/shop", "stage"]) == SHOP
    with pytest.raises(typer.BadParameter, match=r"--scope: .*'Shop' cannot be a namespace"):
        options.scope_of(["prod/Shop"])


async def test_sessions_are_listed_and_ended(database: Database) -> None:
    async with database.write.begin() as conn:
        for who, scope in (("alice@example.com", SHOP), ("", None)):
            await tokens.create(conn, Role.VIEWER, purpose=Purpose.SESSION, now=NOW, note=who, scope=scope)
    alice, linked = await session_command.listed(database, now=NOW)
    assert alice.endswith(
        "viewer of prod/shop, stage  since 2026-11-20 14:00  used 2026-11-20 14:00  alice@example.com"
    )
    assert linked.endswith("viewer  since 2026-11-20 14:00  used 2026-11-20 14:00  a login link")
    assert await session_command.revoke(database, None, "alice@example.com", now=NOW) == "1 session ended"
    with pytest.raises(typer.BadParameter, match=r"no open session of alice@example\.com"):
        await session_command.revoke(database, None, "alice@example.com", now=NOW)
    with pytest.raises(typer.BadParameter, match="no open session 0"):
        await session_command.revoke(database, 0, None, now=NOW)
    assert await session_command.revoke(database, int(linked.split()[0]), None, now=NOW) == "1 session ended"
    assert await session_command.revoke(database, None, None, now=NOW) == "0 sessions ended"
    assert await session_command.listed(database, now=NOW) == ["nobody is signed in"]


async def test_a_session_whose_last_use_is_not_noted_yet_is_listed_as_idle(database: Database) -> None:
    """It can be revoked, so whoever does must find it; what has expired cannot."""
    now = NOW + tokens.IDLE
    async with database.write.begin() as conn:
        for who, at in (("alice", NOW), ("bob", now), ("carol", now - tokens.LIFETIME[Purpose.SESSION])):
            await tokens.create(conn, Role.VIEWER, purpose=Purpose.SESSION, now=at, note=who)
    bob, alice = await session_command.listed(database, now=now)
    assert bob.endswith("  used 2026-11-20 16:00  bob")
    assert alice.endswith("  used 2026-11-20 14:00  alice  (idle: ended, unless it was used within the last minute)")
    assert await session_command.revoke(database, int(alice.split()[0]), None, now=now) == "1 session ended"
    assert len(await session_command.listed(database, now=now)) == 1


@pytest.mark.parametrize(("session_id", "who", "every"), [(None, None, False), (1, "alice", False), (1, None, True)])
def test_which_sessions_are_meant_is_said_once(session_id: int | None, who: str | None, every: bool) -> None:
    with pytest.raises(typer.BadParameter, match="one of ID, --who NAME and --all"):
        session_command.check_one(session_id, who, every=every)
