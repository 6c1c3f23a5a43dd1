"""Samples from a Prometheus, or from what speaks as it does: Thanos, Mimir, VictoriaMetrics.

Samples are asked for as they were scraped, with an instant query of a range selector; what has a series for each
bucket of each label, or for each path, as sums that Prometheus makes. A range selector leaves out the marks with which
Prometheus ends a series: it just has no more samples. VictoriaMetrics tells them, as NaN, which ends a series as well.
https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec

from app.collect.outbound import Endpoint, EndpointError, Outbound, OutboundError, TooMuchError, shortened
from app.core.model import Evaluated, MetricSeries
from app.core.objects.redact import Redactor

FIRST = timedelta(hours=6)
"""How far back is asked for what is not known: when a Prometheus is first named, and after it was long away."""
LONGEST = timedelta(minutes=30)
"""The time that one question spans at most."""
SHORTEST = timedelta(minutes=1)
"""A question whose answer is too large is asked again for half of its metrics, then of the time, down to this."""
OVERLAP = timedelta(minutes=1)
"""Asked for again each time: samples reach a Prometheus that is written to, as Mimir is, late and out of order, and
VictoriaMetrics says of the last half minute what was before (-search.latencyOffset)."""
LATE = timedelta(seconds=30)
"""Sums that all stand still for less are not believed: VictoriaMetrics says of what is newer what was before."""
STEP = timedelta(seconds=30)
TOO_MUCH = frozenset({422})
"""What Prometheus answers to a query that loads too many samples."""
_WRONG = re.compile(r"cannot parse|unparsed data|error parsing")
"""VictoriaMetrics answers the same to a query that is wrong."""
REFUSED = frozenset({400, 422})
"""What is answered to a query that is wrong, or too much."""
MOST_WARNINGS = 5
PARTIAL = "the answer is partial: not all that stores samples answered"
UP_TO_NOW = {"latency_offset": "1ms"}
"""VictoriaMetrics answers up to now for this, where it is new enough to know it; 0 is refused. No other knows it."""
_MATCHER = r'\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=|!=|=~|!~)\s*"(?:[^"\\\n]|\\.)*"\s*'
_MATCHERS = re.compile(f"{_MATCHER}(?:,{_MATCHER})*,?\\s*")

Key = tuple[str, tuple[tuple[str, str], ...]]
Points = list[tuple[float, float]]


class Prometheus(Endpoint, frozen=True, forbid_unknown_fields=True):
    """Where a cluster's metrics are asked for. ``matchers`` tell its series from those of others, as PromQL writes them
    between braces: ``cluster="shop"``. ``app_matchers`` do so for what apps, and its alerts, tell: where ``matchers``
    name the jobs of the control plane."""

    matchers: str = ""
    app_matchers: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, matchers in (("matchers", self.matchers), ("app_matchers", self.app_matchers or "")):
            if matchers.strip() and not _MATCHERS.fullmatch(matchers):
                raise EndpointError(f'{name}: label="value", with commas between several, as PromQL has them in braces')

    @property
    def matchers_of_apps(self) -> str:
        """What chooses what apps tell."""
        return self.matchers if self.app_matchers is None else self.app_matchers


class _Line(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    """None of a native histogram, which is passed over."""


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - the wire's name
    result: list[_Line]


class _Answer(msgspec.Struct):
    data: _Data
    warnings: list[str] | None = None
    infos: list[str] | None = None
    isPartial: bool = False  # noqa: N815 - VictoriaMetrics' name

    @property
    def told(self) -> tuple[str, ...]:
        """What it says of itself, beside the data."""
        all_told = [*([PARTIAL] if self.isPartial else []), *(self.warnings or ()), *(self.infos or ())]
        return tuple(shortened(one) for one in all_told[:MOST_WARNINGS])


_answer = msgspec.json.Decoder(_Answer)


async def evaluate(
    source: Prometheus, query: str, redactor: Redactor, *, start: datetime, end: datetime, step: timedelta
) -> Evaluated:
    """What a query of somebody's own says between two times. Of its series the name may be "".

    ``matchers`` are not put into it: it may ask for everything that this Prometheus knows. Raises OutboundError.
    """
    form = {"query": query, "start": _time(start), "end": _time(end), "step": f"{step.total_seconds():.3f}"}
    async with Outbound.to(source) as outbound:
        answer = await _post(outbound, source, "/api/v1/query_range", form)
    told = tuple(map(redactor.text, answer.told))
    return Evaluated([_series(key, points, redactor) for key, points in _lines(answer, source)], told)


async def labels_of(source: Prometheus, query: str, at: datetime) -> tuple[list[dict[str, str]], tuple[str, ...]]:
    """The labels of all that an instant query finds, as ``group by`` names them, and what it is warned of. Raises
    OutboundError."""
    async with Outbound.to(source) as outbound:
        answer = await _post(outbound, source, "/api/v1/query", {"query": query, "time": _time(at)})
    return [line.metric for line in answer.data.result], answer.told


async def _post(outbound: Outbound, source: Prometheus, path: str, form: Mapping[str, str]) -> _Answer:
    body = await outbound.post(path, {**form, **UP_TO_NOW})
    try:
        return _answer.decode(body)
    except ValueError as error:  # as are msgspec's
        raise _is_none(source, error) from None


def _is_none(source: Prometheus, error: ValueError) -> OutboundError:
    return OutboundError(f"{source.url} does not answer as a Prometheus does: {error}")


def _lines(answer: _Answer, source: Prometheus) -> list[tuple[Key, Points]]:
    """The series of an answer with their samples; the name of some is ""."""
    try:
        return [
            (
                (line.metric.pop("__name__", ""), tuple(sorted(line.metric.items()))),
                [(at, float(value)) for at, value in line.values],
            )
            for line in answer.data.result
            if line.values
        ]
    except ValueError as error:
        raise _is_none(source, error) from None


def _series(key: Key, points: Points, redactor: Redactor) -> MetricSeries:
    name, labels = key
    times, values = zip(*points, strict=True)
    harmless = tuple((label, redactor.label(label, value)) for label, value in labels)
    return MetricSeries(name, harmless, _kind(name), times, values)


class Asked(msgspec.Struct, frozen=True):
    """Samples, up to when they were asked for, and what the answers warned of."""

    series: tuple[MetricSeries, ...]
    until: datetime
    news: dict[Key, Points]
    """The same samples, by what Prometheus calls their series."""
    warnings: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True):
    """What a Prometheus is asked again and again: samples of ``names`` as they were scraped, and sums by labels, by
    metric. ``of_apps``: these are not the control plane's."""

    names: tuple[str, ...] = ()
    summed: dict[str, tuple[str, ...]] = {}
    of_apps: bool = False


class Asking:
    """A question to one Prometheus, and what it has answered."""

    def __init__(self, source: Prometheus, question: Question, redactor: Redactor, *, step: timedelta = STEP) -> None:
        """``step`` lies between two points of a sum."""
        self._source, self._redactor = source, redactor
        self._groups = [tuple(sorted(question.names))] if question.names else []
        self._summed: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name, labels in sorted(question.summed.items()):
            self._summed[labels].append(name)
        self._matchers = source.matchers_of_apps if question.of_apps else source.matchers
        self._kept: dict[Key, dict[float, float]] = {}
        """What is asked for again and was kept, of each series."""
        self._span = LONGEST
        self._step = step.total_seconds()

    async def read(self, since: datetime | None, now: datetime) -> Asked:
        """The samples from ``since`` on (None: nothing is known yet) that were not kept: some minutes of them at most.

        Raises OutboundError, after which the same may be asked again.
        """
        low = max(since or now - FIRST, now - FIRST) - OVERLAP
        high = min(now, low + OVERLAP + self._span)
        async with Outbound.to(self._source) as outbound:
            plain, sums = await self._plain(outbound, low, high), await self._sums(outbound, low, high)
        answers = [*plain, *sums]
        found = {key: self._news(key, points) for one in plain for key, points in _lines(one, self._source)}
        summed = {key: points for one in sums for key, points in _lines(one, self._source)}
        found |= {key: self._news(key, points) for key, points in _settled(summed, now).items()}
        news = {key: points for key, points in found.items() if points}
        return Asked(
            tuple(_series(key, points, self._redactor) for key, points in news.items()),
            high,
            news,
            tuple(dict.fromkeys(self._redactor.text(said) for one in answers for said in one.told))[:MOST_WARNINGS],
        )

    def keep(self, asked: Asked) -> None:
        """What was asked was recorded: it is not told again, but for what is another value by then."""
        least = (asked.until - OVERLAP).timestamp()
        kept = self._kept | {key: self._kept.get(key, {}) | dict(points) for key, points in asked.news.items()}
        recent = {key: {at: value for at, value in points.items() if at >= least} for key, points in kept.items()}
        self._kept = {key: points for key, points in recent.items() if points}

    async def _plain(self, outbound: Outbound, low: datetime, high: datetime) -> list[_Answer]:
        found, left = [], [*self._groups]
        while left:
            names = left.pop()
            query = f"{self._series(names)}[{(high - low).total_seconds():.0f}s]"
            try:
                form = {"query": query, "time": _time(high)}
                found.append(await _post(outbound, self._source, "/api/v1/query", form))
            except OutboundError as error:
                if not _is_too_much(error):
                    raise
                if len(names) == 1:
                    raise self._too_much(names[0], error) from None
                halves = names[: len(names) // 2], names[len(names) // 2 :]
                self._groups = [*(one for one in self._groups if one != names), *halves]
                left += halves
        return found

    async def _sums(self, outbound: Outbound, low: datetime, high: datetime) -> list[_Answer]:
        found = []
        # On a grid of its own, a point is the same whenever it is asked for.
        start = math.ceil(low.timestamp() / self._step) * self._step
        for labels, names in self._summed.items():
            by = ", ".join(dict.fromkeys(("__name__", "job", "instance", *labels)))
            form = {
                "query": f"sum by ({by}) ({self._series(names)})",
                "start": f"{start:.0f}",
                "end": _time(high),
                "step": f"{self._step:.0f}",
            }
            if start > high.timestamp():
                continue
            try:
                found.append(await _post(outbound, self._source, "/api/v1/query_range", form))
            except OutboundError as error:
                raise (self._too_much(names[0], error) if _is_too_much(error) else error) from None
        return found

    def _too_much(self, name: str, error: OutboundError) -> OutboundError:
        """What is asked of a metric is too much: less time is asked for next, if there is less."""
        if self._span <= SHORTEST:
            return OutboundError(f"{name} has too many series: {error}")
        self._span = max(self._span / 2, SHORTEST)
        return OutboundError(f"{name}: {error}; asking for shorter times")

    def _series(self, names: Sequence[str]) -> str:
        matched = f",{self._matchers}" if self._matchers.strip() else ""
        return f'{{__name__=~"{"|".join(names)}"{matched}}}'  # names of metrics are letters, : and _

    def _news(self, key: Key, points: Points) -> Points:
        """What was not kept yet of a series, or with another value."""
        kept = self._kept.get(key, {})
        return [(at, value) for at, value in points if at not in kept or not _is_same(value, kept[at])]


def _settled(sums: Mapping[Key, Points], now: datetime) -> dict[Key, Points]:
    """Sums without the newest points, where none of them moves any more: asked for again they tell whether it is so."""
    moves = (at for points in sums.values() for (_, old), (at, new) in pairwise(points) if new != old)
    least = max(moves, default=-math.inf)
    least = max(least, (now - LATE).timestamp())
    return {key: [point for point in points if point[0] <= least] or points[:1] for key, points in sums.items()}


def _is_same(value: float, other: float) -> bool:
    return value == other or (math.isnan(value) and math.isnan(other))


def _is_too_much(error: OutboundError) -> bool:
    return isinstance(error, TooMuchError) or (error.status in TOO_MUCH and not _WRONG.search(str(error)))


def _time(at: datetime) -> str:
    return f"{at.timestamp():.3f}"


def _kind(name: str) -> str:
    """By the convention of names: Prometheus tells of no types here (https://prometheus.io/docs/practices/naming/)."""
    return "counter" if name.endswith(("_total", "_sum", "_count", "_bucket")) else "gauge"
