"""Who ends tasks waits for all of them, however often one is to be asked, and whatever happens to who waits."""

from __future__ import annotations

import asyncio

import pytest

from app.tasks import end


class Deaf:
    """What swallows a cancellation before it obeys one."""

    def __init__(self) -> None:
        self.asked = 0

    async def run(self) -> None:
        while self.asked < 2:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.asked += 1


async def test_a_task_that_swallows_a_cancellation_is_asked_again() -> None:
    deaf = Deaf()
    task = asyncio.create_task(deaf.run())
    await asyncio.sleep(0)
    await asyncio.wait_for(end([task]), 10)
    assert (task.done(), deaf.asked) == (True, 2)


async def test_who_is_cancelled_as_he_waits_for_an_end_waits_for_it() -> None:
    task = asyncio.create_task(Deaf().run())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end([task]))
    await asyncio.sleep(0.01)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(ending, 10)
    assert task.done()
