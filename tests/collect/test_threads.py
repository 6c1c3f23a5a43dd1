"""Work in a thread is over when who does it is."""

from __future__ import annotations

import asyncio
import threading

import pytest

from app.collect.threads import in_thread


async def test_work_is_waited_for_however_often_it_is_cancelled() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), list[bool]()

    def work() -> None:
        begun.set()
        may_end.wait(10)
        done.append(True)

    task = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):
        task.cancel()
        await asyncio.wait([task], timeout=0.01)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done
