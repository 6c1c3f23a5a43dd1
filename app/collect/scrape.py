"""What a program tells of itself at /metrics, as Prometheus would scrape it.

A series that is told no longer ends with a staleness marker, and all of a target's do when it does not answer.
https://prometheus.io/docs/prometheus/latest/querying/basics/#staleness
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache

from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from app.collect.openmetrics import BARE
from app.collect.outbound import Endpoint, EndpointError, Outbound
from app.core.metrics.lines import UP
from app.core.model import MetricSeries
from app.core.objects.redact import Redactor
from app.core.stale import STALE

MOST_BYTES = 64 << 20
"""An API server of a large cluster tells some 30 MB, of which a small part is kept."""
MOST_SERIES = 50_000
"""Of one target, with sums: one that tells more of what is kept is not understood, as with Prometheus' sample_limit.
An API server of a large cluster has some thousands of them; it is scrape_also by which there are more."""
TEXT = "text/plain;version=0.0.4"
"""What is accepted: the older format, which every client library writes."""

_ESCAPE = re.compile(rb"\\(.)")
_BEGINS = re.compile(rb"\s*(?:[#{a-zA-Z_:]|\Z)")
"""How a text of metrics begins, and no page that asks who is there."""
_EXEMPLAR = re.compile(rb'[^{]*\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}[^#]*(?=# \{)')
"""What stands before an exemplar, as OpenMetrics has behind buckets: not asked for, but some write nothing else."""

Key = tuple[str, tuple[tuple[str, str], ...]]


class Target(Endpoint, frozen=True, forbid_unknown_fields=True):
    """A program to scrape. ``url`` is that of its metrics, whole; ``job`` what it is, as ``kube-scheduler``.

    ``instance`` tells several of one job apart; the host and port where it is left out.
    """

    job: str = ""
    instance: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.job.strip() or not self.job.isprintable():
            raise EndpointError("job: say what is scraped there, as kube-scheduler")

    @property
    def labels(self) -> dict[str, str]:
        """What each of its series is told apart by."""
        return {"job": self.job, "instance": self.instance or _place(self.url)}


class UnreadableError(ValueError):
    """What a target tells is not Prometheus' text, or too much; the message says where."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a scrape: metrics of these ``names``, those whose name ``begins`` so, and buckets of histograms,
    ``summed`` over all labels but the named ones: of each label they are too many."""

    names: frozenset[str] = frozenset()
    summed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    begins: tuple[str, ...] = ()


def read(text: bytes, kept: Kept, labels: dict[str, str]) -> dict[Key, tuple[str, float]]:
    """The kind and the value of each series that is kept, with the target's ``labels``.

    Raises UnreadableError: a target that tells one bad line is not understood, as Prometheus has it.
    """
    wanted = {name.encode() for name in kept.names}
    summed = {name.encode(): (name, by) for name, by in kept.summed.items()}
    begins = tuple(begin.encode() for begin in kept.begins)
    lines: list[bytes] = []
    sums: dict[Key, float] = defaultdict(float)
    if not _BEGINS.match(text):
        raise UnreadableError("not Prometheus' text, as a page is that asks who is there")
    try:
        for line in text.split(b"\n"):
            name = _name(line)
            if name in wanted or name.startswith(begins):
                lines.append(line)
            elif name in summed and not line.startswith(b"#"):
                sums[_summed(line, *summed[name], labels)] += _value(line)
        found = _samples(lines, kept, labels)
    except ValueError as error:
        raise UnreadableError(f"not Prometheus' text: {error}") from None
    return found | {key: ("histogram", value) for key, value in sums.items()}


def _samples(lines: list[bytes], kept: Kept, labels: dict[str, str]) -> dict[Key, tuple[str, float]]:
    bare = {counter[1].decode() for line in lines if (counter := BARE.match(line))}
    lines = [BARE.sub(rb"# TYPE \1 untyped", line) for line in lines]
    found: dict[Key, tuple[str, float]] = {}
    for family in text_string_to_metric_families(b"\n".join(lines).decode() + "\n"):
        for sample in family.samples:
            if sample.name in kept.names or sample.name.startswith(kept.begins):
                own = {f"exported_{name}" if name in labels else name: value for name, value in sample.labels.items()}
                key = sample.name, tuple(sorted({**own, **labels}.items()))
                found[key] = "counter" if sample.name in bare else family.type, float(sample.value)
    return found


def _summed(line: bytes, name: str, by: tuple[str, ...], labels: dict[str, str]) -> Key:
    """Of which series a bucket is a part. Only these labels are looked for: an API server may have a hundred thousand
    buckets, for which the library takes eight times as long (55 µs each, and 7 this way)."""
    own = {label: _unescaped(found[1]) for label in by if (found := _label(label).search(line))}
    return name, tuple(sorted({**own, **labels}.items()))


def _unescaped(value: bytes) -> str:
    return _ESCAPE.sub(lambda found: b"\n" if found[1] == b"n" else found[1], value).decode()


def _value(line: bytes) -> float:
    if b"# {" in line and (before := _EXEMPLAR.match(line)):
        line = before[0]
    told, *_ = line[line.rindex(b"}") + 1 :].split() or [b""]
    return float(told)


@cache
def _label(name: str) -> re.Pattern[bytes]:
    return re.compile(rb'[{,]\s*%s\s*=\s*"((?:[^"\\]|\\.)*)"' % name.encode())


def _name(line: bytes) -> bytes:
    """The metric of a line: of a sample, or of what is said of its type."""
    if line.startswith(b"#"):
        parts = line.split(b" ", 3)
        return parts[2] if len(parts) > 3 and parts[1] == b"TYPE" else b""
    return line.partition(b"{")[0].partition(b" ")[0]


class Scraped:
    """One target's series: what was told of them last, and what is to be told now."""

    def __init__(self, labels: dict[str, str], redactor: Redactor, kept: Kept) -> None:
        self._labels, self._redactor, self._kept = labels, redactor, kept
        self._known: dict[Key, tuple[str, float]] = {}

    def take(self, text: bytes, at: datetime) -> list[MetricSeries]:
        """The samples of a scrape that was answered. Raises UnreadableError."""
        now = read(text, self._kept, self._labels)
        if len(now) > MOST_SERIES:
            raise UnreadableError(
                f"{len(now):,} series are kept, of at most {MOST_SERIES:,} of a target: name fewer in scrape_also"
            )
        now[self._up] = "gauge", 1.0
        return self._tell(now, at)

    def miss(self, at: datetime) -> list[MetricSeries]:
        """What is to be told when a scrape was not answered: everything ends, but that it is down."""
        return self._tell({self._up: ("gauge", 0.0)}, at)

    @property
    def _up(self) -> Key:
        return UP, tuple(sorted(self._labels.items()))

    def _tell(self, now: dict[Key, tuple[str, float]], at: datetime) -> list[MetricSeries]:
        ended = {key: (kind, STALE) for key, (kind, _) in self._known.items() if key not in now}
        self._known = now
        return [
            MetricSeries(
                name,
                tuple((label, self._redactor.label(label, value)) for label, value in labels),
                kind,
                (at.timestamp(),),
                (value,),
            )
            for (name, labels), (kind, value) in (now | ended).items()
        ]


async def fetch(target: Target) -> bytes:
    """Raises OutboundError."""
    async with Outbound.to(target) as outbound:
        return await outbound.get("", most=MOST_BYTES, accept=TEXT)


def _place(url: str) -> str:
    found = URL(url)
    return f"{found.host}:{found.port}"
