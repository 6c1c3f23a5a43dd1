"""Tasks that run beside others, and end before what they use is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks and waits for them; asks again each second, for a driver may swallow one cancellation. Who waits is
    cancelled after they have ended, not before."""
    left, cancelled = set(tasks), None
    while left:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=1)
        except asyncio.CancelledError as error:
            cancelled = error
        left = {task for task in left if not task.done()}
    if cancelled is not None:
        raise cancelled
