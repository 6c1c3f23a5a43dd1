"""What a Prometheus says beside its answer, as that some of its stores did not answer, is told and not swallowed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from app.collect.contexts import WantedCluster
from app.collect.measuring import EVERY, Measuring
from app.collect.outbound import SAID, Outbound
from app.collect.prometheus import MOST_WARNINGS, PARTIAL, Asking, Prometheus, Question, evaluate
from app.collect.scrape import Kept
from app.core.model import Evaluated
from tests.collect.prometheus_apis import thanos
from tests.collect.test_asking import REDACTOR
from tests.collect.test_importer import T0, Lab, lab
from tests.collect.test_measuring import Clock, running
from tests.collect.test_outbound import FORM, answering
from tests.programs import free_address

__all__ = ["lab"]
MINUTE = timedelta(minutes=1)


async def asked(url: str, query: str = "up", now: datetime = T0) -> Evaluated:
    return await evaluate(Prometheus(url), query, REDACTOR, start=now - MINUTE, end=now, step=timedelta(seconds=15))


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        ({}, ()),
        ({"warnings": [], "infos": None, "isPartial": False}, ()),
        ({"warnings": ["no store"], "infos": ["no counter"]}, ("no store", "no counter")),
        ({"isPartial": True}, (PARTIAL,)),
        ({"warnings": [str(number) for number in range(99)]}, tuple(map(str, range(MOST_WARNINGS)))),
        ({"warnings": ["a" * SAID + "\n" + "b" * SAID]}, (f"{'a' * (SAID // 2)} … {'b' * (SAID // 2)}",)),
    ],
)
async def test_what_is_said_beside_an_answer_is_told(beside: dict[str, Any], told: tuple[str, ...]) -> None:
    def answer(_request: web.Request) -> web.Response:
        return web.json_response({"status": "success", **beside, "data": {"resultType": "matrix", "result": []}})

    async with answering(answer) as url:
        assert (await asked(url)).warnings == told
        found = await Asking(Prometheus(url), Question(("up",), {"x_bucket": ("le",)}), REDACTOR).read(T0, T0)
        assert found.warnings == told, "each once, of several answers"


async def test_no_secret_is_told_on_with_a_warning() -> None:
    def answer(_request: web.Request) -> web.Response:
        warned = {"warnings": ["store https://bob:hunter2-hunter2@store-1 is away"]}
        return web.json_response({"status": "success", **warned, "data": {"resultType": "matrix", "result": []}})

    async with answering(answer) as url:
        found = await Asking(Prometheus(url), Question(("up",)), REDACTOR).read(T0, T0)
        for (said,) in ((await asked(url)).warnings, found.warnings):
            assert (said.startswith("store https://"), "store-1 is away" in said, "hunter2" in said) == (
                True,
                True,
                False,
            )


async def test_the_page_of_clusters_says_what_the_last_answer_warned_of(lab: Lab) -> None:
    remarks: list[tuple[str, ...]] = []
    warnings: list[tuple[str, ...]] = []

    def answer(request: web.Request) -> web.Response:
        remarks.append(one.remarks)
        warnings.append(one.warnings)
        is_first = len(remarks) == 1
        warned = {"warnings": ["store-1 is away", "store-2 is away"]} if is_first else {}
        at = float(request[FORM]["time"])
        line = {"metric": {"__name__": "up"}, "values": [[at, "1"]]}
        return web.json_response({**warned, "data": {"resultType": "matrix", "result": [line]}})

    clock = Clock(sleeps=1)
    async with answering(answer) as url:
        wanted = WantedCluster(lab.cluster, prometheus=Prometheus(url))
        questions = [Question(("up",))]
        one = Measuring(lab.database.write, wanted, pace=clock.pace(), kept=Kept(), questions=questions)
        async with running(one, clock):
            await clock.over.wait()
    warned = f"{url} warned when it answered at {T0:%H:%M} UTC: store-1 is away; store-2 is away"
    assert remarks[0] == ()
    assert remarks[1] == warnings[1] == (warned,), "it answered all the same: nothing fails"
    assert one.remarks == (), "it answered without a warning since"
    assert clock.now == T0 + EVERY


async def test_a_thanos_of_which_a_store_is_away_answers_and_that_is_told(tmp_path: Path) -> None:
    away = free_address()
    every = {"scrape_interval": "500ms", "scrape_timeout": "400ms"}
    with thanos(tmp_path, {"global": every}, away) as url:
        async with Outbound.to(Prometheus(url)) as outbound:
            (said,) = json.loads(await outbound.post("/api/v1/query", {"query": "up"}))["warnings"]
        now = datetime.now(UTC)
        answer = await asked(url, now=now)
        found = await Asking(Prometheus(url), Question(("up",)), REDACTOR).read(now - MINUTE, now)
    assert away in said
    for warnings in (answer.warnings, found.warnings):
        (told,) = warnings
        assert away in told
        assert "connection refused" in told


async def test_what_several_questions_are_warned_of_alike_is_told_once(lab: Lab) -> None:
    def answer(_request: web.Request) -> web.Response:
        return web.json_response({"warnings": ["no store"], "data": {"resultType": "matrix", "result": []}})

    clock = Clock(sleeps=2)
    async with answering(answer) as url:
        wanted = WantedCluster(lab.cluster, prometheus=Prometheus(url))
        questions = [Question(("up",)), Question(("up",), of_apps=True)]
        # A clock that stands: each question moves this one on, and either may have asked first.
        pace = replace(clock.pace(), clock=lambda: T0)
        one = Measuring(lab.database.write, wanted, pace=pace, kept=Kept(), questions=questions)
        async with running(one, clock):
            await clock.over.wait()
    assert one.remarks == (f"{url} and {url} of apps warned when it answered at {T0:%H:%M} UTC: no store",)
