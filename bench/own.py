"""A PostgreSQL of a benchmark's own, gone when it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import uvloop

from app.store import embedded
from app.store.database import Database, open_database
from app.store.migrate import migrate

_T = TypeVar("_T")


@contextmanager
def postgres() -> Iterator[embedded.Server]:
    """A server in a folder of its own, for the length of the block."""
    with TemporaryDirectory(prefix="fb") as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's account must pass
        server = embedded.start(folder)
        try:
            yield server
        finally:
            server.stop()


def alone(measure: Callable[[Database], Awaitable[_T]]) -> _T:
    """What is measured in an empty database."""

    async def run(dsn: str) -> _T:
        database = open_database(dsn)
        try:
            return await measure(database)
        finally:
            await database.close()

    with postgres() as server:
        migrate(server.dsn)
        return uvloop.run(run(server.dsn))
