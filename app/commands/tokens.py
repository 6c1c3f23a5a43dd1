"""Tokens at the command line: which can be made, and how they are listed."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

import typer

from app import installation
from app.commands.options import Bearer
from app.core.clusters import unknown
from app.core.roles import Role, Scope
from app.store import tokens
from app.store.database import Database
from app.store.external import list_clusters
from app.store.tokens import Purpose, Token

OF_CLUSTERS = (Bearer.AUDIT, Bearer.METRICS)
WITHOUT_ROLE = (*OF_CLUSTERS, Bearer.CHANGES, Bearer.SCRAPE)


def purpose_of(bearer: Bearer, *, cluster: str | None, scope: Scope | None) -> Purpose:
    """What a token for this bearer is good for. Raises typer.BadParameter for what does not go together."""
    purpose = Purpose(bearer) if bearer in WITHOUT_ROLE else Purpose.API
    if bearer in OF_CLUSTERS and cluster is None:
        raise typer.BadParameter(f"--role {bearer} takes --cluster NAME: such a token is of one cluster")
    if purpose in (Purpose.API, Purpose.SCRAPE) and cluster is not None:
        raise typer.BadParameter("--cluster goes with --role audit, metrics or changes: viewer and up take --scope")
    if purpose is not Purpose.API and scope is not None:
        raise typer.BadParameter("--scope goes with --role viewer, responder or admin")
    return purpose


async def create(
    database: Database,
    bearer: Bearer,
    *,
    cluster: str | None,
    scope: Scope | None,
    note: str,
    life: timedelta,
    now: datetime,
) -> str:
    """A new token. Raises typer.BadParameter, scope.NoViewsError."""
    purpose = purpose_of(bearer, cluster=cluster, scope=scope)
    await warn_of_unknown(database, scope)
    async with database.write.begin() as conn:
        if purpose is not Purpose.API:
            return await tokens.create_for_cluster(conn, cluster or "", purpose=purpose, now=now, note=note, life=life)
        return await tokens.create(conn, Role(bearer), purpose=purpose, now=now, note=note, life=life, scope=scope)


async def login_link(database: Database, url: str, *, role: Role, scope: Scope | None) -> str:
    """A link that logs one browser in (installation.login_link), for whoever asks at the command line."""
    await warn_of_unknown(database, scope)
    return await installation.login_link(database, url, role=role, scope=scope)


async def warn_of_unknown(database: Database, scope: Scope | None) -> None:
    """Says on stderr of which clusters of a scope nothing is recorded: they may be mistyped, or be to come."""
    if scope is None:
        return
    async with database.read.connect() as conn:
        known = await list_clusters(conn)
    for name in sorted(scope.clusters.difference(known)):
        print(f"foreshock: --scope, for now: {unknown(name, known)}", file=sys.stderr)


async def listed(database: Database, *, now: datetime) -> list[str]:
    """A line for each token that works now, in columns; or the one that there is none."""
    async with database.read.connect() as conn:
        found = await tokens.read(conn, now=now)
    width = max((len(_good_for(one)) for one in found), default=0)
    return [_line(one, width) for one in found] or ["no tokens"]


def _line(found: Token, width: int) -> str:
    """What `token list` says of a token; ``width`` is that of the column that says what it is good for."""
    used = f"{found.last_used_at:%Y-%m-%d %H:%M}" if found.last_used_at else "never"
    said = f"{found.id:>6}  {_good_for(found):<{width}}  until {found.expires_at:%Y-%m-%d}  used {used:<16}"
    return f"{said}  {found.note}".rstrip()


def _good_for(found: Token) -> str:
    of = "" if found.purpose is Purpose.SCRAPE else f" of {found.cluster or 'every cluster'}"
    who = found.role or f"{found.purpose}{of}"
    return who if found.scope is None else f"{who} of {', '.join(found.scope.texts)}"
