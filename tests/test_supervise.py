"""Workers: one at a time, again after a failure, and what /readyz hears of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Never

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from structlog.testing import capture_logs

from app import supervise
from app.main import workers
from app.notifying import notifier_of
from app.settings import Settings
from app.store import notices
from app.store.database import TURNS, Database
from app.supervise import LONGEST_PAUSE, Pulses, Worker
from app.tasks import end

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_a_pause_grows_to_a_minute_and_no_further(failures: int, chance: float) -> None:
    wait = supervise.pause(failures, chance)
    assert timedelta(seconds=0.5) <= wait <= LONGEST_PAUSE
    assert wait <= 2 * supervise.pause(failures + 1, chance)


def test_pauses_of_processes_that_failed_together_differ() -> None:
    assert supervise.pause(5, 0.1) < supervise.pause(5, 0.9)


async def test_two_processes_never_work_at_once(database: Database) -> None:
    async with supervise.turn(database.write, "sweep") as first:
        async with supervise.turn(database.write, "sweep") as second:
            assert (first, second) == (True, False)
        async with supervise.turn(database.write, "another") as other:
            assert other
    async with supervise.turn(database.write, "sweep") as again:
        assert again


async def test_a_turn_leaves_no_transaction_open(database: Database) -> None:
    async with supervise.turn(database.write, "sweep"), database.read.connect() as conn:
        open_ones = await conn.execute(
            text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'")
        )
        assert open_ones.scalar_one() == 0


async def test_the_turn_passes_on_when_its_connection_is_cut(database: Database) -> None:
    async def cut() -> None:
        async with supervise.turn(database.write, "sweep"), database.read.connect() as conn:
            await conn.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            )

    with pytest.raises(SQLAlchemyError):
        await cut()
    for _ in range(50):
        async with supervise.turn(database.write, "sweep") as ours:
            if ours:
                return
        await asyncio.sleep(0.05)
    pytest.fail("the lock stayed with a dead connection")


async def test_a_worker_that_fails_is_run_again_and_readiness_hears_of_it(database: Database) -> None:
    clock = Clock()
    pulses = Pulses(clock)
    rounds = 0
    once, thrice = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            once.set()
            raise ConnectionError("password=hunter2")
        if rounds == 3:
            thrice.set()

    worker = Worker("sweep", work, timedelta(seconds=0.01))
    task = asyncio.create_task(supervise.keep(worker, database.write, pulses=pulses))
    await asyncio.wait_for(once.wait(), 10)
    clock.now += timedelta(seconds=61)
    await asyncio.sleep(0.05)
    assert pulses.not_ready() == ["sweep has not succeeded for 61 s (last: ConnectionError)"]
    await asyncio.wait_for(thrice.wait(), 10)
    assert pulses.not_ready() == []
    await asyncio.wait_for(end([task]), 20)
    assert task.cancelled()


async def test_of_failures_in_a_row_each_says_why_and_the_first_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an error of the database neither the statement nor its values are repeated."""
    why = "cannot connect to db:5432"
    failure = OperationalError("SELECT :secret", {"secret": "hunter2"}, ConnectionError(f"{why}\nDETAIL: hunter2"))
    monkeypatch.setattr(supervise, "FIRST_PAUSE", timedelta(milliseconds=1))
    monkeypatch.setattr(supervise, "log", structlog.get_logger())
    rounds = 0

    async def run() -> Never:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            raise asyncio.CancelledError
        raise failure

    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await supervise.keep_running("sweep", run)
    assert [(line["error"], line["failures"]) for line in lines] == [("OperationalError", 1), ("OperationalError", 2)]
    assert {line["why"] for line in lines} == {f"(builtins.ConnectionError) {why}"}
    assert [line["exc_info"] for line in lines] == [failure, None]


async def test_a_failure_after_it_went_on_for_long_is_the_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "FIRST_PAUSE", timedelta(milliseconds=1))
    monkeypatch.setattr(supervise, "log", structlog.get_logger())
    clock, lasts = 0.0, [1.0, 61.0, 1.0, 1.0]
    monkeypatch.setattr(supervise, "monotonic", lambda: clock)

    async def run() -> Never:
        nonlocal clock
        if not lasts:
            raise asyncio.CancelledError
        clock += lasts.pop()
        raise ConnectionError

    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await supervise.keep_running("sweep", run)
    assert [line["failures"] for line in lines] == [1, 2, 1, 2]


async def test_a_slow_worker_is_given_three_of_its_rounds(database: Database) -> None:
    clock = Clock()
    pulses = Pulses(clock)
    pulses.begun(Worker("daily", lambda: asyncio.sleep(0), timedelta(hours=1)))
    clock.now += timedelta(hours=3)
    assert pulses.not_ready() == []
    clock.now += timedelta(seconds=1)
    assert pulses.not_ready() == ["daily has not succeeded for 10801 s"]


async def test_all_workers_may_begin_at_once(database: Database) -> None:
    """Each holds its turn while it waits for a connection of the pool that they share."""
    pulses, began = Pulses(Clock()), asyncio.Barrier(TURNS)
    done: list[int] = []

    async def work(number: int) -> None:
        await began.wait()  # all have their turn
        async with database.write.begin() as conn:
            await conn.execute(text("SELECT pg_sleep(0.05)"))
        done.append(number)

    many = [Worker(f"w{n}", partial(work, n), timedelta(hours=1)) for n in range(TURNS)]
    tasks = [asyncio.create_task(supervise.keep(one, database.turns, pulses=pulses)) for one in many]
    try:
        async with asyncio.timeout(20):
            while len(done) < TURNS:  # noqa: ASYNC110 - of others' list
                await asyncio.sleep(0.02)
    finally:
        await end(tasks)
    assert [one.failures for one in pulses.work()] == [0] * TURNS


def test_there_is_a_turn_for_every_worker(database: Database) -> None:
    settings = Settings(slack_token=SecretStr("xoxb-1"), slack_channel="C0123456789")
    notifier = notifier_of(settings, database, url="http://foreshock.test", clock=Clock())
    assert len(workers(settings, database)) + len(notifier.workers()) <= TURNS


async def test_a_file_of_routes_counts_from_when_it_is_written(database: Database, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    notifier = notifier_of(settings, database, url="http://foreshock.test", clock=Clock())
    find = next(one.work for one in notifier.workers() if one.name == "notices")

    async def has_begun() -> bool:
        async with database.read.connect() as conn:
            return bool(await notices.read_places(conn))

    await find()
    assert not await has_begun()
    (tmp_path / "routes.yaml").write_text("routes: [{channel: C0123456789}]")
    await find()
    assert await has_begun()
