"""OpenMetrics text, or Prometheus text as /metrics gives it, with timestamps -> series.

The two differ in how they name counters and in what their times count: seconds, or milliseconds
(prometheus.io/docs/instrumenting/exposition_formats). Parsed by prometheus_client; lines of families nobody looks at
are left out before parsing, since the parser is pure Python and a scrape of an API server has a hundred thousand lines.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from msgspec.structs import replace
from prometheus_client import parser as prometheus
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.samples import Timestamp

from app.collect.files import Line
from app.core.edges import mesh_calls
from app.core.model import MetricSeries
from app.core.objects.redact import Redactor
from app.core.signals.collected import NAMES

_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
WANTED = frozenset(name.encode() for name in NAMES | mesh_calls.FAMILIES)


_BUCKET = b"_bucket"
_PROMETHEUS = re.compile(rb"# TYPE (?:\S+_total\s+counter|\S+\s+(?:untyped|histogram|summary))\s*\Z")
"""What OpenMetrics says otherwise: a counter's family is named without _total, the untyped are unknown. And what it
does not allow: a histogram without its buckets, which are not kept."""
BARE = re.compile(rb"# TYPE (\S+)(?<!_total)\s+counter\s*\Z")
"""A counter that Prometheus' text calls by its bare name, as apiserver_admission_webhook_rejection_count: the parser
would call its samples _total."""
MILLISECONDS = 1e11
"""A time above counts milliseconds: in seconds it would be the year 5138, in milliseconds it is 1973."""
MOST_BAD = 20
"""Of one family: after so many bad lines the rest of it is refused, for each costs a new look at all of them."""
Refuse = Callable[[Line, str], None]
"""Told of a line that cannot be used, and why."""
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]]


def wanted(line: bytes) -> bool:
    """Whether a line (sample or # TYPE) belongs to a family that is read."""
    if line.startswith(b"#"):
        parts = line.split(b" ", 3)
        return len(parts) >= 3 and parts[1] == b"TYPE" and parts[2] in WANTED
    match = _NAME.match(line)
    return match is not None and match.group() in WANTED


def buckets(lines: Iterable[Line]) -> Counter[str]:
    """How many samples there are of the buckets of each histogram that is read without them, by its name."""
    found: Counter[str] = Counter()
    for line in lines:
        match = _NAME.match(line.data)
        if match and match.group().endswith(_BUCKET) and match.group().removesuffix(_BUCKET) + b"_sum" in WANTED:
            found[match.group().removesuffix(_BUCKET).decode()] += 1
    return found


def parse(
    lines: Iterable[Line],
    redactor: Redactor,
    *,
    refuse: Refuse,
    between: tuple[float, float],
    shift_seconds: int = 0,
) -> Iterator[MetricSeries]:
    """The series in a block of lines, redacted, each sorted by time.

    A line that is no OpenMetrics, a family with a sample without a timestamp, and a sample whose time (epoch seconds,
    after the shift) lies outside ``between`` are refused; the rest is used.
    """
    times: Samples = defaultdict(list)
    kinds: dict[str, str] = {}
    begun: dict[str, Line] = {}
    for family in _families(line for line in lines if wanted(line.data)):
        for name, labels, kind, at, value in _samples(family, refuse):
            times[(name, labels)].append((at + shift_seconds, value))
            kinds[name] = kind
            begun.setdefault(name, family[0])
    for (name, labels), points in times.items():
        kept = sorted(point for point in points if between[0] <= point[0] <= between[1])
        if len(kept) < len(points):
            odd = next(at for at, _ in points if not between[0] <= at <= between[1])
            left = f"{len(points) - len(kept):,} samples of {name} in this family lie outside the times that are kept"
            refuse(begun[name], f"{left}, the first at {odd:.0f}: is it in seconds since 1970?")
        if kept:
            harmless = tuple((label, redactor.label(label, value)) for label, value in labels)
            yield MetricSeries(
                name, harmless, kinds[name], tuple(at for at, _ in kept), tuple(value for _, value in kept)
            )


def _families(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines in parts that each begin with a # TYPE: what is bad in one does not spoil the others."""
    part: list[Line] = []
    for line in lines:
        if part and line.data.startswith(b"#"):
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def _samples(family: list[Line], refuse: Refuse) -> list[tuple[str, tuple[tuple[str, str], ...], str, float, float]]:
    """The samples of one family, without the lines that the parser stops at."""
    bare = _bare(family)
    left = [replace(family[0], data=b"# TYPE %b untyped" % bare), *family[1:]] if bare else list(family)
    is_prometheus = _PROMETHEUS.match(left[0].data) is not None
    for _ in range(MOST_BAD):
        read = 0

        def text() -> Iterator[str]:
            nonlocal read
            for line in left:
                read += 1
                yield line.data.decode("utf-8", "replace").rstrip("\r") + "\n"

        try:
            found = _parsed(text(), is_prometheus=is_prometheus)
        except ValueError as error:
            bad = left.pop(read - 1)
            refuse(bad, f"neither OpenMetrics nor Prometheus text: {error}")
            continue
        samples = [(sample, one.type) for one in found for sample in one.samples]
        without = next((sample.name for sample, _ in samples if sample.timestamp is None), "")
        if without:
            refuse(family[0], f"{without} has no timestamp: a recording needs one behind every sample")
            return []
        return [
            (
                sample.name,
                tuple(sorted(sample.labels.items())),
                "counter" if bare else kind,
                _seconds(sample.timestamp or 0),
                float(sample.value),
            )
            for sample, kind in samples
        ]
    refuse(left[0] if left else family[0], f"{MOST_BAD} lines of this family are bad: the rest of it is left out")
    return []


def _bare(family: list[Line]) -> bytes:
    """The name of a counter whose samples have that very name; "" for what is none, and in OpenMetrics."""
    counter = BARE.match(family[0].data)
    if counter is None:
        return b""
    told = (counter[1] + b"{", counter[1] + b" ")
    return counter[1] if any(line.data.startswith(told) for line in family) else b""


def _parsed(text: Iterator[str], *, is_prometheus: bool) -> list[Metric]:
    """The families in a text, times as they stand. Raises ValueError."""
    if not is_prometheus:
        return list(openmetrics.text_fd_to_metric_families(chain(text, ["# EOF\n"])))  # type: ignore[no-untyped-call]
    found = list(prometheus.text_fd_to_metric_families(text))  # type: ignore[arg-type] # iterates over its lines
    for family in found:
        family.samples = [
            sample if sample.timestamp is None else sample._replace(timestamp=1000 * float(sample.timestamp))
            for sample in family.samples
        ]
    return found


def _seconds(time: float | Timestamp) -> float:
    """Epoch seconds, of a time in seconds or in milliseconds."""
    at = float(time)
    return at / 1000 if at > MILLISECONDS else at
