"""Metrics, alerts and dumps in the pieces that are read at once; what cannot be used of them is refused."""

from __future__ import annotations

from collections.abc import Iterator

from app.collect import alerts, openmetrics
from app.collect.entries import Reading
from app.collect.files import DamagedError, Line, lines, open_stream, written_at
from app.collect.inputs import read_document
from app.collect.intake import EARLIEST, LATEST, Intake
from app.core.model import MetricSeries, Symptom

METRIC_LINES = 200_000


def document(intake: Intake, read: Reading) -> bytes:
    """A whole document; of a damaged archive none, since JSON cannot be used by halves."""
    try:
        return read_document(read.input.path, read.input.start, size=read.input.size, inode=read.input.inode)
    except DamagedError as error:
        intake.reject(read.input.path, Line(1, b"", 0), str(error), again=True)
        return b""


def blocks(intake: Intake, read: Reading) -> Iterator[list[Line]]:
    """Metrics in blocks of whole families; with each, how far the file is read.

    In the end that is where its last family begins, of which there may be more once the file has grown: samples told
    twice are stored once.
    """
    block: list[Line] = []
    with open_stream(read.input.path, read.input.start, size=read.input.size, inode=read.input.inode) as stream:
        read.stream = stream
        try:
            for line in lines(stream, skip_to=read.offset, first_line=read.lines + 1):
                if len(block) >= METRIC_LINES and line.data.startswith(b"# TYPE"):
                    read.offset, read.lines = block[-1].end, block[-1].number
                    yield block
                    block = []
                block.append(line)
        except DamagedError as error:
            number = block[-1].number if block else read.lines
            intake.reject(read.input.path, Line(number + 1, b"", read.offset), str(error), again=True)
    read.stream = None
    types = [number for number, line in enumerate(block) if line.data.startswith(b"# TYPE")]
    if types and types[-1]:
        before = block[types[-1] - 1]
        read.offset, read.lines = before.end, before.number
    read.done = True
    yield block


def series(intake: Intake, read: Reading, block: list[Line], *, shift_seconds: int = 0) -> Iterator[MetricSeries]:
    """The series of a block."""

    def refuse(line: Line, reason: str) -> None:
        intake.reject(read.input.path, line, reason, again=line.end > read.offset)

    return openmetrics.parse(
        block,
        intake.redactor,
        refuse=refuse,
        between=((intake.now - EARLIEST).timestamp(), (intake.now + LATEST).timestamp()),
        shift_seconds=shift_seconds,
    )


def symptoms(intake: Intake, read: Reading, line: Line) -> list[Symptom]:
    """The alerts of one payload whose time can be stored."""
    received = written_at(read.input.path, intake.now)
    try:
        found, unusable = alerts.parse(line.data, intake.redactor, received=received, now=intake.now)
    except alerts.PayloadError as error:
        intake.reject(read.input.path, line, str(error), again=True)
        return []
    for one in unusable:
        intake.reject(read.input.path, line, one.why, again=True)
    for alert in found:
        problem = intake.check_time(alert.at)
        if problem:
            intake.reject(read.input.path, line, f"startsAt of {alert.reason}: {problem}", again=True)
    kept = [alert for alert in found if not intake.check_time(alert.at)]
    intake.tally.alerts += len(kept)
    intake.tally.used += len(kept)
    return kept
