"""A cluster's metrics are recorded from where they were asked for last, and what fails is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy.exc import OperationalError

from app.collect.contexts import WantedCluster
from app.collect.measuring import EVERY, WAITING, Measuring
from app.collect.prometheus import FIRST, LONGEST, OVERLAP, Prometheus, Question
from app.collect.scrape import Kept, Target
from app.collect.watch import Pace
from app.core.metrics.lines import SINCE
from app.core.model import MetricSeries
from app.core.objects.redact import Redactor
from app.store import measured, series
from tests.collect.test_importer import T0, Lab, lab
from tests.collect.test_outbound import FORM, answering
from tests.programs import free_address
from tests.samples import plain
from tests.stale import is_stale

__all__ = ["lab"]
NAMES = ("up", "workqueue_depth", "process_start_time_seconds")
KEPT = Kept(frozenset(NAMES))
ADDRESS = "https://10.0.0.1:6443"


class Clock:
    """Moves on with each sleep, and ends everything after some."""

    def __init__(self, sleeps: int) -> None:
        self.now, self._left = T0, sleeps
        self.over = asyncio.Event()

    async def sleep(self, wait: timedelta) -> None:
        self._left -= 1
        if self._left < 0:
            self.over.set()
            await asyncio.Event().wait()
        self.now += wait

    def pace(self) -> Pace:
        return Pace(clock=lambda: self.now, sleep=self.sleep, chance=lambda: 0.0)


def measuring(lab: Lab, wanted: WantedCluster, clock: Clock) -> Measuring:
    return Measuring(lab.database.write, wanted, pace=clock.pace(), kept=KEPT, questions=[Question(NAMES)])


@asynccontextmanager
async def running(one: Measuring, clock: Clock | None = None) -> AsyncIterator[None]:
    """Runs it meanwhile. What ends it before its ``clock`` is over is raised, and not waited for."""
    task = asyncio.create_task(one.run())
    if clock:
        task.add_done_callback(lambda _: clock.over.set())
    try:
        await asyncio.wait_for(one.ready.wait(), 10)
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def stored(lab: Lab, name: str) -> list[MetricSeries]:
    async with lab.database.read.connect() as conn:
        found = await series.read(conn, lab.cluster, T0 - timedelta(days=1), T0 + timedelta(days=1))
    return plain(one for one in found if one.name == name)


def a_prometheus(clock: Clock, asked: list[tuple[str, float]]) -> Callable[[web.Request], web.Response]:
    """One that has a sample of every half minute."""

    def answer(request: web.Request) -> web.Response:
        form = request[FORM]
        end, seconds = float(form["time"]), int(form["query"].rpartition("[")[2][:-2])
        asked.append((form["query"], end - T0.timestamp()))
        times = [at for at in range(int(end) - seconds, int(end) + 1) if at % 30 == 0]
        line = {"metric": {"__name__": "up", "instance": "a"}, "values": [[at, "1"] for at in times]}
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": [line]}})

    return answer


async def test_a_prometheus_is_asked_from_where_it_was_asked_last_also_after_a_restart(lab: Lab) -> None:
    asked: list[tuple[str, float]] = []
    clock = Clock(sleeps=2)
    async with answering(a_prometheus(clock, asked)) as url:
        wanted = WantedCluster(lab.cluster, prometheus=Prometheus(url, matchers='cluster="shop"'))
        async with running(measuring(lab, wanted, clock), clock):
            await clock.over.wait()
        first = len(asked)
        again = Clock(sleeps=0)
        again.now = clock.now + timedelta(minutes=10)
        async with running(measuring(lab, wanted, again), again):
            await again.over.wait()
    assert asked[0][0] == (
        f'{{__name__=~"process_start_time_seconds|up|workqueue_depth",cluster="shop"}}'
        f"[{(LONGEST + OVERLAP).total_seconds():.0f}s]"
    )
    past = int(FIRST / LONGEST)
    assert [end for _, end in asked[:past]] == [-(past - 1 - n) * LONGEST.total_seconds() for n in range(past)]
    assert [end for _, end in asked[past:first]] == [30, 60], "then each half minute"
    assert [end for _, end in asked[first:]] == [660]
    assert asked[-1][0].endswith("[660s]"), "since it was asked last, and a little more"
    (one,) = await stored(lab, "up")
    assert [after - before for before, after in zip(one.times, one.times[1:], strict=False)] == [30] * (
        len(one.times) - 1
    )
    assert one.times[-1] == T0.timestamp() + 660
    assert one.labels == (("instance", "a"),)


async def test_of_a_prometheus_that_is_away_it_is_said_once(lab: Lab) -> None:
    clock = Clock(sleeps=50)  # so that both questions were asked, whichever is quicker
    away = Prometheus(f"http://{free_address()}")
    questions = [Question(NAMES), Question(("http_requests_total",), of_apps=True)]
    pace = replace(clock.pace(), clock=lambda: T0)
    one = Measuring(
        lab.database.write, WantedCluster(lab.cluster, prometheus=away), pace=pace, kept=KEPT, questions=questions
    )
    async with running(one, clock):
        await clock.over.wait()
    (remark,) = one.remarks
    assert remark.startswith(f"no metrics from {away.url} and {away.url} of apps since {T0:%H:%M} UTC: ")


async def test_where_apps_are_too_many_the_control_plane_is_still_told_of(lab: Lab) -> None:
    clock = Clock(sleeps=6)
    control_plane = a_prometheus(clock, [])

    def answer(request: web.Request) -> web.Response:
        if "http_requests_total" in request[FORM]["query"]:
            return web.json_response({"status": "error", "error": "too many samples"}, status=422)
        return control_plane(request)

    questions = [Question(("http_requests_total",), of_apps=True), Question(NAMES)]
    async with answering(answer) as url:
        wanted = WantedCluster(lab.cluster, prometheus=Prometheus(url))
        one = Measuring(lab.database.write, wanted, pace=clock.pace(), kept=KEPT, questions=questions)
        async with running(one, clock):
            await clock.over.wait()
    (remark,) = one.remarks
    assert f"no metrics from {url} of apps since" in remark
    assert "http_requests_total" in remark
    (up,) = await stored(lab, "up")
    assert len(up.times) > 10


async def test_a_target_is_scraped_and_what_fails_is_said_until_it_answers_again(lab: Lab) -> None:
    answers = iter(["workqueue_depth 3\n", None, None, "workqueue_depth 4\nfelix_int 5\nother 6\n"])
    remarks: list[tuple[str, ...]] = []

    def answer(_request: web.Request) -> web.Response:
        remarks.append(one.remarks)
        said = next(answers)
        return web.Response(text=said) if said else web.Response(status=503)

    clock = Clock(sleeps=3)
    async with answering(answer) as url:
        wanted = WantedCluster(lab.cluster, scrape=(Target(url, job="etcd"),), scrape_also=("felix_",))
        one = measuring(lab, wanted, clock)
        async with running(one, clock):
            await clock.over.wait()
    assert remarks[0] == remarks[1] == one.remarks == ()
    assert remarks[2] == remarks[3]
    assert "503" in remarks[2][0]
    assert f"since {T0 + EVERY:%H:%M} UTC" in remarks[2][0]
    (up,) = await stored(lab, "up")
    assert up.values == (1.0, 0.0, 0.0, 1.0)
    (depth,) = await stored(lab, "workqueue_depth")
    assert [("end" if is_stale(value) else value) for value in depth.values] == [3.0, "end", 4.0]
    assert [felix.values for felix in await stored(lab, "felix_int")] == [(5.0,)]
    assert await stored(lab, "other") == []


def api_server(started: float, depth: int) -> bytes:
    return f"# TYPE up gauge\nworkqueue_depth {depth}\nprocess_start_time_seconds {started!r}\n".encode()


async def test_an_api_server_that_others_tell_of_is_left_to_them(lab: Lab) -> None:
    """By remote-write, under another name: it is known by when it was started."""
    one, started = measuring(lab, WantedCluster(lab.cluster), Clock(sleeps=0)), T0.timestamp() - 86400.37
    sent = (("instance", "10.0.0.1:6443"), ("job", "apiserver"))

    async def send(minute: int, start: float) -> None:
        at = (T0 + timedelta(minutes=minute)).timestamp()
        async with lab.database.write.begin() as conn:
            told = MetricSeries("process_start_time_seconds", sent, "", (at,), (start,))
            await measured.record(conn, lab.cluster, [told])

    async with running(one):
        await send(0, started - 1)  # another one
        await one.take(api_server(started, 1), ADDRESS, T0)
        await send(1, started)
        for minute in (1, 2, 8):  # nobody has told of it for long by then
            await one.take(api_server(started, minute), ADDRESS, T0 + timedelta(minutes=minute))
    (depth,) = await stored(lab, "workqueue_depth")
    assert [("end" if is_stale(value) else value) for value in depth.values] == [1.0, "end", 8.0]
    assert [(at - T0.timestamp()) / 60 for at in depth.times] == [0, 1, 8]


async def test_api_servers_behind_one_address_are_told_apart(lab: Lab) -> None:
    one = measuring(lab, WantedCluster(lab.cluster), Clock(sleeps=0))
    assert not one.is_wanted, "it cannot be kept yet"
    async with running(one):
        started = T0.timestamp()
        for number, (start, depth) in enumerate([(started, 1), (started + 60, 10), (started, 2), (started + 60, 11)]):
            await one.take(api_server(start, depth), ADDRESS, T0 + timedelta(minutes=number))
        await one.miss(T0 + timedelta(minutes=4))
    found = {dict(told.labels)["instance"]: told for told in await stored(lab, "workqueue_depth")}
    assert [name.split(",")[0] for name in found] == ["10.0.0.1:6443"] * 2
    assert sorted(tuple(told.values[:2]) for told in found.values()) == [(1.0, 2.0), (10.0, 11.0)]
    assert all(is_stale(told.values[2]) for told in found.values())


@pytest.mark.parametrize("started", ["NaN", "+Inf", "1e30", "-5"])
async def test_an_api_server_that_was_started_at_no_time_is_told_of_all_the_same(lab: Lab, started: str) -> None:
    one = measuring(lab, WantedCluster(lab.cluster), Clock(sleeps=0))
    async with running(one):
        await one.take(api_server(0, 7).replace(b" 0\n", f" {started}\n".encode()), ADDRESS, T0)
    (depth,) = await stored(lab, "workqueue_depth")
    assert depth.values == (7.0,)


@pytest.mark.parametrize(
    ("bad", "ended"),
    [(b"<html>", {"a", "b"}), (api_server(T0.timestamp(), 3) + b"workqueue_depth {broken 1\n", {"a"})],
)
async def test_what_an_api_server_told_ends_when_it_tells_what_cannot_be_read(
    lab: Lab, bad: bytes, ended: set[str]
) -> None:
    one = measuring(lab, WantedCluster(lab.cluster), Clock(sleeps=0))
    starts = {f"{since:%Y-%m-%d %H:%M:%S}": name for since, name in ((T0, "a"), (T0 + timedelta(seconds=60), "b"))}
    async with running(one):
        for start in (T0.timestamp(), T0.timestamp() + 60):
            await one.take(api_server(start, 1), ADDRESS, T0)
        await one.take(bad, ADDRESS, T0 + timedelta(minutes=1))
    assert "not Prometheus' text" in one.remarks[0]
    found = {dict(told.labels)["instance"].rpartition(SINCE)[2]: told for told in await stored(lab, "workqueue_depth")}
    assert {starts[since] for since, told in found.items() if is_stale(told.values[-1])} == ended
    ups = [told.values[-1] for told in await stored(lab, "up")]
    assert sorted(ups) == [0.0] * len(ended) + [1.0] * (2 - len(ended))


@pytest.mark.parametrize(
    ("more", "wanted"),
    [({}, True), ({"scrape_api_server": False}, False), ({"prometheus": Prometheus("http://p")}, False)],
)
async def test_the_api_server_is_scraped_where_nobody_else_tells_of_it(
    lab: Lab, more: dict[str, Any], wanted: bool
) -> None:
    one = measuring(lab, WantedCluster(lab.cluster, **more), Clock(sleeps=0))
    one._redactor = Redactor(b"k" * 32)
    assert one.is_wanted is wanted


async def test_what_is_scraped_while_the_database_is_away_waits_for_it_so_long(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = measuring(lab, WantedCluster(lab.cluster), Clock(sleeps=0))

    async def away(*_args: object, **_more: object) -> None:
        raise OperationalError("", {}, Exception())

    def minute(number: int) -> datetime:
        return T0 + timedelta(minutes=number)

    async with running(one):
        with monkeypatch.context() as patched:
            patched.setattr(measured, "record", away)
            for number in range(15):
                await one.take(api_server(1.0, number), ADDRESS, minute(number))
        await one.take(api_server(1.0, 15), ADDRESS, minute(15))
    (depth,) = await stored(lab, "workqueue_depth")
    kept = int(WAITING / timedelta(minutes=1))
    assert depth.values == tuple(range(15 - kept, 16)), "the oldest are a gap"
