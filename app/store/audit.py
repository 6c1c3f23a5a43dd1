"""The log of what people and programs did in Foreshock itself: who, when, from where, with what.

Rows are only added; a trigger refuses to change or delete one that is not old enough. What is noted stands in the
transaction of what was done. Nothing in a row is a secret: of a credential it holds the number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import delete, insert, null, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import codec, tables

KEPT = timedelta(days=400)
"""So long a row is kept."""
LONGEST = 200
"""Characters of a name or an object that are kept."""
_log = tables.audit_log


class Action(StrEnum):
    """What was done. The last five are counted where they come often."""

    SIGNED_IN = "signed in"
    SIGNED_OUT = "signed out"
    SESSION_ENDED = "session revoked"
    LINK_MADE = "login link made"
    TOKEN_MADE = "token made"  # noqa: S105 - none
    TOKEN_REVOKED = "token revoked"  # noqa: S105
    INCIDENT_OPENED = "incident opened"
    INCIDENT_CHANGED = "incident changed"
    INCIDENT_MERGED = "incident merged"
    VERDICT_SAID = "verdict said"
    VERDICT_TAKEN_BACK = "verdict taken back"
    VIEW_SAVED = "view saved"
    VIEW_RENAMED = "view renamed"
    VIEW_DELETED = "view deleted"
    REVERT_TRIED = "revert tried"
    REVERT_BEGUN = "revert begun"
    REVERT_DONE = "revert done"
    REVERT_FAILED = "revert failed"
    SENT_AGAIN = "sent to Slack again"
    FORGOTTEN = "message to Slack forgotten"
    MUTED = "muted in Slack"
    UNMUTED = "unmuted in Slack"
    SETTINGS_READ = "settings read"
    DEMO_REPLAYED = "demo replayed"
    DOWNLOADED = "downloaded"
    FOLLOWED = "changes followed"
    INCIDENTS_FOLLOWED = "incidents followed"
    LOGIN_REFUSED = "login refused"
    CREDENTIAL_REFUSED = "credential refused"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Asker:
    """Whom a request is of. ``who`` names them, which may be known only later; ``credential`` is the digest of what was
    sent, None where nothing was."""

    address: str = ""
    credential: bytes | None = None
    who: Callable[[], str] = str


NOBODY = Asker()
ASKER: ContextVar[Asker] = ContextVar("asker", default=NOBODY)
"""The request that is worked on: of the command line, and of what works by itself, nobody's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row. ``action`` is one of Action, or was known to a newer version that one went back from; ``token`` is the
    number of the credential, as ``foreshock token list`` has it; ``address`` "" is the command line; ``times`` more
    than 1 where it was counted, from ``at`` on."""

    id: int
    at: datetime
    action: str
    who: str
    token: int | None
    address: str
    about: str
    times: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries; None is not asked about."""

    action: str | None = None
    who: str | None = None
    from_at: datetime | None = None
    to_at: datetime | None = None


async def note(
    conn: AsyncConnection,
    action: Action,
    about: str = "",
    *,
    now: datetime,
    by: str = "",
    address: str = "",
    times: int = 1,
) -> None:
    """Adds a row for who asks (``ASKER``), in the caller's transaction; ``by`` and ``address`` where they are known
    better."""
    asker = ASKER.get()
    t = tables.tokens.c
    token = select(t.id).where(t.digest == asker.credential).scalar_subquery() if asker.credential else null()
    await conn.execute(
        insert(_log).values(
            at=now,
            action=action.value,
            who=codec.clean(by or asker.who())[:LONGEST],
            token_id=token,
            address=codec.clean(address or asker.address)[:LONGEST],
            about=codec.clean(about)[:LONGEST],
            times=times,
        )
    )


async def last(conn: AsyncConnection, action: Action, begins: str) -> str:
    """What the newest entry of this is about, behind what that ``begins`` with; "" where there is none."""
    c = _log.c
    where = c.action == action.value, c.about.startswith(begins, autoescape=True)
    found = await conn.scalar(select(c.about).where(*where).order_by(c.id.desc()).limit(1))
    return str(found or "").removeprefix(begins)


async def read(conn: AsyncConnection, wanted: Wanted, *, before: int | None, limit: int) -> Sequence[Entry]:
    """Entries, newest first, behind the one of the number ``before``."""
    c = _log.c
    asked = select(c.id, c.at, c.action, c.who, c.token_id, c.address, c.about, c.times).order_by(c.id.desc())
    for condition in (
        None if before is None else c.id < before,
        None if wanted.action is None else c.action == wanted.action,
        None if wanted.who is None else c.who == wanted.who,
        None if wanted.from_at is None else c.at >= wanted.from_at,
        None if wanted.to_at is None else c.at < wanted.to_at,
    ):
        asked = asked if condition is None else asked.where(condition)
    rows = await conn.execute(asked.limit(limit))
    return [Entry(*row) for row in rows]


async def forget(conn: AsyncConnection, now: datetime) -> None:
    """Deletes what is older than KEPT: by the clock of PostgreSQL, the trigger allows that from a day before."""
    await conn.execute(delete(_log).where(_log.c.at < now - KEPT))
