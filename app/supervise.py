"""Keeps workers alive: one at a time across processes, again after a failure, with a memory of the last success."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from time import monotonic
from typing import Never

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.core.vitals import Work

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(minutes=1)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Worker:
    """Something to be done again and again. ``work`` is one round; any exception it raises is a failed round."""

    name: str
    work: Callable[[], Awaitable[None]]
    every: timedelta


@dataclass(frozen=True, slots=True)
class _Pulse:
    since: datetime  # the last success, or the start
    every: timedelta
    error: str = ""
    took: timedelta | None = None  # the last round
    failures: int = 0


class Pulses:
    """When each worker last succeeded, for /readyz and /metrics."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.clock = clock
        self._pulses: dict[str, _Pulse] = {}

    def begun(self, worker: Worker) -> None:
        self._pulses[worker.name] = _Pulse(self.clock(), worker.every)

    def succeeded(self, worker: Worker, took: timedelta) -> None:
        old = self._pulses[worker.name]
        self._pulses[worker.name] = replace(old, since=self.clock(), error="", took=took)

    def failed(self, worker: Worker, took: timedelta, *, error: Exception) -> None:
        old = self._pulses[worker.name]
        failures = old.failures + 1
        self._pulses[worker.name] = replace(old, error=type(error).__name__, took=took, failures=failures)

    def work(self) -> tuple[Work, ...]:
        """How each worker does."""
        return tuple(Work(name, one.since, one.took, one.failures) for name, one in sorted(self._pulses.items()))

    def not_ready(self) -> list[str]:
        """A sentence for each worker that has missed two rounds, a minute at the least. No values, no secrets."""
        now = self.clock()
        return [
            f"{name} has not succeeded for {(now - pulse.since).total_seconds():.0f} s"
            + (f" (last: {pulse.error})" if pulse.error else "")
            for name, pulse in sorted(self._pulses.items())
            if now - pulse.since > max(3 * pulse.every, LONGEST_PAUSE)
        ]


def pause(failures: int, chance: float) -> timedelta:
    """How long to wait after so many failures in a row: doubling, capped, of which a random half to whole.

    ``chance`` in [0, 1) spreads processes that failed together.
    """
    longest: timedelta = min(FIRST_PAUSE * 2 ** min(failures - 1, 16), LONGEST_PAUSE)
    return longest * (0.5 + chance / 2)


def _wait_after(failures: int, error: Exception, *, worker: str) -> timedelta:
    """How long to wait, which is logged; of failures in a row only the first says where it was, and each says why.

    Of an error of the database that is its first line: what it was asked, and with which values, comes after.
    """
    wait = pause(failures, random.random())  # noqa: S311 - spreads retries, guards nothing
    log.error(
        "worker failed",
        worker=worker,
        failures=failures,
        error=type(error).__name__,
        why=str(error).partition("\n")[0],
        again_in=wait.total_seconds(),
        exc_info=error if failures == 1 else None,
    )
    return wait


def lock_key(name: str) -> int:
    """The advisory lock of a worker: a signed 64-bit number that all our processes agree on."""
    return int.from_bytes(blake2b(f"worker {name}".encode(), digest_size=8).digest(), "big", signed=True)


@asynccontextmanager
async def turn(engine: AsyncEngine, name: str) -> AsyncIterator[bool]:
    """Whether it is this process's turn to be the worker ``name``; if so, until the end of the block.

    The lock is the connection's: it goes when the process dies, and no transaction stays open meanwhile.
    """
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with autocommit.connect() as conn:
        key = {"key": lock_key(name)}
        ours = (await conn.execute(text("SELECT pg_try_advisory_lock(:key)"), key)).scalar_one()
        try:
            yield ours
        finally:
            if ours:
                await conn.execute(text("SELECT pg_advisory_unlock(:key)"), key)


async def keep(worker: Worker, engine: AsyncEngine | None, *, pulses: Pulses) -> None:
    """Runs ``worker`` until cancelled. When another process has its turn, that is a success too.

    Without an engine there are no turns: each process does this work of its own.
    """
    pulses.begun(worker)
    failures = 0
    while True:
        began = monotonic()
        try:
            async with turn(engine, worker.name) if engine else nullcontext(True) as ours:
                if ours:
                    await worker.work()
        except Exception as error:  # a worker outlives every failure: that is what this loop is for
            failures += 1
            pulses.failed(worker, timedelta(seconds=monotonic() - began), error=error)
            wait = _wait_after(failures, error, worker=worker.name)
        else:
            failures = 0
            pulses.succeeded(worker, timedelta(seconds=monotonic() - began))
            log.debug("worker succeeded", worker=worker.name, worked=ours)
            wait = worker.every
        await asyncio.sleep(wait.total_seconds())


async def keep_running(name: str, run: Callable[[], Awaitable[Never]]) -> Never:
    """Runs what goes on for ever, until cancelled; after a failure once more. One after it went on for LONGEST_PAUSE is
    the first again."""
    failures = 0
    while True:
        began = monotonic()
        try:
            await run()
        except Exception as error:  # as in keep
            failures = 1 if monotonic() - began > LONGEST_PAUSE.total_seconds() else failures + 1
            await asyncio.sleep(_wait_after(failures, error, worker=name).total_seconds())
