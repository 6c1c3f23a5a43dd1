"""/metrics of the control plane every few seconds, as one text of OpenMetrics with the times of the scrapes."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterable
from datetime import datetime

import httpx2

SCRAPE_SECONDS = 5.0
SIMULATED_SECONDS = 1.0
"""What runs but on paper is scraped so often: a Prometheus looks each half minute, and a second stands for one."""
_TYPE = re.compile(r"^# TYPE (\S+) (\S+)")
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LEFT_OUT = re.compile(r"_bucket$|^go_|^etcd_bookmark|^kubernetes_feature|^hidden_metric|^registered_metric")
"""Buckets would be nine tenths of a recording."""
_FAMILY = re.compile(r"_(sum|count|total)$")


def labelled(**labels: str) -> str:
    """As the text format has labels, without the braces."""
    escaped = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in labels.items()}
    return ",".join(f'{key}="{value}"' for key, value in escaped.items())


class Scrapes:
    """What was scraped so far, by family and series."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}
        self._series: dict[str, dict[str, list[tuple[str, str]]]] = {}

    def add(self, job: str, text: str, at: datetime) -> None:
        """The answer of one /metrics, in the text format of Prometheus; without a job what that has from itself."""
        for line in text.splitlines():
            if found := _TYPE.match(line):
                self._types[found[1]] = found[2]
            elif (sample := _SAMPLE.match(line)) and not _LEFT_OUT.search(sample[1]):
                name, labels, value = sample.groups()
                told = f"{name}{{{','.join(filter(None, (job and labelled(job=job), labels)))}}}"
                self._series.setdefault(name, {}).setdefault(told, []).append((value, f"{at.timestamp():.3f}"))

    def total(self, name: str, **labels: str) -> float:
        """The newest values of a metric's series with these labels, added up."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = self._series.get(name, {})
        return sum(float(samples[-1][0]) for told, samples in found.items() if all(one in told for one in wanted))

    def text(self) -> str:
        """All of it."""
        lines: list[str] = []
        declared = ""
        for name in sorted(self._series, key=lambda one: (_FAMILY.sub("", one), one)):
            family, kind = self._family(name)
            if family != declared:
                lines.append(f"# TYPE {family} {kind}")
                declared = family
            lines += [f"{told} {value} {at}" for told, samples in self._series[name].items() for value, at in samples]
        return "\n".join([*lines, "# EOF", ""])

    def _family(self, name: str) -> tuple[str, str]:
        """As OpenMetrics has it: counters end in _total, their family does not; parts of a histogram stand alone."""
        if name.endswith("_total") and self._types.get(name) == "counter":
            return name.removesuffix("_total"), "counter"
        return name, "gauge" if self._types.get(name) == "gauge" else "unknown"


async def scrape(
    scrapes: Scrapes,
    client: httpx2.AsyncClient,
    targets: dict[str, tuple[str, str]],
    clock: Callable[[], datetime],
    simulated: Callable[[datetime], Iterable[tuple[str, str]]] = lambda at: (),
) -> None:
    """For ever; ``targets`` are URL and token by job. A target that is down has a gap.

    ``simulated`` are further answers, by job, of what does not run but on paper.
    """
    for turn in itertools.count():
        at = clock()
        for job, text in simulated(at):
            scrapes.add(job, text, at)
        await asyncio.sleep(SIMULATED_SECONDS)
        if turn % round(SCRAPE_SECONDS / SIMULATED_SECONDS):
            continue
        for job, (url, token) in targets.items():
            try:
                answer = await client.get(url, headers={"Authorization": f"Bearer {token}"} if token else {})
            except httpx2.TransportError:
                continue
            if answer.is_success:
                scrapes.add(job, answer.text, clock())
