"""``foreshock collect``: what is followed by a process of its own, until it is stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.files import UnreadableError
from app.collect.tail import Tail


def file_to_follow(path: Path) -> Path:
    """The path, absolute. The file need not be there yet. Raises UnreadableError where its folder is not, or it is one
    itself."""
    path = path.absolute()
    if path.is_dir():
        raise UnreadableError(f"{path}: is a folder; name the file that kube-apiserver writes (--audit-log-path)")
    if not path.parent.is_dir():
        raise UnreadableError(f"{path.parent}: no such folder")
    return path


async def follow_audit_file(engine: AsyncEngine, path: Path, cluster: str, *, clock: Callable[[], datetime]) -> str:
    """Follow until SIGTERM or SIGINT; what was recorded, in words."""
    tail = Tail(engine, cluster, path, clock=clock)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tail.stop)
    await tail.run()
    told = tail.tally
    return f"{told.lines:,} lines: {told.calls:,} calls, {told.changes:,} changes, {told.rejects:,} could not be used"
