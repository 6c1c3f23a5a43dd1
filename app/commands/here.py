"""REST of this machine's own database, for one command: what is asked where no server is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta

import uvloop
from fastapi import FastAPI

from app import correlate, logs
from app.client.asgi import InProcess
from app.client.transport import Transport
from app.core.roles import Role
from app.installation import Postgres, now, pools, postgres, url_of
from app.settings import Settings, load
from app.store import tokens
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app


@contextmanager
def here(role: Role) -> Iterator[Transport]:
    """REST, answered in this process to one of ``role``. Raises what ``postgres`` raises."""
    settings = load()
    logs.configure(settings.log_level)
    with postgres(settings) as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        app, token = runner.run(stack.enter_async_context(_answering(settings, server, role)))
        try:
            yield InProcess(app, runner, token)
        finally:
            runner.run(stack.aclose())


@asynccontextmanager
async def _answering(settings: Settings, server: Postgres, role: Role) -> AsyncIterator[tuple[FastAPI, str]]:
    """REST for one command on this machine, for the length of the block, and a token of ``role`` that is good as long:
    who can read the database's files could do what it may anyway."""
    async with pools(server) as database:
        app = create_app(
            Deps(
                read=database.read,
                write=database.write,
                public_url=url_of(settings, "127.0.0.1", 8000),
                clock=now,
                by_hand=correlate.ByHand(database.write),
            )
        )
        async with database.write.begin() as conn:
            token = await tokens.create(
                conn, role, purpose=Purpose.API, now=now(), note="the command line", life=timedelta(days=1)
            )
        try:
            yield app, token
        finally:
            async with database.write.begin() as conn:
                await tokens.revoke(conn, token, now=now())
