"""How a Prometheus is asked: in parts where it is too much, from a little before on, and what of an answer is new."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from aiohttp import web

from app.collect.outbound import EndpointError, OutboundError
from app.collect.prometheus import FIRST, LONGEST, OVERLAP, SHORTEST, Asking, Prometheus, Question
from app.core.objects.redact import Redactor
from tests.collect.test_importer import T0
from tests.collect.test_outbound import FORM, answering

REDACTOR = Redactor(b"k" * 32)
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


async def test_what_is_no_prometheus_is_said() -> None:
    for result in ("1", '{"metric": {}, "values": [[1, "one"]]}'):
        nonsense = f'{{"data": {{"resultType": "matrix", "result": [{result}]}}}}'
        async with answering(partial(_say, nonsense)) as url:
            with pytest.raises(OutboundError, match="does not answer as a Prometheus"):
                await Asking(Prometheus(url), Question(("up",)), REDACTOR).read(T0, T0)


def _say(text: str, _request: web.Request) -> web.Response:
    return web.Response(text=text)


@pytest.mark.parametrize(
    "matchers", ["cluster=shop", '"', 'a="b"} or up{', 'a="b" c', "{}", 'a="b"[5m]', 'a="b" c="d"', ","]
)
def test_matchers_are_nothing_but_matchers(matchers: str) -> None:
    with pytest.raises(EndpointError, match="matchers"):
        Prometheus("http://prometheus:9090", matchers=matchers)
    with pytest.raises(msgspec.ValidationError, match="matchers"):
        msgspec.convert({"url": "http://prometheus:9090", "matchers": matchers}, Prometheus)


def test_several_matchers_are_taken() -> None:
    Prometheus("http://prometheus:9090/x", matchers='cluster="a\\"b", env=~"prod|stage" , zone!="x"')


async def test_what_comes_late_and_what_is_another_value_by_then_is_told_and_nothing_twice() -> None:
    rounds = [{-40: 1, -10: 2}, {-40: 1, -25: 7, -10: 3, 20: 4}, {-25: 7, -10: 3, 20: 4}]

    found: list[list[tuple[float, float]]] = []

    def answer(_request: web.Request) -> web.Response:
        told = [[T0.timestamp() + at, str(value)] for at, value in rounds[len(found)].items()]
        line = {"metric": {"__name__": "up"}, "values": told}
        return web.json_response({"data": {"resultType": "matrix", "result": [line]}})

    async with answering(answer) as url:
        asking = Asking(Prometheus(url), Question(("up",)), REDACTOR)
        for number in range(len(rounds)):
            asked = await asking.read(T0, T0 + number * timedelta(seconds=30))
            asking.keep(asked)
            points = [point for one in asked.series for point in zip(one.times, one.values, strict=True)]
            found.append([(at - T0.timestamp(), value) for at, value in points])
    assert found == [[(-40, 1), (-10, 2)], [(-25, 7), (-10, 3), (20, 4)], []]


@pytest.mark.parametrize("others_move", [False, True])
async def test_sums_that_all_stand_still_are_believed_half_a_minute_later(*, others_move: bool) -> None:
    rounds = [{-60: 1, -30: 2, 0: 2}, {-30: 2, 0: 3, 30: 3}, {0: 3, 30: 3, 60: 3}]
    found: list[dict[float, float]] = []

    def a_line(told: Mapping[int, float], code: str) -> dict[str, object]:
        points = [[T0.timestamp() + at, str(value)] for at, value in told.items()]
        return {"metric": {"__name__": "http_requests_total", "code": code}, "values": points}

    def answer(_request: web.Request) -> web.Response:
        told = rounds[len(found)]
        lines = [a_line(told, "200"), *([a_line({at: at for at in told}, "500")] if others_move else [])]
        return web.json_response({"data": {"resultType": "matrix", "result": lines}})

    async with answering(answer) as url:
        asking = Asking(Prometheus(url), Question(summed={"http_requests_total": ("code",)}), REDACTOR)
        for number in range(len(rounds)):
            asked = await asking.read(T0, T0 + number * timedelta(seconds=30))
            asking.keep(asked)
            series = (one for one in asked.series if dict(one.labels)["code"] == "200")
            points = [point for one in series for point in zip(one.times, one.values, strict=True)]
            found.append({at - T0.timestamp(): value for at, value in points})
    if others_move:
        assert found == [{-60: 1, -30: 2, 0: 2}, {0: 3, 30: 3}, {60: 3}]
    else:
        assert found == [{-60: 1, -30: 2}, {0: 3}, {30: 3}]


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
