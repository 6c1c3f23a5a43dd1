"""Work in a thread that is waited for also by who is cancelled: it uses what its caller closes next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_thread(
    work: Callable[[], T], executor: Executor | None = None, *, stop: Callable[[], object] = lambda: None
) -> T:
    """Do it in a thread of the executor (the event loop's own where none is given). ``stop`` is called where the caller
    is cancelled: it asks the work to end early."""
    running = asyncio.get_running_loop().run_in_executor(executor, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop()
        while not running.done():
            with suppress(asyncio.CancelledError):  # who ends asks again each second (app.tasks.end)
                await asyncio.wait([running])
        raise
