"""Files -> the store, in batches that commit together with how far each file has been read.

Audit logs and watches are merged by time, so that the two tellings of one write meet; metrics, alerts and dumps
follow. Killed at any point, the next run goes on from the last commit; a file that is done adds nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect import alerts, openmetrics
from app.collect.files import DamagedError, Line, lines, modified_at, open_stream
from app.collect.inputs import Input, InputKind, read_document
from app.collect.intake import Intake, RawWatchEvent, Tally, decode_watch, dump_items
from app.collect.shift import shift_times
from app.core import audit
from app.core.model import Batch, MetricSeries, ObjectState, Position, Reject, Resource, Symptom
from app.core.redact import Redactor
from app.core.sightings import Sighting
from app.core.tracker import Tracker
from app.store import objects
from app.store.positions import read_positions
from app.store.record import record
from app.store.redaction import redaction_key

CHUNK = 2_000
"""Lines that are learned from between two looks at the store for objects not held in memory."""
BATCH = 4_000
"""Rows and states that make a transaction: large enough for COPY, small enough to lose little to a kill."""
METRIC_LINES = 200_000
SHOWN_PROBLEMS = 20
UNUSABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a line raises that nothing can be made of: it is refused, and the next one read."""
MOST_PROBLEMS = 1_000
"""All stand in quarantine; this many are kept in memory to be told."""


class InvalidInputError(Exception):
    """--strict found lines that could not be used; nothing was written. ``problems`` say file, line, column, what."""

    def __init__(self, problems: list[str]) -> None:
        shown = "\n  ".join(problems[:SHOWN_PROBLEMS])
        more = f"\n  and {len(problems) - SHOWN_PROBLEMS:,} more" if len(problems) > SHOWN_PROBLEMS else ""
        super().__init__(f"{len(problems):,} lines cannot be used; nothing was written\n  {shown}{more}")
        self.problems = problems


@dataclass(slots=True)
class Report:
    """What an import did. ``alerts`` are all alerts it read, for the caller to open incidents with."""

    tally: Tally = field(default_factory=Tally)
    alerts: list[Symptom] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    samples: int = 0
    problems: list[str] = field(default_factory=list)
    from_at: datetime | None = None
    to_at: datetime | None = None


Progress = Callable[[str, int, int], None]
"""Called with a path, the lines and the decompressed bytes read of it so far."""


@dataclass(slots=True)
class _Read:
    """One file being read: its input, and how far it is."""

    input: Input
    offset: int = 0
    lines: int = 0
    moved: bool = False
    done: bool = False

    def position(self) -> Position:
        return Position(self.input.file_hash, self.input.path, self.offset, self.lines, done=self.done)


class Import:
    """One run over some inputs into one cluster."""

    def __init__(
        self,
        engine: AsyncEngine,
        cluster: str,
        *,
        now: datetime,
        progress: Progress,
        until: datetime | None = None,
        shift_seconds: int = 0,
    ) -> None:
        """``until`` stops logs there, as if the rest were not written yet; a later run goes on from it.

        ``shift_seconds`` moves every time in the input (collect/shift.py).
        """
        self.engine, self.cluster, self.now, self.progress, self.until = engine, cluster, now, progress, until
        self.shift_seconds = shift_seconds
        self.report = Report()
        self._found: dict[Resource, ObjectState] = {}

    async def run(self, inputs: list[Input]) -> Report:
        """Read everything that is not yet read. Raises UnreadableError and the store's errors."""
        async with self.engine.connect() as conn:
            key = await redaction_key(conn)
            await conn.commit()
            known = await read_positions(conn, self.cluster)
        redactor = Redactor(key)
        tracker = Tracker(self.cluster, redactor, self._lookup)
        self.intake = Intake(self.cluster, redactor, tracker, now=self.now, tally=self.report.tally)
        todo = []
        for one in inputs:
            position = known.get(one.file_hash)
            if position and position.done:
                self.report.skipped.append(one.path)
                continue
            todo.append(_Read(one, position.offset if position else 0, position.lines if position else 0))
        await self._logs([r for r in todo if r.input.kind in (InputKind.AUDIT, InputKind.WATCH)])
        for read in todo:
            if read.input.kind is InputKind.METRICS:
                await self._metrics(read)
            elif read.input.kind is InputKind.ALERTS:
                await self._alerts(read)
            elif read.input.kind is InputKind.DUMP and self.until is None:
                await self._dump(read)
        self.report.to_at = self.intake.latest
        return self.report

    def _lookup(self, resource: Resource, _uid: str) -> ObjectState | None:
        return self.intake.held_back(resource) or self._found.get(resource)

    async def _logs(self, reads: list[_Read]) -> None:
        streams = [
            _decoded(read, self.intake, order, shift_seconds=self.shift_seconds) for order, read in enumerate(reads)
        ]
        chunk: list[Sighting] = []
        stopped = False
        for number, entry in enumerate(_merged(streams), start=1):
            if self.until and entry.at > self.until:
                stopped = True
                break
            try:
                if entry.audit is not None:
                    chunk += self.intake.audit_event(entry.audit)
                elif entry.watch is not None:
                    chunk += self.intake.watch_event(entry.watch, entry.watch.at or entry.at)
            except UNUSABLE as error:
                self.intake.reject(entry.read.input.path, entry.line, f"the object in it cannot be read: {error}")
            entry.read.offset, entry.read.lines, entry.read.moved = entry.line.end, entry.line.number, True
            self.report.tally.lines += 1
            if number % CHUNK == 0:
                await self._learn(chunk)
                chunk = []
                self.progress(entry.read.input.path, entry.read.lines, entry.read.offset)
                if self.intake.pending >= BATCH:
                    await self._flush(reads)
        await self._learn(chunk)
        for read in reads:
            read.done, read.moved = not stopped, True
        if reads:
            await self._flush(reads)

    async def _learn(self, sightings: list[Sighting]) -> None:
        """Observe a chunk, after bringing in what the store knows and the tracker does not hold."""
        missing = {s.resource for s in sightings if not self.intake.tracker.holds(s.resource)}
        missing = {r for r in missing if self.intake.held_back(r) is None}
        if missing:
            async with self.engine.connect() as conn:
                self._found = await objects.load_states(conn, self.cluster, missing)
        for sighting in sightings:
            try:
                self.intake.observe(sighting)
            except UNUSABLE as error:
                self.intake.reject(str(sighting.resource), Line(0, b"", 0), f"the object cannot be read: {error}")
        self._found = {}

    async def _flush(self, reads: list[_Read]) -> None:
        positions = tuple(r.position() for r in reads if r.moved and r.input.path != "-")
        await self._record(self.intake.take(positions))
        for read in reads:
            read.moved = False

    async def _record(self, batch: Batch) -> None:
        room = MOST_PROBLEMS - len(self.report.problems)
        self.report.problems += [told(reject) for reject in batch.rejects[: max(0, room)]]
        async with self.engine.begin() as conn:
            recorded = await record(conn, batch)
        self.report.tally.changes += recorded.changes

    async def _metrics(self, read: _Read) -> None:
        block: list[bytes] = []
        with open_stream(read.input.path) as stream:
            for line in lines(stream, skip_to=read.offset, first_line=read.lines + 1):
                if len(block) >= METRIC_LINES and line.data.startswith(b"# TYPE"):
                    await self._samples(read, block)
                    block = []
                block.append(line.data)
                read.offset, read.lines = line.end, line.number
                self.report.tally.lines += 1
        read.done = True
        await self._samples(read, block)

    async def _samples(self, read: _Read, block: list[bytes]) -> None:
        series: tuple[MetricSeries, ...] = ()
        try:
            series = tuple(openmetrics.parse(block, shift_seconds=self.shift_seconds))
        except openmetrics.MetricsError as error:
            self.intake.reject(read.input.path, Line(read.lines, b"", read.offset), str(error))
        self.report.samples += sum(len(one.times) for one in series)
        batch = self.intake.take((read.position(),))
        await self._record(replace(batch, series=series))
        self.progress(read.input.path, read.lines, read.offset)

    async def _alerts(self, read: _Read) -> None:
        body = shift_times(read_document(read.input.path), seconds=self.shift_seconds)
        found: list[Symptom] = []
        for number, document in enumerate(_documents(body), start=1):
            try:
                found += alerts.parse(document, redact=self.intake.redactor.text)
            except alerts.PayloadError as error:
                self.intake.reject(read.input.path, Line(number, document[:400], 0), str(error))
        self.report.alerts += found
        read.offset, read.lines, read.done = len(body), 1, True
        await self._record(self.intake.take((read.position(),), extra=tuple(found)))

    async def _dump(self, read: _Read) -> None:
        """A dump says nothing of when: with a log before it, it is as old as the log's end, else as the file."""
        at = self.intake.latest or modified_at(read.input.path)
        body = shift_times(read_document(read.input.path), seconds=self.shift_seconds)
        chunk: list[Sighting] = []
        try:
            for raw in dump_items(body):
                chunk.append(self.intake.dump_item(raw, at))
                if len(chunk) >= CHUNK:
                    await self._learn(chunk)
                    chunk = []
        except msgspec.MsgspecError as error:
            self.intake.reject(read.input.path, Line(1, body[:400], 0), f"not a dump of objects: {error}")
        await self._learn(chunk)
        read.offset, read.lines, read.done, read.moved = len(body), 1, True, True
        await self._flush([read])


def _documents(body: bytes) -> Iterator[bytes]:
    """One JSON document, or one a line."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.MsgspecError:
        yield from (line for line in body.splitlines() if line.strip())
    else:
        yield body


class _Entry(msgspec.Struct, gc=False):
    """One line of one of the files that are merged; ``at`` never goes back within a file."""

    at: datetime
    order: int
    read: _Read
    line: Line
    audit: audit.RawAuditEvent | None = None
    watch: RawWatchEvent | None = None


def _merged(streams: list[Iterator[_Entry]]) -> Iterator[_Entry]:
    """The entries of all streams by time; those of one file alone as they come."""
    return streams[0] if len(streams) == 1 else heapq.merge(*streams, key=lambda entry: (entry.at, entry.order))


def _decoded(read: _Read, intake: Intake, order: int, *, shift_seconds: int = 0) -> Iterator[_Entry]:
    """The events of one file in its order. A bad line is rejected at the time of the one before it."""
    last = datetime.min.replace(tzinfo=UTC)
    with open_stream(read.input.path) as stream:
        try:
            for line in lines(stream, skip_to=read.offset, first_line=read.lines + 1):
                entry = _entry(read, intake, order, line=line, shift_seconds=shift_seconds)
                # A log is nearly in order; a step back must not hold the merge up.
                entry.at = max(entry.at, last)
                last = entry.at
                yield entry
        except DamagedError as error:
            intake.reject(read.input.path, Line(read.lines + 1, b"", read.offset), str(error))


def _entry(read: _Read, intake: Intake, order: int, *, line: Line, shift_seconds: int) -> _Entry:
    """One line as an event, or as nothing but its place where it is rejected."""
    problem = "the line is longer than 16 MiB" if line.too_long else ""
    data = shift_times(line.data, seconds=shift_seconds)
    event, watch, at = None, None, None
    try:
        if problem:
            pass
        elif read.input.kind is InputKind.AUDIT:
            event = audit.decode(data)
            at = event.stageTimestamp
            problem = intake.check_time(event.requestReceivedTimestamp)
        else:
            watch = decode_watch(data)
            at = watch.at
        if not problem:
            problem = intake.check_time(at) if at else 'the watch event has no "at" time'
    except UNUSABLE as error:
        problem = str(error)
    if problem or at is None:
        intake.reject(read.input.path, line, problem)
        return _Entry(datetime.min.replace(tzinfo=UTC), order, read, line)
    return _Entry(at, order, read, line, event, watch)


def told(reject: Reject) -> str:
    """Where a piece of input stands and what is wrong with it, in one line."""
    return f"{reject.source}, line {reject.line}, column {reject.column}: {reject.reason}"


def check(inputs: list[Input], *, now: datetime) -> None:
    """--strict: decode everything first and raise InvalidInputError before anything is written."""
    intake = Intake("", Redactor(b"\0" * 32), Tracker("", Redactor(b"\0" * 32), lambda _r, _u: None), now=now)
    for one in inputs:
        if one.kind in (InputKind.AUDIT, InputKind.WATCH) and one.path != "-":
            for _ in _decoded(_Read(one), intake, 0):
                pass
        elif one.kind is InputKind.METRICS:
            with open_stream(one.path) as stream:
                try:
                    list(openmetrics.parse(line.data for line in lines(stream)))
                except openmetrics.MetricsError as error:
                    intake.reject(one.path, Line(1, b"", 0), str(error))
        elif one.kind is InputKind.ALERTS:
            try:
                alerts.parse(read_document(one.path), redact=str)
            except alerts.PayloadError as error:
                intake.reject(one.path, Line(1, b"", 0), str(error))
    problems = [told(reject) for reject in intake.take(()).rejects]
    if problems:
        raise InvalidInputError(problems)
