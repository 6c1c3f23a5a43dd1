"""Files -> the store, in batches that commit together with how far each file has been read.

Audit logs and watches are merged by time, so that the two tellings of one write meet; metrics, alerts and dumps
follow. Killed at any point, the next run goes on from the last commit; a file that is done adds nothing, and one that
has grown since only what came to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from threading import Event

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.collect import openmetrics
from app.collect.apart import pieces_apart
from app.collect.documents import split
from app.collect.dumps import dated, keep_objects
from app.collect.entries import Reading
from app.collect.files import Line
from app.collect.garbage import garbage_rarely
from app.collect.inputs import Input, InputKind
from app.collect.intake import Intake, Piece, Tally
from app.collect.learning import BATCH, BATCH_BYTES, Known, Learning
from app.collect.logs import LINES, Job, Log, pieces
from app.collect.pieces import blocks, document, series, symptoms
from app.collect.resume import asked, read_on, reading
from app.collect.shift import shift_times
from app.collect.strict import told
from app.collect.threads import in_thread
from app.core.edges import mesh_calls
from app.core.model import Batch, Position, Symptom, SymptomSource
from app.core.signals.collected import NAMES
from app.store import rollouts
from app.store.positions import read_positions
from app.store.reach import AUDIT_LOG, DUMP, WATCH
from app.store.redaction import read_redactor

APART_BYTES = 4 << 20
"""Logs of that size, packed as they may be, are read by a process of their own, which takes a quarter second to start.
So is standard input, whose size nobody knows."""
NEVER = datetime.max.replace(tzinfo=UTC)
SOURCES = {InputKind.AUDIT: AUDIT_LOG, InputKind.WATCH: WATCH, InputKind.DUMP: DUMP}
MOST_PROBLEMS = 1_000
"""All stand in quarantine; this many are kept in memory to be told."""


@dataclass(slots=True)
class Report:
    """What an import did. ``alerts`` are all alerts it read, for the caller to open incidents with.

    ``skipped`` were imported before; ``passed_over`` says of each file that nothing of it was imported, and why, and
    ``read_on`` of each that has grown since its last import from where on it was.
    ``buckets`` are the samples of histograms' buckets that were left out, by the name of the histogram.
    ``oldest`` is the first time in each of the logs "call_minutes", "requests", "changes"; NEVER where it got nothing.
    """

    tally: Tally = field(default_factory=Tally)
    alerts: list[Symptom] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    read_on: list[str] = field(default_factory=list)
    samples: int = 0
    buckets: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    oldest: dict[str, datetime] = field(default_factory=dict)
    to_at: datetime | None = None


OnAlerts = Callable[[AsyncConnection, str, list[Symptom]], Awaitable[object]]
Progress = Callable[[str, int, int], None]
"""Called with a path, and the lines and the bytes of the file (compressed as it may be) read of it so far."""


class Import:
    """One run over some inputs into one cluster.

    Learning keeps one core busy, so it runs in a thread of its own; what was learned is recorded on the event loop
    meanwhile, one batch at a time, and large logs are read by another process.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        cluster: str,
        *,
        now: datetime,
        progress: Progress,
        on_alerts: OnAlerts | None = None,
        until: datetime | None = None,
        shift_seconds: int = 0,
    ) -> None:
        """``on_alerts`` is called in the transaction that records alerts: what it does is done once, like that.

        ``until`` stops logs there, as if the rest were not written yet; a later run goes on from it.

        ``shift_seconds`` moves every time in the input (collect/shift.py).
        """
        self.engine, self.cluster, self.now, self.progress, self.until = engine, cluster, now, progress, until
        self.on_alerts, self.shift_seconds = on_alerts, shift_seconds
        self.report = Report()
        self._grown: tuple[str, ...] = ()
        self._cancelled = Event()

    async def run(self, inputs: list[Input]) -> Report:
        """Read everything that is not yet read. Raises UnreadableError, ReadingError and the store's errors.

        Cancelled, it ends once nothing is written any more: what was learned since the last commit is left, with its
        positions, to the next run.
        """
        async with self.engine.connect() as conn:
            redactor = await read_redactor(conn)
            await conn.commit()
            known = await read_positions(conn, self.cluster, asked(inputs))
            last = await rollouts.read_last(conn, self.cluster)
        self.intake = Intake(self.cluster, redactor, now=self.now)
        found = [reading(one, known) for one in inputs]
        todo = [read for read in found if not read.done]
        self.report.skipped += [read.input.path for read in found if read.done]
        self.report.read_on += filter(None, map(read_on, todo))
        self._grown = tuple(read.follows for read in todo if read.follows)
        self.learning = Learning(
            self.engine,
            self.intake,
            tally=self.report.tally,
            rollouts=last,
            goes_on=any(read.offset for read in todo if read.input.kind in (InputKind.AUDIT, InputKind.WATCH)),
            also=self._open_incidents,
        )
        self.learner = self.learning.learner
        with garbage_rarely():
            await in_thread(partial(self._read, todo), stop=self._cancelled.set)
        self.report.to_at = self.learner.latest
        return self.report

    def _read(self, todo: list[Reading]) -> None:
        self._logs([r for r in todo if r.input.kind in (InputKind.AUDIT, InputKind.WATCH)])
        for read in todo:
            if self._cancelled.is_set():  # what was learned of the logs must not be recorded without their positions
                break
            if read.input.kind is InputKind.METRICS:
                self._metrics(read)
            elif read.input.kind is InputKind.ALERTS:
                self._alerts(read)
            elif read.input.kind is InputKind.DUMP and self.until is None:
                self._dump(read)
        self.learning.recorded()

    # -- what is recorded

    def _record(self, batch: Batch) -> None:
        """Note what the report tells of a batch, and hand it over to be recorded, after the one before it."""
        self.learning.recorded()
        room = MOST_PROBLEMS - len(self.report.problems)
        self.report.problems += [told(reject) for reject in batch.rejects[: max(0, room)]]
        for log, times in (
            ("call_minutes", [datetime.fromtimestamp(slot, UTC) for slot in {count.slot for count in batch.calls}]),
            ("requests", [request.at for request in batch.requests]),
            ("changes", [change.at for change in batch.changes]),
        ):
            self.report.oldest[log] = min(self.report.oldest.get(log, NEVER), min(times, default=NEVER))
        self.learning.record(batch)

    async def _open_incidents(self, conn: AsyncConnection, batch: Batch) -> None:
        alerts = [symptom for symptom in batch.symptoms if symptom.source is SymptomSource.ALERT]
        if alerts and self.on_alerts:
            await self.on_alerts(conn, self.cluster, alerts)

    def _taken(self, positions: tuple[Position, ...], *, extra: tuple[Symptom, ...] = ()) -> Batch:
        """Everything learned and refused since the last time."""
        grown, self._grown = self._grown, ()
        return replace(self.learning.taken(positions, extra=extra), grown=grown)

    def _flush(self, reads: list[Reading]) -> None:
        batch = self._taken(tuple(r.position() for r in reads if r.moved and r.input.path != "-"))
        read_to = tuple((SOURCES[r.input.kind], r.at) for r in reads if r.moved and r.at)
        self._record(replace(batch, read_to=read_to))
        for read in reads:
            read.moved = False

    # -- what is read

    def _tell(self, read: Reading) -> None:
        self.progress(read.input.path, read.lines, read.stored_bytes())

    def _logs(self, reads: list[Reading]) -> None:
        if not reads:
            return
        logs = [Log(read.input, read.offset, read.lines) for read in reads]
        redactor = self.intake.redactor
        job = Job(self.cluster, redactor.key, self.now, logs, self.until, self.shift_seconds, redactor.own)
        size = sum(APART_BYTES if read.input.path == "-" else read.input.size or 0 for read in reads)
        weight = 0
        for piece, known in self._asked((pieces_apart if size >= APART_BYTES else pieces)(job)):
            if self._cancelled.is_set():
                return
            self.learner.add(piece)
            self.learner.count(piece)
            self.learning.learn(piece.sightings, known)
            for order, place in piece.places.items():
                read = reads[order]
                read.offset, read.lines, read.done, read.moved = place.offset, place.lines, place.done, True
                read.at = place.at
                self.progress(read.input.path, place.lines, place.stored_bytes)
            weight += sum(len(sighting.body or b"") for sighting in piece.sightings)
            if self.learner.pending >= BATCH or weight >= BATCH_BYTES:
                self._flush(reads)
                weight = 0
        self._flush(reads)

    def _asked(self, found: Iterator[Piece]) -> Iterator[tuple[Piece, Known]]:
        """Each piece with what is known of its objects, asked for while the piece before it is learned from."""
        before = None
        for piece in found:
            following = piece, self.learning.ask(piece.sightings)
            if before:
                yield before
            before = following
        if before:
            yield before

    def _metrics(self, read: Reading) -> None:
        for block in blocks(self.intake, read):
            if self._cancelled.is_set():
                return
            self.intake.tally.lines += len(block)
            self._samples(read, block)

    def _samples(self, read: Reading, block: list[Line]) -> None:
        told = list(series(self.intake, read, block, shift_seconds=self.shift_seconds))
        found = tuple(one for one in told if one.name in NAMES)  # others say who calls whom, and no more
        self.report.samples += sum(len(one.times) for one in found)
        self.report.buckets += openmetrics.buckets(block)
        batch = self._taken((read.position(),))
        self._record(replace(batch, series=found, edges=tuple(mesh_calls.edges(told))))
        self._tell(read)

    def _alerts(self, read: Reading) -> None:
        body = shift_times(document(self.intake, read), seconds=self.shift_seconds)
        found: list[Symptom] = []
        for payload in split(body):
            found += symptoms(self.intake, read, payload)
        self.report.alerts += found
        read.offset, read.lines, read.done = len(body), 1, True
        self._record(self._taken((read.position(),), extra=tuple(found)))

    def _dump(self, read: Reading) -> None:
        body = document(self.intake, read)
        problem, at = dated(self.intake, read, body, shift_seconds=self.shift_seconds)
        if problem:
            self._record(self._taken(()))  # without its position: it is to be read when it was touched
            return
        body = shift_times(body, seconds=self.shift_seconds)
        for number, _ in enumerate(keep_objects(self.intake, read, body, at=at), start=1):
            if self._cancelled.is_set():
                return
            if number % LINES == 0:
                self.learning.learn_read()
        self.learning.learn_read()
        read.offset, read.lines, read.done, read.moved, read.at = len(body), 1, True, True, at
        self._flush([read])
