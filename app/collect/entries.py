"""Audit logs and watches as one stream of their lines by time, so that the two tellings of one write meet."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.collect.documents import Documents
from app.collect.exports import EVENT_IN, Export, Parted
from app.collect.files import DamagedError, Line, Stream, lines, open_stream
from app.collect.inputs import Input, InputKind
from app.collect.intake import Intake, Place, RawWatchEvent, decode_watch
from app.collect.refusals import UnusableError, explain
from app.collect.shift import shift_times
from app.core.changes import audit
from app.core.model import Position

UNUSABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a line raises that nothing can be made of: it is refused, and the next one read."""
EXPECTED = {
    InputKind.AUDIT: "audit event (audit.k8s.io/v1)",
    InputKind.WATCH: "watch event ({at, type, object})",
}


BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
"""When what is refused at the head of a file is told: it has no time, and holds nothing up."""
MICROSECOND = timedelta(microseconds=1)
MILLISECOND = 1_000
SECOND = 1_000_000
"""In microseconds."""


@dataclass(slots=True)
class Reading:
    """One file being read: its input, and how far it is; of a log also the time. ``stream`` is None when it was read to
    its end.

    ``follows`` is the file, by its hash, that it was at an earlier import, when it was smaller.
    """

    input: Input
    offset: int = 0
    lines: int = 0
    moved: bool = False
    done: bool = False
    at: datetime | None = None
    stream: Stream | None = None
    follows: str = ""

    def stored_bytes(self) -> int:
        """How much of the file itself is read, compressed as it may be; of standard input, what came out of it."""
        if self.input.path == "-":
            return self.offset
        return self.stream.tell() if self.stream else self.input.size or 0

    def place(self) -> Place:
        return Place(self.offset, self.lines, self.stored_bytes(), self.done, self.at)

    def position(self) -> Position:
        one = self.input
        return Position(one.file_hash, one.path, self.offset, self.lines, done=self.done, size=one.size or 0)


class Entry(msgspec.Struct, gc=False):
    """One event of one of the files that are merged, or what is refused; ``at`` never goes back within a file.

    ``refused`` is why, and the column of the line; ``rounded`` as in core.sightings.Sighting.
    """

    at: datetime
    order: int
    read: Reading
    line: Line
    audit: audit.RawAuditEvent | None = None
    watch: RawWatchEvent | None = None
    refused: tuple[str, int] | None = None
    rounded: bool = False


def merged(streams: list[Iterator[Entry]]) -> Iterator[Entry]:
    """The entries of all streams by time; those of one file alone as they come."""
    return streams[0] if len(streams) == 1 else heapq.merge(*streams, key=lambda entry: (entry.at, entry.order))


def decoded(read: Reading, intake: Intake, order: int, *, shift_seconds: int = 0) -> Iterator[Entry]:
    """The events of one file in its order. What is refused has the time of the event before it."""
    last, before = BEFORE_ALL, Line(read.lines, b"", read.offset)
    event_in = _exported if read.input.export else _event
    with open_stream(read.input.path, read.input.start, size=read.input.size, inode=read.input.inode) as stream:
        read.stream = stream
        text = Parted(stream) if read.input.export is Export.CLOUDWATCH_EVENT else stream
        found = Documents(lines(text, skip_to=read.offset, first_line=read.lines + 1))
        try:
            for line in found:
                entries: Iterable[Entry]
                try:
                    entries = (event_in(read, intake, order, line=line, shift_seconds=shift_seconds),)
                except UNUSABLE:
                    pieces = found.within(line)
                    entries = _events(event_in, read, intake, order, pieces=pieces, shift_seconds=shift_seconds)
                for entry in entries:
                    if entry.watch is not None:
                        _in_turn(entry, entry.watch)
                    # A log is nearly in order; a step back must not hold the merge up.
                    if entry.at < last:
                        entry.at = last
                    else:
                        last = entry.at
                    before = entry.line
                    yield entry
        except DamagedError as error:
            broken = Line(before.number + before.further + 1, b"", before.end, whole=False)
            yield Entry(BEFORE_ALL, order, read, broken, refused=(str(error), 1))
        finally:
            read.stream = None


def _events(
    event_in: EventIn, read: Reading, intake: Intake, order: int, *, pieces: Iterable[Line], shift_seconds: int
) -> Iterator[Entry]:
    """The events in what is no event by itself; what is none is refused."""
    for piece in pieces:
        try:
            yield event_in(read, intake, order, line=piece, shift_seconds=shift_seconds)
        except UNUSABLE as error:
            data = shift_times(piece.data, seconds=shift_seconds)
            problem, column = explain(error, data, expected=EXPECTED[read.input.kind])
            if piece.further > 0 and not data.lstrip().startswith(b"{"):
                problem, column = f"the rest of an event whose beginning is missing, {piece.further + 1:,} lines", 1
            yield Entry(BEFORE_ALL, order, read, piece, refused=(problem, column))


def _in_turn(entry: Entry, watch: RawWatchEvent) -> None:
    """Watch events of one and the same time keep their order: what a clock of seconds or of milliseconds leaves out is
    filled with the number of the line, which is the same wherever reading began. (Of two events of one millisecond that
    lie on both sides of a thousandth line, the order is lost.)

    A time without a fraction may be up to a second too early. The audit event of the same write knows better and must
    come first, so the watch event waits out that second.
    """
    fraction = entry.at.microsecond
    entry.rounded = not fraction
    room = SECOND if not fraction else MILLISECOND if fraction % MILLISECOND == 0 else 1
    watch.at = entry.at + (entry.line.number % room) * MICROSECOND
    entry.at = watch.at if fraction else watch.at + SECOND * MICROSECOND


def _event(read: Reading, intake: Intake, order: int, *, line: Line, shift_seconds: int) -> Entry:
    """A line as an event, or as nothing but its place where that is refused. Raises UNUSABLE where it is none."""
    event, watch, at = None, None, None
    if line.too_long:
        problem = "longer than 16 MiB, as no event is: leave it out"
    elif read.input.kind is InputKind.AUDIT:
        event = audit.decode(shift_times(line.data, seconds=shift_seconds))
        at = event.stageTimestamp
        problem = intake.check_times(event)
    else:
        watch = decode_watch(shift_times(line.data, seconds=shift_seconds))
        at = watch.at
        problem = intake.check_time(at) if at else 'the watch event has no time "at": docs/import.md'
    if problem or at is None:
        return Entry(BEFORE_ALL, order, read, line, refused=(problem, 1))
    return Entry(at, order, read, line, event, watch)


EventIn = Callable[..., Entry]
"""_event, or _exported."""


def _exported(read: Reading, intake: Intake, order: int, *, line: Line, shift_seconds: int) -> Entry:
    """As _event, of an entry of an export. Raises UNUSABLE."""
    if line.too_long or read.input.export is None:
        return _event(read, intake, order, line=line, shift_seconds=shift_seconds)
    event = EVENT_IN[read.input.export](line.data)
    try:
        found = _event(read, intake, order, line=replace(line, data=event), shift_seconds=shift_seconds)
    except UNUSABLE as error:
        reason, _ = explain(error, event, expected=EXPECTED[InputKind.AUDIT])
        raise UnusableError(f"{reason} (in {read.input.export})") from None
    found.line = line
    return found


def unreadable_object(entry: Entry, error: Exception) -> tuple[str, int]:
    """Why the object in an event cannot be read, and the column of its line."""
    body = entry.audit.responseObject if entry.audit else entry.watch.object if entry.watch else b""
    reason, column = explain(error, bytes(body), expected="object")
    return f"the object in it cannot be read: {reason}", column + max(0, entry.line.data.find(bytes(body)))
