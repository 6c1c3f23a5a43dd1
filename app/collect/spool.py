"""Records on disk, in the order in which they came, until they are recorded in PostgreSQL.

A folder of segments, each a file that is named by the position of its first byte, as Kafka's are. Positions go on
through all of them and never back. Every method may be called from any thread, of the one process that has the folder.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Self

import structlog

from app.collect.seal import NONCE, Opening, Sealing, sealed
from app.collect.segments import (
    HEADER,
    INCOMING,
    Frame,
    Segment,
    SpoolFullError,
    crc_of_length,
    disk_full_in_words,
    framed,
    frames,
    identity_of,
    segments_of,
    sync_folder,
    take,
    write_all,
)

SEGMENT_BYTES = 64 << 20
"""A segment that has reached this many bytes is followed by another; what is recorded is deleted by whole segments."""
PARTS = 8
"""A spool that may hold little has at least so many segments, so that room comes back in parts."""
CLOSED = -1
"""No file is open."""

log = structlog.get_logger()


class Spool:
    """One folder of segments, which this process alone has from now on. Raises SpoolTakenError, and OSError.

    ``most_bytes`` bounds what lies in it. What a kill or a power loss left of a frame is cut off. ``identity`` is a
    random name of the folder: a position means nothing in another one. ``key``, of 32 bytes, seals what is in it.
    """

    def __init__(self, folder: Path, *, most_bytes: int, key: bytes) -> None:
        self.folder, self.most_bytes, self.key = folder, most_bytes, key
        self.on_growth: Callable[[], None] = lambda: None
        """Called after each append, in its thread."""
        self._segment_bytes = max(1, min(SEGMENT_BYTES, most_bytes // PARTS))
        self._lock, self._syncing = threading.Lock(), threading.Lock()
        self._file = CLOSED
        self._broken = ""
        self._incoming = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._taken = take(folder)
        try:
            self.identity = identity_of(folder)
            for left in folder.glob(f"*{INCOMING}"):
                left.unlink()
            self._segments = segments_of(folder)
        except BaseException:
            self._taken.close()
            raise
        self._written = self._synced = self._segments[-1].end if self._segments else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Sync and give the folder up."""
        with self._lock:
            try:
                self._end_segment()
            finally:
                self._taken.close()

    @property
    def begin(self) -> int:
        """The position of the oldest byte that is kept."""
        with self._lock:
            return self._segments[0].start if self._segments else self._written

    @property
    def end(self) -> int:
        """The position after the last record, durable or not."""
        return self._written

    @property
    def size(self) -> int:
        """Bytes that lie in the folder, and those of streams that are under way."""
        with self._lock:
            return self._size()

    def _size(self) -> int:
        return self._incoming + (self._written - self._segments[0].start if self._segments else 0)

    # -- appended

    def check_room(self, count: int = 0) -> None:
        """Raises SpoolFullError where ``count`` bytes more would be too many."""
        with self._lock:
            self._check_room(count)

    def _check_room(self, count: int) -> None:
        if self._size() + count >= self.most_bytes:
            raise SpoolFullError(f"the spool holds {self._size():,} of {self.most_bytes:,} bytes: {self.folder}")

    def append(self, payload: bytes, *, durable: bool) -> int:
        """Add a record; the position after it. ``durable`` waits until it is on the disk, together with others that do.

        Raises SpoolFullError, and OSError where the disk fails.
        """
        end = self.append_all((payload,))
        if durable:
            self.sync(end)
        return end

    def append_all(self, payloads: Iterable[bytes]) -> int:
        """Add records, all or none of them, in one write; the position after them. They may not be on the disk yet.

        Raises as ``append``.
        """
        whole = b"".join(map(framed, sealed(self.key, list(payloads))))
        with self._lock:
            self._check_room(len(whole))
            with disk_full_in_words(self.folder):
                self._write(whole)
            end = self._written
        self.on_growth()
        return end

    def _write(self, whole: bytes) -> None:
        self._check_disk()
        if self._file == CLOSED or self._written - self._segments[-1].start >= self._segment_bytes:
            self._new_segment()
        at = self._written - self._segments[-1].start
        try:
            write_all(self._file, whole, at)
        except OSError:
            with self._fatal():
                os.ftruncate(self._file, at)
            raise
        self._written += len(whole)
        self._segments[-1].end = self._written

    def sync(self, position: int | None = None) -> None:
        """Wait until everything before ``position`` (before the end, where none is given) is on the disk.

        Who waits while another syncs is served by the next sync, which is one for all of them. Raises OSError.
        """
        wanted = self._written if position is None else position
        with self._syncing:
            with self._lock:
                self._check_disk()
                if self._synced >= wanted:
                    return
                target, file = self._written, os.dup(self._file)  # a copy: others may end the segment meanwhile
            try:
                with self._fatal():
                    os.fdatasync(file)
            finally:
                os.close(file)
            with self._lock:
                self._synced = max(self._synced, target)

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        """After a sync that failed the kernel may call lost pages clean: nothing is known of the disk any more."""
        try:
            yield
        except OSError as error:
            self._broken = f"{error.strerror}: {self.folder}; it is opened again when Foreshock is started again"
            raise

    def _check_disk(self) -> None:
        if self._broken:
            raise OSError(errno.EIO, self._broken)

    def _new_segment(self) -> None:
        self._end_segment()
        path = self.folder / f"{self._written:020}.log"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            sync_folder(self.folder)
        except OSError:
            os.close(file)
            raise
        self._file = file
        if not self._segments or self._segments[-1].start != self._written:
            self._segments.append(Segment(path, self._written, self._written))

    def _end_segment(self) -> None:
        """Close the segment that is written, on the disk as it is then."""
        if self._file == CLOSED:
            return
        with self._fatal():
            os.fdatasync(self._file)
        os.close(self._file)
        self._file, self._synced = CLOSED, self._written

    # -- streamed

    def incoming(self) -> Incoming:
        """A record that comes in parts, and is never in memory as a whole. Raises SpoolFullError and OSError."""
        self.check_room()
        with disk_full_in_words(self.folder):
            return Incoming(self, self.folder / f"{token_hex(8)}{INCOMING}")

    def reserve(self, count: int) -> None:
        """Count bytes of a stream that is under way, or uncount them. Raises SpoolFullError."""
        with self._lock:
            if count > 0:
                self._check_room(count)
            self._incoming += count

    def adopt(self, path: Path, size: int) -> int:
        """Make a file that is on the disk, of one frame, the next segment; the position after it."""
        with self._lock:
            self._check_disk()
            self._end_segment()
            start = self._written
            named = self.folder / f"{start:020}.log"
            path.replace(named)
            sync_folder(self.folder)
            if self._segments and self._segments[-1].start == start:  # an empty one, which kept no more than its place
                self._segments.pop()
            self._written = self._synced = start + size
            self._segments.append(Segment(named, start, self._written))
            return self._written

    # -- read

    def read(self, position: int) -> Generator[Frame]:
        """The records from ``position`` on (from the oldest that is kept, at the least), as many as there are now.

        All that is read is on the disk first, so that who remembers a position finds it again after a power loss. What
        lies behind a damaged frame is passed over to the next segment, which is logged. Raises OSError.
        """
        self.sync()
        with self._lock:
            found = [
                Segment(one.path, one.start, min(one.end, self._synced))
                for one in self._segments
                if one.end > position and one.start < self._synced
            ]
        opening = Opening(self.key)
        for segment in found:
            at = max(position, segment.start)
            if at >= segment.end:
                continue
            for frame in frames(segment.path, start=segment.start, position=at, end=segment.end):
                at = frame.after
                yield Frame(at, opening.opened(frame.payload) if frame.payload is not None else None)
            if at < segment.end:
                log.error("the spool is damaged", segment=str(segment.path), lost_bytes=segment.end - at, position=at)
                yield Frame(segment.end, None)

    def trim(self, position: int) -> None:
        """Delete what lies before ``position``, by whole segments. The last stays, empty: its name holds the end."""
        with self._lock:
            self._unlink(position)  # first: a disk that is full has no room for another file before
            if position >= self._written and self._segments and self._segments[-1].start < self._written:
                self._new_segment()
                self._unlink(position)

    def _unlink(self, position: int) -> None:
        while len(self._segments) > 1 and self._segments[0].end <= position:
            self._segments.pop(0).path.unlink()


class Incoming:
    """A record that is being streamed into a file of its own: ``write`` its parts, then ``finish``; or ``discard``."""

    def __init__(self, spool: Spool, path: Path) -> None:
        self._spool, self._path = spool, path
        self._size = 0  # of the file: a header, a nonce, what came
        self._sealing = Sealing(spool.key)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            self._put(bytes(HEADER.size) + self._sealing.nonce)
        except BaseException:
            self.discard()
            raise

    def write(self, part: bytes) -> None:
        """Add a part. Raises SpoolFullError and OSError."""
        self._put(self._sealing.add(part))

    def _put(self, part: bytes) -> None:
        self._spool.reserve(len(part))
        at = self._size
        self._size += len(part)
        with disk_full_in_words(self._spool.folder):
            write_all(self._file, part, at)

    def finish(self, head: bytes = b"") -> int:
        """Put the record at the end of the spool, durable; the position after it. Raises SpoolFullError and OSError.

        ``head`` is written over its first bytes, which may say how long it has become.
        """
        try:
            with disk_full_in_words(self._spool.folder):
                write_all(self._file, self._sealing.first(head), HEADER.size + NONCE)
                length = self._size - HEADER.size
                write_all(self._file, HEADER.pack(length, self._crc(length)), 0)
                os.fsync(self._file)
                end = self._spool.adopt(self._path, self._size)
        finally:
            self.discard()
        self._spool.on_growth()
        return end

    def _crc(self, length: int) -> int:
        crc, at = crc_of_length(length), HEADER.size
        while part := os.pread(self._file, 1 << 20, at):
            crc, at = zlib.crc32(part, crc), at + len(part)
        return crc

    def discard(self) -> None:
        """Forget what came, unless it is finished. Harmless to call again."""
        if self._file != CLOSED:
            os.close(self._file)
            self._file = CLOSED
            self._path.unlink(missing_ok=True)
            self._spool.reserve(-self._size)
