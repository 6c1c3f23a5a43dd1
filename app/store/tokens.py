"""Credentials: random strings of which only a digest is stored.

A token is ``fs_`` and 32 random bytes in base64: guessing is hopeless, so a fast digest is enough and a slow
password hash would only make every request slow.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, func, insert, not_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.roles import Role, Scope
from app.store import audit, tables
from app.store.scope import limit

PREFIX = "fs_"


class Purpose(StrEnum):
    """Where a token is good: a request's Authorization header, one login, a browser's cookie; or, and for nothing else,
    for what one cluster's API server sends, for what a Prometheus sends of one cluster, or for telling of external
    changes, or for scraping Foreshock's own metrics."""

    API = "api"
    LOGIN = "login"
    SESSION = "session"
    AUDIT = "audit"
    METRICS = "metrics"
    CHANGES = "changes"
    SCRAPE = "scrape"


IN_MEMORY = (Purpose.AUDIT, Purpose.METRICS, Purpose.SCRAPE)
"""Checked without the database. The first two are of one cluster each."""
LIFETIME = {
    Purpose.API: timedelta(days=365),
    Purpose.LOGIN: timedelta(minutes=15),
    Purpose.SESSION: timedelta(hours=12),
    Purpose.AUDIT: timedelta(days=365),
    Purpose.METRICS: timedelta(days=365),
    Purpose.CHANGES: timedelta(days=365),
    Purpose.SCRAPE: timedelta(days=365),
}
"""How long a token lives unless its maker says otherwise."""
IDLE = timedelta(hours=2)
"""A session that was not used for so long has ended. An open page of an incident uses it every 15 seconds."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; never the token. One of a ``cluster``'s API server has no role, nor has one that only
    tells of external changes, of every cluster where ``cluster`` is "". ``scope`` None: its role holds everywhere."""

    id: int
    role: Role | None
    purpose: Purpose
    note: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None
    cluster: str = ""
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class ClusterToken:
    """What the API server of a cluster may send with, or its Prometheus, as ``purpose`` says; or what our own metrics
    are scraped with, of no cluster ("")."""

    id: int
    purpose: Purpose
    cluster: str
    expires_at: datetime


def digest(token: str) -> bytes:
    """What is stored of a token."""
    return sha256(token.encode("utf-8", "replace")).digest()


async def create(
    conn: AsyncConnection,
    role: Role,
    *,
    purpose: Purpose,
    now: datetime,
    note: str = "",
    life: timedelta | None = None,
    scope: Scope | None = None,
    groups: tuple[str, ...] | None = None,
) -> str:
    """A new token, to be shown once: it cannot be read back. Without a ``scope`` its role holds everywhere. ``groups``
    are those of whom a provider named, who is the ``note``; None: nobody did.

    Raises scope.NoViewsError for a scope that this database cannot hold.
    """
    if scope is not None:
        await limit(conn, scope)
    expires_at = now + (LIFETIME[purpose] if life is None else life)
    places = None if scope is None else scope.texts
    of = None if groups is None else list(groups)
    return await _create(
        conn, now=now, role=role.value, purpose=purpose.value, note=note, expires_at=expires_at, scope=places, groups=of
    )


async def create_for_cluster(
    conn: AsyncConnection,
    cluster: str,
    *,
    purpose: Purpose = Purpose.AUDIT,
    now: datetime,
    note: str = "",
    life: timedelta | None = None,
) -> str:
    """A new token, without a role, for the API server of a cluster, or to tell of its external changes ("": of those of
    every cluster), or to scrape our own metrics (of no cluster, ""). To be shown once."""
    expires_at = now + (LIFETIME[purpose] if life is None else life)
    return await _create(
        conn, now=now, role=purpose.value, purpose=purpose.value, cluster=cluster, note=note, expires_at=expires_at
    )


async def _create(conn: AsyncConnection, *, now: datetime, **values: object) -> str:
    token = PREFIX + secrets.token_urlsafe(32)
    made = insert(tables.tokens).values(digest=digest(token), created_at=now, **values).returning(tables.tokens)
    await _note(conn, (await conn.execute(made)).one(), ended=False, now=now)
    return token


_NOTED = {
    Purpose.SESSION: (audit.Action.SIGNED_IN, audit.Action.SIGNED_OUT),
    Purpose.LOGIN: (audit.Action.LINK_MADE, audit.Action.TOKEN_REVOKED),
}


async def _note(conn: AsyncConnection, token: Row[Any], *, ended: bool, now: datetime) -> None:
    """Adds to the audit log that a token was made, or ended."""
    actions = _NOTED.get(Purpose(token.purpose), (audit.Action.TOKEN_MADE, audit.Action.TOKEN_REVOKED))
    of, note = (f" of {token.cluster}" if token.cluster else ""), (f", {token.note}" if token.note else "")
    by = (token.note or Role(token.role).somebody) if token.purpose == Purpose.SESSION else ""
    await audit.note(conn, actions[ended], f"token {token.id}: {token.role}{of}{note}", by=by, now=now)


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who sends a token: what they may do, where (``scope``; None: everywhere), and what the token is for (its note),
    "" where nobody noted it. ``groups`` are those of whom a provider named (then the note is the name); None: nobody
    did. ``token_id`` None: a provider let them in, and they have no token yet."""

    role: Role
    note: str
    scope: Scope | None = None
    groups: tuple[str, ...] | None = None
    token_id: int | None = field(default=None, compare=False)


def _not_noted(_token_id: int) -> None:
    return None


async def check(conn: AsyncConnection, token: str, *, purpose: Purpose, now: datetime) -> Role | None:
    """The role of a token that is good for ``purpose`` now, else None. A session is not once it is IDLE.

    One statement that writes nothing: a page may afford it, and a server that takes no writes answers it. That it was
    used is noted apart: see ``note_used``. A login token is not checked but used up: see ``use_login``.
    """
    found = await bearer(conn, token, purpose=purpose, now=now)
    return None if found is None else found.role


async def bearer(
    conn: AsyncConnection,
    token: str,
    *,
    purpose: Purpose,
    now: datetime,
    used: Callable[[int], datetime | None] = _not_noted,
) -> Bearer | None:
    """As ``check``, with what the token is for. ``used`` says when a token, by its id, was used last where that is not
    noted yet."""
    found = await _check(conn, token, purpose=purpose, now=now, used=used)
    return None if found is None else _bearer(found)


def _bearer(row: Row[Any]) -> Bearer:
    groups = None if row.groups is None else tuple(row.groups)
    return Bearer(Role(row.role), row.note, _scope(row.scope), groups, row.id)


def _scope(places: list[str] | None) -> Scope | None:
    """An empty list is no scope that we write: it reaches nothing."""
    return None if places is None else Scope.parse(places)


async def check_for_changes(conn: AsyncConnection, token: str, *, now: datetime) -> ClusterToken | None:
    """The token with the one cluster ("": any) of whose external changes it may tell now, None where it may not."""
    found = await _check(conn, token, purpose=Purpose.CHANGES, now=now)
    return None if found is None else ClusterToken(found.id, Purpose.CHANGES, found.cluster, found.expires_at)


async def _check(
    conn: AsyncConnection,
    token: str,
    *,
    purpose: Purpose,
    now: datetime,
    used: Callable[[int], datetime | None] = _not_noted,
) -> Row[Any] | None:
    t = tables.tokens.c
    which = t.digest == digest(token), t.purpose == purpose.value, is_in_force(now)
    found = (await conn.execute(select(tables.tokens).where(*which))).first()
    if found is None or purpose is not Purpose.SESSION:
        return found
    noted = found.last_used_at or found.created_at
    return found if max(noted, used(found.id) or noted) > now - IDLE else None


def is_good(now: datetime) -> ColumnElement[bool]:
    """That a row is a token which is good now, as far as its use was noted."""
    t = tables.tokens.c
    used = func.coalesce(t.last_used_at, t.created_at)
    is_idle = and_(t.purpose == Purpose.SESSION.value, used <= now - IDLE)
    return and_(is_in_force(now), not_(is_idle))


def is_in_force(now: datetime) -> ColumnElement[bool]:
    """That a row is a token which was not revoked and has not expired: of a session, whether anybody uses it or not."""
    t = tables.tokens.c
    return and_(t.revoked_at.is_(None), t.expires_at > now)


async def use_login(conn: AsyncConnection, token: str, *, now: datetime) -> Bearer | None:
    """Uses up a login token: its bearer the first time, None ever after, however many try at once."""
    found = await conn.execute(
        update(tables.tokens)
        .where(
            tables.tokens.c.digest == digest(token),
            tables.tokens.c.purpose == Purpose.LOGIN.value,
            tables.tokens.c.revoked_at.is_(None),
            tables.tokens.c.expires_at > now,
        )
        .values(revoked_at=now, last_used_at=now)
        .returning(tables.tokens)
    )
    row = found.first()
    return None if row is None else _bearer(row)


async def revoke(conn: AsyncConnection, token: str, *, now: datetime, purpose: Purpose | None = None) -> bool:
    """Ends a token, as at logout, of this purpose where one is named. Whether there was one to end."""
    return await _revoke(conn, now, digest=digest(token), **({} if purpose is None else {"purpose": purpose.value}))


async def revoke_by_id(conn: AsyncConnection, token_id: int, *, now: datetime) -> bool:
    """Ends the token that ``read`` lists under this id. Whether there was one to end."""
    return await _revoke(conn, now, id=token_id)


async def _revoke(conn: AsyncConnection, now: datetime, **which: object) -> bool:
    found = await conn.execute(
        update(tables.tokens)
        .filter_by(**which)
        .where(tables.tokens.c.revoked_at.is_(None))
        .values(revoked_at=now)
        .returning(tables.tokens)
    )
    ended = found.first()
    if ended is not None:
        await _note(conn, ended, ended=True, now=now)
    return ended is not None


async def read(conn: AsyncConnection, *, now: datetime) -> list[Token]:
    """The tokens of people, programs and API servers that are good now, oldest first."""
    listed = [Purpose.API.value, *(purpose.value for purpose in IN_MEMORY), Purpose.CHANGES.value]
    t = tables.tokens.c
    found = await conn.execute(
        select(tables.tokens).where(t.purpose.in_(listed), t.revoked_at.is_(None), t.expires_at > now).order_by(t.id)
    )
    return [token_of(row) for row in found]


def token_of(row: Row[Any]) -> Token:
    """What is known of a token, of its row."""
    return Token(
        row.id,
        Role(row.role) if row.purpose in (Purpose.API, Purpose.SESSION) else None,
        Purpose(row.purpose),
        row.note,
        row.created_at,
        row.expires_at,
        row.revoked_at,
        row.last_used_at,
        row.cluster,
        _scope(row.scope),
    )


async def read_of_clusters(conn: AsyncConnection, *, now: datetime) -> dict[bytes, ClusterToken]:
    """The tokens that are checked without the database and good now, by their digest."""
    t = tables.tokens.c
    found = await conn.execute(
        select(t.digest, t.id, t.purpose, t.cluster, t.expires_at).where(
            t.purpose.in_([purpose.value for purpose in IN_MEMORY]), t.revoked_at.is_(None), t.expires_at > now
        )
    )
    return {row.digest: ClusterToken(row.id, Purpose(row.purpose), row.cluster, row.expires_at) for row in found}


async def read_digests(conn: AsyncConnection, *, most: int, now: datetime) -> frozenset[bytes]:
    """Of the credentials of people and programs that are good now, what is stored of them; of more than ``most`` those
    that were made or used last."""
    t = tables.tokens.c
    found = await conn.execute(
        select(t.digest)
        .where(t.purpose.in_([Purpose.API.value, Purpose.SESSION.value, Purpose.CHANGES.value]), is_good(now))
        .order_by(func.coalesce(t.last_used_at, t.created_at).desc())
        .limit(most)
    )
    return frozenset(found.scalars())


KNOWN_EXPIRED = timedelta(days=90)
"""So long after it expired a token is known as one that has."""


async def read_expired(conn: AsyncConnection, *, most: int, now: datetime) -> frozenset[bytes]:
    """Of the credentials of programs that expired lately and were not revoked, what is stored of them; of more than
    ``most`` those that expired last."""
    t = tables.tokens.c
    found = await conn.execute(
        select(t.digest)
        .where(t.purpose.not_in([Purpose.LOGIN.value, Purpose.SESSION.value]), t.revoked_at.is_(None))
        .where(t.expires_at <= now, t.expires_at > now - KNOWN_EXPIRED)
        .order_by(t.expires_at.desc())
        .limit(most)
    )
    return frozenset(found.scalars())


async def note_used(conn: AsyncConnection, used: Mapping[int, datetime]) -> None:
    """Notes when tokens, by their ids, were used last: to the hour, and of a session, which ends when it is IDLE, to
    five minutes."""
    if used:
        await conn.execute(_NOTE_USED, {"ids": list(used), "times": list(used.values())})


_NOTE_USED = text("""
    UPDATE tokens t SET last_used_at = used.at
    FROM unnest(CAST(:ids AS bigint[]), CAST(:times AS timestamptz[])) AS used (id, at)
    WHERE t.id = used.id AND (t.last_used_at IS NULL OR t.last_used_at < used.at - CASE t.purpose
        WHEN 'session' THEN interval '5 minutes' ELSE interval '1 hour' END)
""")
