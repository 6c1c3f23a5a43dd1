"""Audit logs and watches -> pieces, in this process. What a piece needs to be read is in the Job, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from app.collect.entries import BEFORE_ALL, UNUSABLE, Entry, Reading, decoded, merged, unreadable_object
from app.collect.inputs import Input
from app.collect.intake import Intake, Piece, Place
from app.core.objects.own_rules import NO_RULES, OwnRules
from app.core.objects.redact import Redactor

LINES = 2_000
"""Lines of a piece at the most: learned from between two looks at the store for objects not held in memory."""
BYTES = 8 << 20
"""Bytes of a piece, and one line more: large objects do not add up."""


class Log(msgspec.Struct):
    """A file to read, from where on."""

    input: Input
    offset: int
    lines: int


class Job(msgspec.Struct):
    """Logs to read together, merged by time. ``until`` stops them there; ``key`` and ``own`` are those of
    redaction."""

    cluster: str
    key: bytes
    now: datetime
    logs: list[Log]
    until: datetime | None = None
    shift_seconds: int = 0
    own: OwnRules = NO_RULES


def pieces(job: Job) -> Iterator[Piece]:
    """What the logs say, LINES or BYTES at a time. Raises UnreadableError.

    What a log ends within is refused last, and no log moves behind it: when there is more of the log, it is read again.
    """
    intake = Intake(job.cluster, Redactor(job.key, job.own), now=job.now)
    reads = [Reading(log.input, log.offset, log.lines) for log in job.logs]
    streams = [decoded(read, intake, order, shift_seconds=job.shift_seconds) for order, read in enumerate(reads)]
    last: dict[int, Entry] = {}
    cut: list[Entry] = []
    stopped, told, size = False, 0, 0
    for entry in merged(streams):
        if job.until and entry.at > job.until:
            stopped = True
            break
        if entry.refused and not entry.line.whole:
            cut.append(entry)
            continue
        _tell(intake, entry)
        last[entry.order] = entry
        told += 1
        size += len(entry.line.data)
        if told == LINES or size >= BYTES:
            intake.tally.lines += told
            yield intake.take(_moved(reads, last))
            told = size = 0
    intake.tally.lines += told
    _moved(reads, last)
    if not stopped:
        for entry in cut:
            _tell(intake, entry)
            intake.tally.lines += bool(entry.line.data) or entry.line.too_long
    for read in reads:
        read.done = not stopped
    yield intake.take({order: read.place() for order, read in enumerate(reads)})


def _moved(reads: list[Reading], last: dict[int, Entry]) -> dict[int, Place]:
    """Moves logs behind the last line told of each, by its order, and says where they are now."""
    for order, entry in last.items():
        read, line = reads[order], entry.line
        read.offset, read.lines = line.end, line.number + line.further - (not line.whole)
        if entry.at > BEFORE_ALL:
            read.at = entry.watch.at if entry.watch else entry.at
    places = {order: reads[order].place() for order in last}
    last.clear()
    return places


def _tell(intake: Intake, entry: Entry) -> None:
    try:
        if entry.audit is not None:
            intake.audit_event(entry.audit)
            intake.tally.used += 1
        elif entry.refused is not None:
            problem, column = entry.refused
            intake.reject(entry.read.input.path, entry.line, problem, column=column, again=not entry.line.whole)
        elif entry.watch is not None:
            intake.watch_event(entry.watch, entry.watch.at or entry.at, log=entry.order, rounded=entry.rounded)
            intake.tally.used += 1
    except UNUSABLE as error:
        reason, column = unreadable_object(entry, error)
        intake.reject(entry.read.input.path, entry.line, reason, column=column)
