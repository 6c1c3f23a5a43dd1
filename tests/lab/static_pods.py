"""The API server as a kubelet runs it, from a file of its machine: it may have so much memory, and is started again."""

from __future__ import annotations

import asyncio

from tests.cluster.programs import Program
from tests.lab.kubelets import BACKOFF_SECONDS, LONGEST_BACKOFF

LOOK_SECONDS = 0.25


class Limited:
    """A program whose memory is limited. ``killed`` counts how often that was reached."""

    def __init__(self, program: Program, limit_bytes: int) -> None:
        self._program, self.limit_bytes = program, limit_bytes
        self.killed = 0

    async def run(self) -> None:
        """For ever. One that was killed is started again after a back-off that doubles."""
        wait = BACKOFF_SECONDS
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._program.resident_bytes > self.limit_bytes:
                self.killed += 1
                await asyncio.to_thread(self._program.stop, kill=True)
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_BACKOFF)
                await asyncio.to_thread(self._program.launch)
