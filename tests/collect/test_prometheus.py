"""Samples that a real Prometheus scraped come over as they were scraped, each once; histograms as sums."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import msgspec
import pytest
from aiohttp import web

from app.collect.outbound import EndpointError, Outbound, OutboundError
from app.collect.prometheus import FIRST, LONGEST, OVERLAP, SHORTEST, Asking, Prometheus, Question, evaluate
from app.core.collected import ASKED_OF_APPS, SUMMED_OF_APPS
from app.core.model import MetricSeries
from app.core.redact import Redactor
from tests.collect.test_importer import T0
from tests.collect.test_outbound import FORM, answering
from tests.programs import found, free_address, running

REDACTOR = Redactor(b"k" * 32)
NAMES = ("up", "shop_calls_total")
SUMMED: dict[str, tuple[str, ...]] = {"shop_seconds_bucket": ("le", "verb")}


@pytest.fixture(scope="module")
async def target() -> AsyncIterator[str]:
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
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture(scope="module")
def prometheus(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a Prometheus is that scrapes it twice a second, once as of each of two clusters."""
    executable, folder = found("prometheus", package="prometheus"), tmp_path_factory.mktemp("prometheus")
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [target], "labels": {"cluster": name}}]}
        for name in ("shop", "other")
    ]
    rule = {"alert": "Failing", "expr": "sum by (cluster, pod) (http_requests_total) > 0", "for": "1h"}
    rules, config = folder / "rules.yml", folder / "prometheus.yml"
    rules.write_text(json.dumps({"groups": [{"name": "shop", "interval": "500ms", "rules": [rule]}]}))
    every = {"scrape_interval": "500ms", "scrape_timeout": "400ms"}
    config.write_text(json.dumps({"global": every, "scrape_configs": jobs, "rule_files": [str(rules)]}))
    command = [executable, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with running(*command, address=free_address(), folder=folder) as url:
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
    """The samples of one series, of the minute before, as Prometheus itself has them."""
    query = {"query": f"{selector}[1m]", "time": str(until.timestamp())}
    async with Outbound.to(Prometheus(url)) as outbound:
        (one,) = json.loads(await outbound.post("/api/v1/query", query))["data"]["result"]
    return [(at, float(value)) for at, value in one["values"]]


def values(series: tuple[MetricSeries, ...], name: str, **labels: str) -> list[tuple[float, float]]:
    """The points of the one series that is called so."""
    (one,) = (one for one in series if one.name == name and labels.items() <= dict(one.labels).items())
    return list(zip(one.times, one.values, strict=True))


async def test_samples_come_as_they_were_scraped_and_each_once(prometheus: str) -> None:
    await scraped(prometheus, 8)
    asking = Asking(Prometheus(prometheus, matchers='cluster="shop"'), Question(NAMES), REDACTOR)
    now = datetime.now(UTC)
    first = await asking.read(now - timedelta(minutes=1), now)
    assert first.until == now
    assert {dict(one.labels)["cluster"] for one in first.series} == {"shop"}
    points = values(first.series, "shop_calls_total", path="/a")
    assert len(points) >= 8
    assert all(0.2 < after[0] - before[0] < 2 for before, after in pairwise(points))
    assert points == await stored(prometheus, 'shop_calls_total{cluster="shop",path="/a"}', first.until)
    again = await asking.read(now - timedelta(minutes=1), now)
    assert again.series == first.series, "it was not kept"
    asking.keep(first)
    assert (await asking.read(now, now)).series == ()
    await scraped(prometheus, len(points) + 2)
    later = datetime.now(UTC)
    more = values((await asking.read(first.until, later)).series, "shop_calls_total", path="/a")
    assert more
    assert more[0][0] > points[-1][0]
    assert more[0][1] == points[-1][1] + 20.0, "none is left out between the two"


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


async def test_a_series_that_went_just_has_no_more_samples_and_its_sum_ends_with_it(prometheus: str) -> None:
    """Prometheus marks its end, but of a range selector it never tells these marks."""
    await scraped(prometheus, 12)
    source, now = Prometheus(prometheus, matchers='cluster="shop"'), datetime.now(UTC)
    question = Question(("shop_brief",), {"shop_brief": ("pod",)})
    found = await Asking(source, question, REDACTOR, step=timedelta(seconds=1)).read(now - timedelta(minutes=5), now)
    plain, summed = sorted(found.series, key=lambda one: len(one.labels), reverse=True)
    assert set(plain.values) == set(summed.values) == {1.0}
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


TOO_MANY = "query processing would load too many samples into memory in query execution"


class Small:
    """A Prometheus that loads samples of so many metrics, of so many seconds, and no more; it notes what is asked."""

    def __init__(self, *, metrics: int = 99, seconds: int = 99_999) -> None:
        self.metrics, self.seconds = metrics, seconds
        self.asked: list[tuple[list[str], int]] = []

    def __call__(self, request: web.Request) -> web.Response:
        names, seconds = re.fullmatch(r'\{__name__=~"(.*)"\}\[(\d+)s\]', request[FORM]["query"]).groups()  # type: ignore[union-attr]
        named = names.split("|")
        self.asked.append((named, int(seconds)))
        if len(named) > self.metrics or int(seconds) > self.seconds:
            return web.json_response({"status": "error", "errorType": "execution", "error": TOO_MANY}, status=422)
        result = [{"metric": {"__name__": name}, "values": [[T0.timestamp(), "1"]]} for name in named]
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})


async def test_a_question_that_loads_too_much_is_asked_in_halves_from_then_on() -> None:
    small = Small(metrics=2)
    async with answering(small) as url:
        asking = Asking(Prometheus(url), Question(tuple("abcde")), REDACTOR)
        first = await asking.read(T0 - timedelta(minutes=5), T0)
        assert sorted(one.name for one in first.series) == ["a", "b", "c", "d", "e"]
        sizes = [len(names) for names, _ in small.asked]
        assert sizes[0] == 5
        assert sorted(sizes) == [1, 2, 2, 3, 5]
        small.asked.clear()
        again = await asking.read(T0 - timedelta(minutes=5), T0)
        assert sorted(one.name for one in again.series) == ["a", "b", "c", "d", "e"]
        assert sorted(len(names) for names, _ in small.asked) == [1, 2, 2], "what is too much is not asked again"


async def test_a_metric_that_is_too_much_by_itself_is_asked_for_half_the_time() -> None:
    small, since = Small(seconds=1200), T0 - timedelta(hours=1)
    async with answering(small) as url:
        asking = Asking(Prometheus(url), Question(("up",)), REDACTOR)
        with pytest.raises(OutboundError, match=f"up: .*{TOO_MANY}.* shorter times"):
            await asking.read(since, T0)
        found = await asking.read(since, T0)
        assert found.until == since + LONGEST / 2
        assert [one.name for one in found.series] == ["up"]
        assert (await asking.read(found.until, T0)).until == found.until + LONGEST / 2
    minute = int(OVERLAP.total_seconds())
    assert [seconds for _, seconds in small.asked] == [1800 + minute, 900 + minute, 900 + minute]


async def test_a_metric_that_is_too_much_for_any_time_is_named() -> None:
    small = Small(seconds=0)
    async with answering(small) as url:
        asking = Asking(Prometheus(url), Question(("up",)), REDACTOR)
        for _ in range(5):
            with pytest.raises(OutboundError, match=r"^up: .* shorter times$"):
                await asking.read(T0 - timedelta(hours=1), T0)
        with pytest.raises(OutboundError, match=f"^up has too many series: .*{TOO_MANY}"):
            await asking.read(T0 - timedelta(hours=1), T0)
    assert len(small.asked) == 6
    assert small.asked[-1][1] == (SHORTEST + OVERLAP).total_seconds()


async def test_a_query_that_is_refused_and_no_prometheus_are_said(prometheus: str) -> None:
    now = datetime.now(UTC)
    with pytest.raises(OutboundError, match="escape"):
        await Asking(Prometheus(prometheus, matchers=r'a="\q"'), Question(NAMES), REDACTOR).read(now, now)
    for result in ("1", '{"metric": {}, "values": [[1, "one"]]}'):
        nonsense = f'{{"data": {{"resultType": "matrix", "result": [{result}]}}}}'
        async with answering(partial(_say, nonsense)) as url:
            with pytest.raises(OutboundError, match="does not answer as a Prometheus"):
                await Asking(Prometheus(url), Question(NAMES), REDACTOR).read(now, now)


def _say(text: str, _request: web.Request) -> web.Response:
    return web.Response(text=text)


async def test_a_query_of_ones_own_is_evaluated(prometheus: str) -> None:
    await scraped(prometheus, 8)
    end = datetime.now(UTC).replace(microsecond=0)
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
    with pytest.raises(OutboundError, match="parse error") as wrong:
        await ask(query="sum(")
    assert wrong.value.status == 400


@pytest.mark.parametrize("matchers", ["cluster=shop", '"', 'a="b"} or up{', 'a="b" c', "{}", 'a="b"[5m]'])
def test_matchers_are_nothing_but_matchers(matchers: str) -> None:
    with pytest.raises(EndpointError, match="matchers"):
        Prometheus("http://prometheus:9090", matchers=matchers)
    with pytest.raises(msgspec.ValidationError, match="matchers"):
        msgspec.convert({"url": "http://prometheus:9090", "matchers": matchers}, Prometheus)


def test_several_matchers_are_taken() -> None:
    Prometheus("http://prometheus:9090/x", matchers='cluster="a\\"b", env=~"prod|stage" , zone!="x"')


async def test_what_is_asked_begins_a_little_before_it_and_spans_no_more_than_is_read_at_once() -> None:
    asked = []

    def answer(request: web.Request) -> web.Response:
        asked.append(request[FORM]["query"])
        return web.Response(text='{"data": {"resultType": "matrix", "result": []}}')

    async with answering(answer) as url:
        asking = Asking(Prometheus(url), Question(("up",)), REDACTOR)
        first = await asking.read(None, T0)
        assert first.until == T0 - FIRST + LONGEST
        second = await asking.read(first.until, T0)
        assert second.until == first.until + LONGEST
        assert await asking.read(T0 - timedelta(days=9), T0) == first
        last = await asking.read(T0 - timedelta(seconds=30), T0)
        assert last.until == T0
    seconds = [(LONGEST + OVERLAP).total_seconds()] * 3 + [30 + OVERLAP.total_seconds()]
    assert asked == [f'{{__name__=~"up"}}[{one:.0f}s]' for one in seconds]
