"""A file that kube-apiserver writes its audit events to, followed for ever: while it grows, and when it is rotated.

A file is known by its first line, which no other has (its auditID and time): under whatever name it is found, reading
goes on where it was. How far that is commits together with what was learned, so the file itself is what waits while the
database is away. Rotated ones are looked for beside it: ``audit-TIME.log``, as kube-apiserver calls them, and
``audit.log.N``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import structlog
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.entries import UNUSABLE
from app.collect.event_list import EXPECTED
from app.collect.files import MAX_LINE, Line, lines
from app.collect.follow import AWAY
from app.collect.intake import Intake, Tally
from app.collect.learning import Learning
from app.collect.logs import BYTES, LINES
from app.collect.refusals import explain
from app.collect.threads import in_thread
from app.core.changes import audit
from app.core.model import Position
from app.store import reach, rollouts
from app.store.positions import read_positions
from app.store.reach import AUDIT_LOG
from app.store.redaction import read_redactor
from app.store.turns import turn

EVERY = timedelta(seconds=1)
"""Between two looks at a file that did not grow, and two tries of a database that is away."""
PACKED = frozenset({".gz", ".zst", ".bz2", ".xz"})
BY_FIRST_LINE = "first line "
"""How the name of such a position begins: other files are known by all their bytes (ADR 0015)."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _File:
    """A file that was found, by what it is known by, and how many bytes it has."""

    path: Path
    name: str
    size: int


class Tail:
    """Follows one file of audit events into one cluster. Made on the event loop that runs it."""

    def __init__(self, engine: AsyncEngine, cluster: str, path: Path, *, clock: Callable[[], datetime]) -> None:
        self._engine, self._cluster, self._path, self._clock = engine, cluster, path, clock
        self._stopped = asyncio.Event()
        self.tally = Tally()
        """What was recorded so far."""

    def stop(self) -> None:
        """End ``run`` once what was read is recorded."""
        self._stopped.set()

    async def run(self) -> None:
        """Until stopped. Raises what a bug raises; a database that is away is waited for."""
        while not self._stopped.is_set():
            try:
                async with turn(self._engine, f"{self._cluster} {self._path}", waits=self._say_waiting):
                    await self._follow()
            except AWAY as error:
                log.warning("what the file tells cannot be recorded yet", file=str(self._path), error=str(error))
                await self._pause()

    def _say_waiting(self, _what: str) -> None:
        log.warning("another process follows this file: waiting for its end", file=str(self._path))

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(EVERY.total_seconds()):
                await self._stopped.wait()

    async def _follow(self) -> None:
        one = await self._begin()
        while not self._stopped.is_set():
            if not await in_thread(one.round):
                await self._pause()

    async def _begin(self) -> _Session:
        async with self._engine.connect() as conn:
            redactor = await read_redactor(conn)
            await conn.commit()
            last = await rollouts.read_last(conn, self._cluster)
            known = await read_positions(conn, self._cluster)
            heard = (await reach.read(conn, self._cluster)).get(AUDIT_LOG)
        known = {name: one for name, one in known.items() if name.startswith(BY_FIRST_LINE)}
        intake = Intake(self._cluster, redactor, now=self._clock())
        learning = Learning(self._engine, intake, tally=self.tally, rollouts=last, goes_on=True)
        own = [one for one in known.values() if one.path == str(self._path)]
        return _Session(self._path, learning, known, self._clock, heard=heard if own else None)


class _Session:
    """What is in memory between two failures. ``heard``: up to when the file was read before, None where it was not."""

    def __init__(
        self,
        path: Path,
        learning: Learning,
        known: dict[str, Position],
        clock: Callable[[], datetime],
        *,
        heard: datetime | None,
    ) -> None:
        self._path, self._learning, self._known, self._clock = path, learning, known, clock
        self._heard = heard
        self._last = ""
        """What the file was known by that was read from last."""

    def round(self) -> bool:
        """Learn what came to the files, LINES or BYTES of it, and record it; whether there was anything.

        Raises the store's errors and OSError.
        """
        self._learning.intake.move_to(self._clock())
        found = list(found_beside(self._path))
        self._miss(found)
        for file in found:
            position = self._known.get(file.name) or Position(file.name, str(self._path), 0, 0, done=False)
            if file.size > position.offset and (after := self._read(file, position)) != position:
                self._record(after)
                return True
        return False

    def _miss(self, found: list[_File]) -> None:
        """A file that was being read, and is not there any more, may have told more than was read of it."""
        names = {file.name for file in found}
        is_gone = self._last not in names if self._last else not (names & self._known.keys())
        if found and self._heard and is_gone:
            why = f"audit log: what {self._path} held was rotated away before all of it was read"
            self._learning.intake.blind(self._heard, self._clock(), why)
            self._last, self._heard = "", None

    def _read(self, file: _File, position: Position) -> Position:
        """Tell the intake what follows in a file; the position behind it: of a last line, once it is whole."""
        intake, after, size = self._learning.intake, position, 0
        with file.path.open("rb") as opened:
            if _name_of(opened.readline(MAX_LINE)) != file.name:  # rotated just now
                return position
            opened.seek(position.offset)
            for line in lines(opened, first_line=position.lines + 1):
                if not line.whole:
                    break
                self._tell(intake, line)
                after = replace(after, offset=position.offset + line.end, lines=line.number)
                size += len(line.data)
                if after.lines - position.lines >= LINES or size >= BYTES:
                    break
        self._last = file.name
        return after

    def _tell(self, intake: Intake, line: Line) -> None:
        intake.tally.lines += 1
        try:
            if line.too_long:
                raise ValueError("longer than 16 MiB, as no event is")
            event = audit.decode(line.data)
            problem = intake.check_times(event)
            if problem:
                intake.reject(str(self._path), line, problem)
                return
            intake.audit_event(event)
            intake.tally.used += 1
            self._heard = max(self._heard or event.stageTimestamp, event.stageTimestamp)
        except UNUSABLE as error:
            problem, column = explain(error, line.data, expected=EXPECTED)
            intake.reject(str(self._path), line, problem, column=column)

    def _record(self, position: Position) -> None:
        self._learning.learner.count(self._learning.learn_read())
        batch = self._learning.taken((position,))
        read_to = ((AUDIT_LOG, self._heard),) if self._heard else ()
        self._learning.record(replace(batch, read_to=read_to))
        self._learning.recorded()
        self._known[position.file_hash] = position


def found_beside(path: Path) -> Iterator[_File]:
    """A file and what it was rotated to, the oldest first; those that are packed, or have no whole line yet, are not
    among them. One that was copied, and not emptied yet, is there once."""
    beside = [*path.parent.glob(f"{path.stem}-*{path.suffix}"), *path.parent.glob(f"{path.name}.*")]
    rotated = [one for one in beside if one.suffix not in PACKED and one.is_file()]
    found = dict[str, _File]()
    for one in (*sorted(rotated, key=_written_at), path):
        try:
            with one.open("rb") as opened:
                name = _name_of(opened.readline(MAX_LINE))
                size = opened.seek(0, 2)
        except FileNotFoundError:
            continue  # renamed just now: it is there at the next look
        if name and (name not in found or found[name].size < size):
            found[name] = _File(one, name, size)
    yield from found.values()


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _name_of(first_line: bytes) -> str:
    """What a file is known by that begins so; "" where that line is not whole."""
    return BY_FIRST_LINE + sha256(first_line).hexdigest() if first_line.endswith(b"\n") else ""
