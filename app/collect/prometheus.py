"""Samples from a Prometheus, or from what speaks as it does: Thanos, Mimir, VictoriaMetrics.

Samples are asked for as they were scraped, with an instant query of a range selector; histograms, which have a series
for each bucket of each label, as sums that Prometheus makes. https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec

from app.collect.outbound import Endpoint, EndpointError, Outbound, OutboundError, TooMuchError
from app.core.model import MetricSeries
from app.core.redact import Redactor

FIRST = timedelta(hours=6)
"""How far back is asked for what is not known: when a Prometheus is first named, and after it was long away."""
LONGEST = timedelta(minutes=30)
"""The time that one question spans at most."""
SHORTEST = timedelta(minutes=1)
"""A question whose answer is too large is asked again for half of its metrics, then of the time, down to this."""
OVERLAP = timedelta(minutes=1)
"""Asked for again each time: samples reach a Prometheus that is written to, as Mimir is, late and out of order."""
STEP = timedelta(seconds=30)
TOO_MUCH = frozenset({422})
"""What Prometheus answers to a query that loads too many samples."""
REFUSED = frozenset({400, 422})
"""What it answers to a query that is wrong, or too much."""
_MATCHER = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=|!=|=~|!~)\s*"(?:[^"\\\n]|\\.)*"')

Key = tuple[str, tuple[tuple[str, str], ...]]
Points = list[tuple[float, float]]


class Prometheus(Endpoint, frozen=True, forbid_unknown_fields=True):
    """Where a cluster's metrics are asked for. ``matchers`` tell its series from those of others, as PromQL writes them
    between braces: ``cluster="shop"``."""

    matchers: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        rest = _MATCHER.sub("", self.matchers)
        if rest.replace(",", "").strip():
            raise EndpointError('matchers: label="value", with commas between several, as PromQL has them in braces')


class _Line(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    """None of a native histogram, which is passed over."""


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - the wire's name
    result: list[_Line]


class _Answer(msgspec.Struct):
    data: _Data


_answer = msgspec.json.Decoder(_Answer)


async def evaluate(
    source: Prometheus, query: str, redactor: Redactor, *, start: datetime, end: datetime, step: timedelta
) -> list[MetricSeries]:
    """What a query of somebody's own says between two times. Of its series the name may be "".

    ``matchers`` are not put into it: it may ask for everything that this Prometheus knows. Raises OutboundError.
    """
    form = {"query": query, "start": _time(start), "end": _time(end), "step": f"{step.total_seconds():.3f}"}
    async with Outbound.to(source) as outbound:
        lines = _lines(await outbound.post("/api/v1/query_range", form), source, "")
    return [_series(key, points, redactor) for key, points in lines]


def _lines(body: bytes, source: Prometheus, name: str) -> list[tuple[Key, Points]]:
    """The series of an answer with their samples; ``name`` is what those are called that have no name."""
    try:
        lines = _answer.decode(body).data.result
        return [
            (
                (line.metric.pop("__name__", name), tuple(sorted(line.metric.items()))),
                [(at, float(value)) for at, value in line.values],
            )
            for line in lines
            if line.values
        ]
    except ValueError as error:  # as are msgspec's
        raise OutboundError(f"{source.url} does not answer as a Prometheus does: {error}") from None


def _series(key: Key, points: Points, redactor: Redactor) -> MetricSeries:
    name, labels = key
    times, values = zip(*points, strict=True)
    harmless = tuple((label, redactor.label(label, value)) for label, value in labels)
    return MetricSeries(name, harmless, _kind(name), times, values)


class Asked(msgspec.Struct, frozen=True):
    """Samples, and up to when they were asked for."""

    series: tuple[MetricSeries, ...]
    until: datetime
    last: dict[Key, float]
    """The last sample's time of each series, as Prometheus calls it."""


class Asking:
    """What is asked of one Prometheus: samples of ``names``, and the buckets of histograms, ``summed`` by labels."""

    def __init__(
        self,
        source: Prometheus,
        redactor: Redactor,
        *,
        names: Collection[str],
        summed: Mapping[str, tuple[str, ...]],
        step: timedelta = STEP,
    ) -> None:
        """``step`` lies between two points of a histogram's sum."""
        self._source, self._redactor = source, redactor
        self._groups, self._summed = [tuple(sorted(names))] if names else [], dict(summed)
        self._last: dict[Key, float] = {}
        self._span = LONGEST
        self._step = step.total_seconds()

    async def read(self, since: datetime | None, now: datetime) -> Asked:
        """The samples from ``since`` on (None: nothing is known yet) that were not kept: some minutes of them at most.

        Raises OutboundError, after which the same may be asked again.
        """
        low = max(since or now - FIRST, now - FIRST) - OVERLAP
        high = min(now, low + OVERLAP + self._span)
        async with Outbound.to(self._source) as outbound:
            found = [*await self._plain(outbound, low, high), *await self._sums(outbound, low, high)]
        news = [one for one in found if one[1]]
        return Asked(
            tuple(_series(key, points, self._redactor) for key, points in news),
            high,
            {key: points[-1][0] for key, points in news},
        )

    def keep(self, asked: Asked) -> None:
        """What was asked was recorded: it is not told again. What ended before is forgotten."""
        least = (asked.until - LONGEST).timestamp()
        self._last = {key: at for key, at in (self._last | asked.last).items() if at >= least}

    async def _plain(self, outbound: Outbound, low: datetime, high: datetime) -> list[tuple[Key, Points]]:
        found, left = [], [*self._groups]
        while left:
            names = left.pop()
            named = "|".join(names)  # names of metrics are letters and _
            query = f'{{__name__=~"{named}"{self._matched()}}}[{(high - low).total_seconds():.0f}s]'
            try:
                found += await self._ask(outbound, "/api/v1/query", {"query": query, "time": _time(high)}, "")
            except OutboundError as error:
                if not (isinstance(error, TooMuchError) or error.status in TOO_MUCH):
                    raise
                if len(names) > 1:
                    halves = names[: len(names) // 2], names[len(names) // 2 :]
                    self._groups = [*(one for one in self._groups if one != names), *halves]
                    left += halves
                elif self._span > SHORTEST:
                    self._span = max(self._span / 2, SHORTEST)
                    raise OutboundError(f"{names[0]}: {error}; asking for shorter times") from None
                else:
                    raise OutboundError(f"{names[0]} has too many series: {error}") from None
        return found

    async def _sums(self, outbound: Outbound, low: datetime, high: datetime) -> list[tuple[Key, Points]]:
        found = []
        # On a grid of its own, a point is the same whenever it is asked for.
        start = math.ceil(low.timestamp() / self._step) * self._step
        for name, labels in sorted(self._summed.items()):
            by = ", ".join(dict.fromkeys(("job", "instance", *labels, "le")))
            query = f"sum by ({by}) ({name}_bucket{{{self._matched().removeprefix(',')}}})"
            form = {
                "query": query,
                "start": f"{start:.0f}",
                "end": _time(high),
                "step": f"{self._step:.0f}",
            }
            if start <= high.timestamp():
                found += await self._ask(outbound, "/api/v1/query_range", form, f"{name}_bucket")
        return found

    def _matched(self) -> str:
        return f",{self._source.matchers}" if self._source.matchers.strip() else ""

    async def _ask(self, outbound: Outbound, path: str, form: Mapping[str, str], name: str) -> list[tuple[Key, Points]]:
        lines = _lines(await outbound.post(path, form), self._source, name)
        return [(key, self._news(key, points)) for key, points in lines]

    def _news(self, key: Key, points: Points) -> Points:
        """What was not kept yet of a series."""
        last = self._last.get(key, -math.inf)
        return [point for point in points if point[0] > last]


def _time(at: datetime) -> str:
    return f"{at.timestamp():.3f}"


def _kind(name: str) -> str:
    """By the convention of names: Prometheus tells of no types here (https://prometheus.io/docs/practices/naming/)."""
    return "counter" if name.endswith(("_total", "_sum", "_count", "_bucket")) else "gauge"
