"""This machine's installation: its database, its clock, where it is reached. What commands need that serve nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Never

import structlog

from app.collect.threads import in_thread
from app.core.roles import Role, Scope
from app.redaction_file import rules_of
from app.settings import Settings
from app.store import embedded, retention, tokens
from app.store.database import Database, open_database
from app.store.migrate import migrate
from app.store.redaction import keep_rules
from app.store.tokens import Purpose

WATCH_SECONDS = 0.5

log = structlog.get_logger()


@dataclass(slots=True)
class Postgres:
    """The database that this process uses: somebody's server (``own`` None), or our own in the data folder."""

    dsn: str
    own: embedded.Server | None

    async def keep(self) -> Never:
        """Starts our own server again when it was killed, in a thread: this process answers while it recovers. Raises
        the system's errors, as where there is no memory for another process."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self.own is not None and not self.own.alive:
                log.warning("PostgreSQL is gone, starting it again", folder=str(self.own.folder))
                try:
                    await in_thread(partial(self._start_again, self.own))
                except embedded.EmbeddedError as error:
                    log.error("PostgreSQL does not start, trying on", error=str(error))  # noqa: TRY400 - it says all

    def _start_again(self, own: embedded.Server) -> None:
        self.own = own.again()


@contextmanager
def postgres(settings: Settings, *, migrated: bool = True) -> Iterator[Postgres]:
    """The database, migrated unless it is only a server to us, for the length of the block. Our own server ends with
    the last who uses it.

    What is secret here is written into it where this machine has a file that says so: all who redact find it there.

    Raises redaction_file.RedactionError, embedded.EmbeddedError, binaries.NoBinaries or database.DatabaseError.
    """
    rules = rules_of(settings) if migrated else None
    if settings.database_url is not None:
        found = Postgres(settings.database_url.get_secret_value(), None)
    else:
        own = embedded.start(settings.data_dir)
        found = Postgres(own.dsn, own)
    try:
        if migrated:
            migrate(found.dsn)
        if rules is not None:
            keep_rules(found.dsn, rules)
        yield found
    finally:
        if found.own is not None:
            found.own.stop()


@asynccontextmanager
async def pools(server: Postgres) -> AsyncIterator[Database]:
    """Pools for one command, for the length of the block."""
    database = open_database(server.dsn, readers=2, writers=2)
    try:
        yield database
    finally:
        await database.close()


def now() -> datetime:
    """The clock that everything below is given."""
    return datetime.now(UTC)


def ages_of(settings: Settings) -> dict[str, timedelta]:
    """The age at which each log is forgotten."""
    return retention.ages(
        changes=timedelta(days=settings.changes_retention_days),
        calls=timedelta(days=settings.calls_retention_days),
        requests=timedelta(days=settings.requests_retention_days),
        samples=retention.SampleAges(
            each=timedelta(days=settings.samples_retention_days),
            minutes=timedelta(days=settings.samples_minutes_retention_days),
            hours=timedelta(days=settings.samples_hours_retention_days),
        ),
    )


async def login_link(
    database: Database, url: str, *, role: Role, landing: str = "/", scope: Scope | None = None
) -> str:
    """A link that logs one browser in, once, within tokens.LIFETIME."""
    async with database.write.begin() as conn:
        token = await tokens.create(conn, role, purpose=Purpose.LOGIN, now=now(), scope=scope)
    onward = "" if landing == "/" else f"&to={landing}"
    return f"{url}/login?token={token}{onward}"


def url_of(settings: Settings, host: str, port: int, *, scheme: str = "http") -> str:
    """Where people reach us, without a slash at the end: FORESHOCK_PUBLIC_URL, or the address we listen on."""
    if settings.public_url is not None:
        return str(settings.public_url).rstrip("/")
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 - only shown
    return f"{scheme}://{shown}:{port}"
