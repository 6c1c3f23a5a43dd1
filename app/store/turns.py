"""One import of a cluster at a time: each goes on from where the one before it ended, and counts nothing again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

TURN_LOCK = 0x466F7266
"""With a number of the cluster's name, the advisory lock of one import. It never meets store.record's."""
_UNLIMITED = text(
    "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN"
    " ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')"
)


@asynccontextmanager
async def turn(engine: AsyncEngine, cluster: str, *, waits: Callable[[str], None]) -> AsyncIterator[None]:
    """Waits until no other import of the cluster runs, and holds off the next. ``waits`` is told where it has to.

    The lock is that of a transaction on a connection of its own: it goes with its process, however that ends, and a
    proxy that shares connections cannot keep it. The transaction has neither a snapshot nor an id: it holds up nothing.
    """
    own = create_async_engine(engine.url, poolclass=NullPool)
    number = int.from_bytes(blake2b(cluster.encode(), digest_size=4).digest(), signed=True)
    lock = {"lock": TURN_LOCK, "cluster": number}
    try:
        async with own.connect() as conn:
            await conn.execute(_UNLIMITED)
            if not await conn.scalar(text("SELECT pg_try_advisory_xact_lock(:lock, :cluster)"), lock):
                waits(cluster)
                await conn.execute(text("SELECT pg_advisory_xact_lock(:lock, :cluster)"), lock)
            yield
    finally:
        await own.dispose()
