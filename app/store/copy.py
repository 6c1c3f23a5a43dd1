"""Binary COPY: the fastest way in (docs/decisions/0004), 0.95 of what the server itself can take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

from psycopg import AsyncConnection as Driver
from psycopg import InterfaceError, OperationalError, sql
from psycopg.errors import ReadOnlySqlTransaction
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import away


@asynccontextmanager
async def driver_of(conn: AsyncConnection) -> AsyncIterator[Driver[Any]]:
    """psycopg's own connection, in the same transaction as ``conn``, which is closed when this is cancelled, or when
    the server is gone or takes no writes: SQLAlchemy, which would say so as of any statement, does not see what is done
    here.

    psycopg leaves it within a COPY then. The ROLLBACK would fail, and that error, as of a database that is away, would
    take the place of the cancellation: who is asked to stop would try again, for ever.
    """
    raw = await conn.get_raw_connection()
    driver: Driver[Any] = raw.driver_connection  # type: ignore[assignment]
    try:
        yield driver
    except asyncio.CancelledError:
        await conn.invalidate()
        raise
    except (OperationalError, InterfaceError, ReadOnlySqlTransaction) as error:
        await conn.invalidate()
        raise away(error) from error


async def copy(conn: AsyncConnection, table: str, columns: Mapping[str, str], rows: Iterable[Sequence[object]]) -> None:
    """Appends ``rows`` to ``table``. ``columns`` gives each column's type; a row has them in that order."""
    statement = _statement(table, tuple(columns))
    async with driver_of(conn) as driver, driver.cursor() as cursor, cursor.copy(statement) as stream:
        stream.set_types(list(columns.values()))
        encode = stream.formatter.write_row  # gives bytes when its buffer is full: no await for each row
        for row in rows:
            if encoded := encode(row):
                await stream.write(encoded)


@lru_cache(maxsize=64)
def _statement(table: str, columns: tuple[str, ...]) -> bytes:
    """Composed once a table: at 400 rows a batch that is a tenth of the client's time."""
    composed = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    return composed.as_bytes(None)
