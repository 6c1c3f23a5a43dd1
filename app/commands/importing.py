"""`foreshock import`: files into a cluster, then incidents from their alerts, ranked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path

import orjson
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.importer import Import, Report
from app.collect.importer import Progress as OnProgress
from app.collect.inputs import Input, survey
from app.collect.resume import asked
from app.collect.strict import SHOWN_PROBLEMS, check
from app.core.findings import Incident
from app.correlate import open_incidents, rank_news
from app.failures import Exit
from app.store.positions import read_positions, read_sizes
from app.store.turns import turn

MINUTE = 60.0
SHOWN_HISTOGRAMS = 3
NAMES = {"call_minutes": "calls", "requests": "requests", "changes": "changes"}
"""What people call the logs, and their settings."""


async def import_paths(
    engine: AsyncEngine, paths: list[str], cluster: str, *, now: datetime, strict: bool = False
) -> tuple[Report, list[Incident]]:
    """Import everything behind ``paths``, open the incidents of its alerts, and rank those that it tells something of.

    An incident is ranked as of the end of what is recorded of it. Raises UnreadableError, InvalidInputError and the
    store's errors.
    """
    # Standard input may go on for ever, and has no position that another import could read on from.
    alone = turn(engine, cluster, waits=tell_waiting) if any(path != "-" for path in paths) else nullcontext()
    async with alone:
        async with engine.connect() as conn:
            sizes = await read_sizes(conn, cluster)
        found = survey(paths, sizes)
        inputs = list(found.inputs)
        if strict:
            async with engine.connect() as conn:
                known = await read_positions(conn, cluster, asked(inputs))
            check(inputs, now=now, damaged=found.damaged, known=known)
        with progress(inputs) as shown:
            report = await Import(engine, cluster, now=now, progress=shown, on_alerts=open_incidents).run(inputs)
    report.passed_over += [*found.damaged, *found.unknown]
    return report, await rank_news(engine, cluster, now)


def tell_waiting(cluster: str) -> None:
    """Say on stderr why nothing happens yet."""
    sys.stderr.write(f"another import into {cluster!r} is running: waiting for its end\n")


def expired(report: Report, ages: Mapping[str, timedelta], *, now: datetime) -> list[str]:
    """Of each log that got what is older than its age (store.retention.ages): that `serve` will drop it."""
    return [
        f"{NAMES[log]} from {first:%Y-%m-%d} on were imported; `serve` drops those older than {ages[log].days} days:"
        f" see FORESHOCK_{NAMES[log].upper()}_RETENTION_DAYS"
        for log, first in report.oldest.items()
        if first < now - ages[log]
    ]


def summary(report: Report, incidents: list[Incident]) -> list[str]:
    """What a person reads when an import is done."""
    tally = report.tally
    kinds = ((tally.lines, "line"), (tally.objects, "object"), (tally.alerts, "alert"))
    read = ", ".join(_count(number, of) for number, of in kinds if number) or "nothing new"
    found = (
        _count(tally.calls, "call"),
        _count(tally.changes, "change"),
        _count(tally.no_ops, "write", " without effect"),
        _count(tally.failed_writes, "refused write"),
    )
    told = [f"{read}: {', '.join(found)}"]
    if report.samples:
        told.append(_count(report.samples, "metric sample"))
    if report.buckets:
        of = ", ".join(sorted(report.buckets)[:SHOWN_HISTOGRAMS])
        more = f" and {len(report.buckets) - SHOWN_HISTOGRAMS} more" if len(report.buckets) > SHOWN_HISTOGRAMS else ""
        told.append(
            f"{_count(report.buckets.total(), 'sample')} of buckets of {_count(len(report.buckets), 'histogram')} left"
            f" out ({of}{more}): their latencies are means; what a Prometheus sends by remote-write has percentiles"
        )
    if tally.repeated:
        was = "was" if tally.repeated == 1 else "were"
        told.append(f"{_count(tally.repeated, 'request')} {was} told more than once, and counted once")
    told += report.read_on
    told += [f"already imported: {path}" for path in report.skipped]
    told += [f"not imported: {file}" for file in report.passed_over]
    if tally.rejects:
        told.append(f"{_count(tally.rejects, 'line')} could not be used; in quarantine:")
        told += [f"  {problem}" for problem in report.problems[:SHOWN_PROBLEMS]]
        if tally.rejects > SHOWN_PROBLEMS:
            told.append(f"  and {tally.rejects - SHOWN_PROBLEMS:,} more")
    told += [f"incident {incident.id}: {incident.title}" for incident in incidents]
    return told


def _count(number: int, of: str, more: str = "") -> str:
    """How many there are, in words."""
    return f"{number:,} {of if number == 1 else of + 's'}{more}"


def exit_code(report: Report) -> Exit:
    """How the command ends: UNUSABLE where something was refused and nothing else was there."""
    was_used = report.tally.used or report.samples or report.skipped or report.read_on
    is_unusable = report.tally.rejects and not was_used
    return Exit.UNUSABLE if is_unusable else Exit.DONE


@contextmanager
def progress(inputs: list[Input], *, every_seconds: float = MINUTE) -> Iterator[OnProgress]:
    """A bar with rate and remaining time on a terminal; otherwise one line of JSON ``every_seconds`` on stderr."""
    sizes = {one.path: one.size for one in inputs if one.size is not None}
    if not sys.stderr.isatty():
        yield _log_lines(sizes, every_seconds)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {path: bar.add_task(Path(path).name, total=size) for path, size in sizes.items()}

        def show(path: str, _lines: int, stored_bytes: int) -> None:
            if path in tasks:
                bar.update(tasks[path], completed=stored_bytes)

        yield show


def _log_lines(sizes: dict[str, int], every_seconds: float) -> OnProgress:
    told = time.monotonic()

    def log(path: str, lines: int, stored_bytes: int) -> None:
        nonlocal told
        if time.monotonic() - told >= every_seconds:
            told = time.monotonic()
            line = {"event": "import", "path": path, "lines": lines, "bytes": stored_bytes, "of_bytes": sizes.get(path)}
            sys.stderr.write(orjson.dumps(line).decode() + "\n")

    return log
