"""`foreshock token create --scope`, `token list` and `login --scope`: what goes together, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from app import main as root
from app.commands import options
from app.commands import tokens as command
from app.commands.options import Bearer
from app.core.roles import Role, Scope
from app.store import tokens
from app.store.database import Database
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
    assert " viewer     until" in unlimited


async def test_a_link_that_logs_in_has_a_scope(database: Database) -> None:
    link = await root.login_link(database, "http://f.test", role=Role.VIEWER, scope=SHOP)
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
