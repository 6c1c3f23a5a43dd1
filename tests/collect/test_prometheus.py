"""Samples that a real Prometheus scraped come over as they were scraped, each once; histograms as sums."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from math import isnan

import pytest
from aiohttp import web

from app.collect.outbound import Outbound, OutboundError
from app.collect.prometheus import REFUSED, Asking, Prometheus, Question, evaluate
from app.core.model import MetricSeries
from app.core.objects.redact import Redactor
from app.core.signals.collected import ASKED_OF_APPS, SUMMED_OF_APPS
from tests.collect.prometheus_apis import ALL, LATE
from tests.listening import listening

REDACTOR = Redactor(b"k" * 32)
NAMES = ("up", "shop_calls_total")
SUMMED: dict[str, tuple[str, ...]] = {"shop_seconds_bucket": ("le", "verb")}


@pytest.fixture(scope="module", params=ALL)
def api(request: pytest.FixtureRequest) -> str:
    """Whose API it is."""
    return str(request.param)


@pytest.fixture(scope="module")
async def target(api: str) -> AsyncIterator[str]:
    """A program whose counters rise by ten with each scrape; one of its series goes after the sixth."""
    scrapes = 0

    async def metrics(_request: web.Request) -> web.Response:
        nonlocal scrapes
        scrapes += 1
        lines = [f'shop_calls_total{{path="/{path}"}} {scrapes * 10}' for path in "ab"]
        lines += ["shop_brief 1"] if scrapes <= 6 else []
        for pod in "xy":
            lines += [f'shop_seconds_bucket{{pod="{pod}",verb="GET",le="{le}"}} {scrapes}' for le in ("1", "+Inf")]
            for path in "ab":
                labels = f'namespace="shop",pod="{pod}",path="/{path}"'
                lines += [f'http_requests_total{{{labels},code="{code}"}} {scrapes}' for code in (200, 503)]
        return web.Response(text="\n".join(["# TYPE shop_calls_total counter", *lines]) + "\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    async with listening(app) as url:
        yield url.removeprefix("http://")


@pytest.fixture(scope="module")
def prometheus(api: str, target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where that is asked for which a Prometheus scrapes of it twice a second, once as of each of two clusters."""
    folder = tmp_path_factory.mktemp("prometheus")
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [target], "labels": {"cluster": name}}]}
        for name in ("shop", "other")
    ]
    rule = {"alert": "Failing", "expr": "sum by (cluster, pod) (http_requests_total) > 0", "for": "1h"}
    rules = folder / "rules.yml"
    rules.write_text(json.dumps({"groups": [{"name": "shop", "interval": "500ms", "rules": [rule]}]}))
    every = {"scrape_interval": "500ms", "scrape_timeout": "400ms"}
    with ALL[api](folder, {"global": every, "scrape_configs": jobs, "rule_files": [str(rules)]}) as url:
        yield url


async def scraped(url: str, times: int) -> None:
    """Wait until it has so many samples of each series."""
    deadline = time.monotonic() + 60
    query = {"query": 'min(count_over_time(shop_calls_total{cluster="shop"}[10m]))'}
    while time.monotonic() < deadline:
        async with Outbound.to(Prometheus(url)) as outbound:
            result = json.loads(await outbound.post("/api/v1/query", query))["data"]["result"]
        if result and int(result[0]["value"][1]) >= times:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("nothing was scraped")


async def stored(url: str, selector: str, until: datetime) -> list[tuple[float, float]]:
    """The samples of one series as Prometheus itself has them."""
    query = {"query": f"{selector}[10m]", "time": str(until.timestamp())}
    async with Outbound.to(Prometheus(url)) as outbound:
        (one,) = json.loads(await outbound.post("/api/v1/query", query))["data"]["result"]
    return [(at, float(value)) for at, value in one["values"]]


def values(series: tuple[MetricSeries, ...], name: str, **labels: str) -> list[tuple[float, float]]:
    """The points of the one series that is called so."""
    (one,) = (one for one in series if one.name == name and labels.items() <= dict(one.labels).items())
    return list(zip(one.times, one.values, strict=True))


async def test_samples_come_as_they_were_scraped_and_each_once(prometheus: str) -> None:
    asking = Asking(Prometheus(prometheus, matchers='cluster="shop"'), Question(NAMES), REDACTOR)
    await scraped(prometheus, 12 + 2 * LATE)
    now = datetime.now(UTC) - timedelta(seconds=LATE)
    first = await asking.read(now - timedelta(minutes=1), now)
    assert first.until == now
    assert {dict(one.labels)["cluster"] for one in first.series} == {"shop"}
    points = values(first.series, "shop_calls_total", path="/a")
    assert len(points) >= 8
    assert all(0.2 < after[0] - before[0] < 2 for before, after in pairwise(points))
    in_all = await stored(prometheus, 'shop_calls_total{cluster="shop",path="/a"}', first.until)
    assert points == in_all[-len(points) :]
    again = await asking.read(now - timedelta(minutes=1), now)
    assert set(again.series) == set(first.series), "it was not kept"
    asking.keep(first)
    assert (await asking.read(now, now)).series == ()
    await scraped(prometheus, len(points) + 4 * LATE + 2)
    later = datetime.now(UTC) - timedelta(seconds=LATE)
    more = values((await asking.read(first.until, later)).series, "shop_calls_total", path="/a")
    assert more
    assert more[0][0] > points[-1][0]
    in_all = await stored(prometheus, 'shop_calls_total{cluster="shop",path="/a"}', later)
    assert points + more == in_all[-len(points + more) :], "none is left out between the two"


async def test_buckets_are_added_up_by_what_is_wanted_of_them(prometheus: str) -> None:
    await scraped(prometheus, 8)
    source, step = Prometheus(prometheus, matchers='cluster="shop"'), timedelta(seconds=2)
    asking = Asking(source, Question(summed=SUMMED), REDACTOR, step=step)
    now = datetime.now(UTC)
    found = await asking.read(now, now)
    assert {one.name for one in found.series} == {"shop_seconds_bucket"}
    assert {tuple(dict(one.labels)) for one in found.series} == {("instance", "job", "le", "verb")}
    assert {dict(one.labels)["le"] for one in found.series} == {"1", "+Inf"}
    assert all(at % 2 == 0 and value % 2 == 0 for at, value in values(found.series, "shop_seconds_bucket", le="1"))


async def test_a_sum_that_was_told_too_early_is_told_again(prometheus: str) -> None:
    """VictoriaMetrics says of what is too new what was before; where samples come late, a sum may lack some."""
    await scraped(prometheus, 8)
    source, step = Prometheus(prometheus, matchers='cluster="shop"'), timedelta(seconds=1)
    asking = Asking(source, Question(summed=SUMMED), REDACTOR, step=step)
    found: dict[float, float] = {}
    for _ in range(3):
        now = datetime.now(UTC)
        asked = await asking.read(now - timedelta(seconds=10), now)
        asking.keep(asked)
        found |= values(asked.series, "shop_seconds_bucket", le="1")
        await asyncio.sleep(LATE)
    start, end = (datetime.fromtimestamp(at, UTC) for at in (min(found), now.timestamp() // 1 - LATE))
    query = 'sum(shop_seconds_bucket{cluster="shop",le="1"})'
    (line,) = (await evaluate(source, query, REDACTOR, start=start, end=end, step=step)).series
    true = dict(zip(line.times, line.values, strict=True))
    assert len(true) > 5
    assert {at: found.get(at) for at in true} == true


async def test_a_series_that_went_just_has_no_more_samples_and_its_sum_ends_with_it(api: str, prometheus: str) -> None:
    """Prometheus marks its end, but of a range selector it never tells these marks; VictoriaMetrics does."""
    await scraped(prometheus, 12)
    source, now = Prometheus(prometheus, matchers='cluster="shop"'), datetime.now(UTC)
    question = Question(("shop_brief",), {"shop_brief": ("pod",)})
    found = await Asking(source, question, REDACTOR, step=timedelta(seconds=1)).read(now - timedelta(minutes=5), now)
    plain, summed = sorted(found.series, key=lambda one: len(one.labels), reverse=True)
    ends = [number for number, value in enumerate(plain.values) if isnan(value)]
    assert ends == ([len(plain.values) - 1] if api == "VictoriaMetrics" else [])
    assert {value for value in plain.values if not isnan(value)} == set(summed.values) == {1.0}
    assert plain.times[-1] < now.timestamp() - 2
    assert summed.times[-1] < plain.times[-1] + 2


async def test_of_apps_the_paths_are_added_up_and_alerts_say_since_when_they_hold(prometheus: str) -> None:
    await scraped(prometheus, 8)
    source = Prometheus(prometheus, matchers='job="nobody"', app_matchers='cluster="shop"')
    question = Question(tuple(ASKED_OF_APPS), SUMMED_OF_APPS, of_apps=True)
    now = datetime.now(UTC)
    found = (await Asking(source, question, REDACTOR, step=timedelta(seconds=2)).read(now, now)).series
    counted = [dict(one.labels) for one in found if one.name == "http_requests_total"]
    told = sorted((one["namespace"], one["pod"], one["code"]) for one in counted)
    assert told == [("shop", pod, code) for pod in "xy" for code in ("200", "503")]
    assert not any("path" in one for one in counted)
    assert all(value % 2 == 0 for one in found if one.name == "http_requests_total" for value in one.values)
    held = [one for one in found if one.name == "ALERTS_FOR_STATE"]
    assert {dict(one.labels)["pod"] for one in held} == {"x", "y"}, "of this cluster alone"
    assert all(now.timestamp() - 120 < value <= now.timestamp() for one in held for value in one.values)
    assert not (await Asking(source, Question(NAMES), REDACTOR).read(now, now)).series, "matchers hold for all else"


async def test_a_query_that_is_refused_is_said_and_not_asked_in_parts(prometheus: str) -> None:
    now = datetime.now(UTC)
    for matchers, why in ((r'a="\q"', "escape|invalid syntax"), ('a=~"("', "missing closing")):
        with pytest.raises(OutboundError, match=why) as wrong:
            await Asking(Prometheus(prometheus, matchers=matchers), Question(NAMES), REDACTOR).read(now, now)
        assert "shorter times" not in str(wrong.value), "nothing of it is too much"


async def test_a_query_of_ones_own_is_evaluated(prometheus: str) -> None:
    await scraped(prometheus, 8 + 2 * LATE)
    end = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=LATE)
    ask = partial(
        evaluate,
        Prometheus(prometheus),
        redactor=REDACTOR,
        start=end - timedelta(seconds=2),
        end=end,
        step=timedelta(seconds=1),
    )
    answer = await ask(query="sum by (cluster) (rate(shop_calls_total[2s]))")
    found = answer.series
    assert answer.warnings == ()
    assert {(one.name, one.labels) for one in found} == {("", (("cluster", name),)) for name in ("shop", "other")}
    assert all(len(one.times) == 3 and 30 < value < 200 for one in found for value in one.values)
    with pytest.raises(OutboundError, match=r"parse error|unparsed data") as wrong:
        await ask(query="sum(")
    assert wrong.value.status in REFUSED
