"""OpenMetrics text with timestamps -> series.

Parsed by prometheus_client; lines of families nobody looks at are left out before parsing, since the parser is pure
Python and a scrape of an API server has a hundred thousand lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client.openmetrics.parser import text_fd_to_metric_families

from app.core.families import FAMILIES
from app.core.model import MetricSeries
from app.core.redact import Redactor

_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_BASES = {name for family in FAMILIES for name in family.metrics} | {"process_start_time_seconds"}
WANTED = frozenset(
    name.encode() for base in _BASES for name in (base, f"{base}_sum", f"{base}_count", base.removesuffix("_total"))
)
"""The families that the analysis reads (core/families.py). Histograms are kept by their sum and count."""


class MetricsError(ValueError):
    """A line that is not OpenMetrics; the message quotes the parser."""


def wanted(line: bytes) -> bool:
    """Whether a line (sample or # TYPE) belongs to a family that is read."""
    if line.startswith(b"#"):
        parts = line.split(b" ", 3)
        return len(parts) >= 3 and parts[1] == b"TYPE" and parts[2] in WANTED
    match = _NAME.match(line)
    return match is not None and match.group() in WANTED


def parse(lines: Iterable[bytes], redactor: Redactor, *, shift_seconds: int = 0) -> Iterator[MetricSeries]:
    """The series in a block of lines, redacted, each sorted by time. Samples without a timestamp are refused.

    Raises MetricsError.
    """
    times: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = defaultdict(list)
    kinds: dict[str, str] = {}
    text = (line.decode("utf-8", "replace") + "\n" for line in lines if wanted(line))
    try:
        for family in text_fd_to_metric_families(_closed(text)):  # type: ignore[no-untyped-call]
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                times[key].append((_time(sample.name, sample.timestamp) + shift_seconds, float(sample.value)))
                kinds[sample.name] = family.type
    except MetricsError:
        raise
    except ValueError as error:
        raise MetricsError(f"not OpenMetrics text: {error}") from None
    for (name, labels), points in times.items():
        points.sort()
        harmless = tuple((label, redactor.label(label, value)) for label, value in labels)
        yield MetricSeries(
            name, harmless, kinds[name], tuple(at for at, _ in points), tuple(value for _, value in points)
        )


def _time(name: str, timestamp: object) -> float:
    if timestamp is None:
        raise MetricsError(f"{name} has no timestamp: a recording needs one on every sample")
    return float(timestamp)  # type: ignore[arg-type]


def _closed(lines: Iterable[str]) -> Iterator[str]:
    yield from lines
    yield "# EOF\n"
