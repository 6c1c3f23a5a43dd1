"""Input files as streams of lines: plain, gzip or zstd, or standard input, with their position and identity."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from app.collect.unpack import CHUNK, GZIP, ZSTD, DamagedError, Unpacked, gunzip, unzstd
from app.failures import Exit, Expected

__all__ = [
    "CHUNK",
    "DamagedError",
    "Identity",
    "Inode",
    "Line",
    "Readable",
    "ReplacedError",
    "Stream",
    "UnreadableError",
    "identity",
    "lines",
    "open_stream",
]

BOM = b"\xef\xbb\xbf"
STDIN_FILENO = 0
Inode = tuple[int, int]
"""What a file stays, however it is renamed: its device and its number there."""
START = 1 << 16
"""Bytes that tell what an input is."""
MAX_LINE = 16 << 20
"""A longer line cannot be an object of Kubernetes (etcd refuses 1.5 MiB): it is refused, not read into memory."""


class UnreadableError(Expected):
    """A path that cannot be imported; the message says why and what to do."""


class ReplacedError(UnreadableError):
    """A path has another file than the one that was hashed: a log was rotated just then. Import again."""

    code = Exit.NOT_NOW


class Readable(Protocol):
    """Bytes to read: at least one and at most ``size``, none at the end."""

    def read(self, size: int, /) -> bytes: ...


class Stream(Readable, Protocol):
    """Bytes to read and close: what of a file object is used here. ``tell`` counts the file's bytes, packed or not."""

    def tell(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line without its end, its number, and where the next one begins (bytes of decompressed content).

    ``whole`` is False where the input ends within: of a last line without a newline, or of a document that goes on in
    lines which are not there. It may still be being written. A document of JSON may take more or less than a line
    (collect/documents.py): ``further`` lines after its first, -1 where another follows on its
    own; it then begins behind so many bytes of its line. A Struct, since one is made for every line of a log.
    """

    number: int
    data: bytes
    end: int
    whole: bool = True
    too_long: bool = False
    further: int = 0
    begins: int = 0


class _StandardInput(RawIOBase):
    """What was read of standard input, and then the rest of it."""

    def __init__(self, start: bytes) -> None:
        self._start = start
        self._rest = FileIO(STDIN_FILENO, closefd=False)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if not self._start:
            return self._rest.readinto(buffer)
        size = min(len(buffer), len(self._start))
        buffer[:size], self._start = self._start[:size], self._start[size:]
        return size


def read_start(start: bytes = b"", *, size: int = START) -> bytes:
    """The first ``size`` bytes of standard input, of which ``start`` was read, or all there are: what is read here
    open_stream must be given.
    """
    with FileIO(STDIN_FILENO, closefd=False) as opened:
        while len(start) < size and (more := opened.read(size - len(start))):
            start += more
    return start


class _Begun(FileIO):
    """The first ``size`` bytes of a file: what is written behind them meanwhile is not read."""

    def __init__(self, path: Path, size: int, inode: Inode | None) -> None:
        super().__init__(path)
        found = os.fstat(self.fileno())
        if found.st_size < size or (inode and inode != _inode(found)):
            self.close()
            raise ReplacedError(f"{path}: another file took its place, as when a log is rotated: import again")
        self._size = size

    def readinto(self, buffer: Any, /) -> int:
        return super().readinto(memoryview(buffer)[: max(0, self._size - self.tell())])


def open_stream(path: str, start: bytes = b"", *, size: int | None = None, inode: Inode | None = None) -> Stream:
    """Open a path, or "-" for standard input of which ``start`` was read, decompressed by what its first bytes are.

    Of a path no more than its first ``size`` bytes are read, and only where it still has the file that had them: its
    ``inode`` tells. Raises UnreadableError, ReplacedError. Reading gives at least one byte until the end, and raises
    DamagedError behind all that can be decompressed.
    """
    return unpacked(BufferedReader(_StandardInput(start), CHUNK) if path == "-" else _open(path, size, inode))


def unpacked(opened: BufferedReader) -> Stream:
    """What is in a file, where it is compressed."""
    magic = opened.peek(4)[:4]
    if magic.startswith(GZIP):
        return Unpacked(opened, gunzip)
    if magic == ZSTD:
        return Unpacked(opened, unzstd)
    return opened


def _open(path: str, size: int | None, inode: Inode | None) -> BufferedReader:
    file = Path(path)
    if not file.exists():
        raise UnreadableError(f"{path}: no such file or folder")
    if file.is_dir():
        raise UnreadableError(f"{path}: is a folder; name the files in it, or a recording's folder")
    try:
        return file.open("rb") if size is None else BufferedReader(_Begun(file, size, inode), CHUNK)
    except PermissionError:
        raise UnreadableError(f"{path}: not readable by this user") from None


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two files the same: a hash of all their bytes as they are stored, and how many these are.

    ``grew_from`` is the longest known file that it begins with, by its hash, or empty: it is that file, and more.
    ``inode`` is where they were read.
    """

    file_hash: str
    size: int
    grew_from: str = ""
    inode: Inode | None = None


def identity(path: str, known: Mapping[int, Collection[str]] | None = None) -> Identity:
    """What a file is; ``known`` are hashes of other files by their size in bytes.

    SHA-256, for processors have instructions for it: a GB a second, a twentieth of the time that a log's import takes.
    All is read once: the hash of what came so far is looked at wherever a known file ended.
    """
    known = known or {}
    ends, digest, size, grew_from = deque(sorted(known)), sha256(), 0, ""
    buffer = memoryview(bytearray(CHUNK))
    with FileIO(path) as opened:
        inode = _inode(os.fstat(opened.fileno()))
        while count := opened.readinto(buffer):
            at = 0
            while ends and ends[0] <= size + count:
                end = ends.popleft()
                digest.update(buffer[at : end - size])
                at = end - size
                grew_from = next((found for found in known[end] if found == digest.hexdigest()), grew_from)
            digest.update(buffer[at:count])
            size += count
    return Identity(digest.hexdigest(), size, grew_from, inode)


def _inode(found: os.stat_result) -> Inode:
    return found.st_dev, found.st_ino


def written_at(path: str, now: datetime) -> datetime:
    """When a file was last written; of standard input, now."""
    if path == "-":
        return now
    return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)


def _skip(stream: Readable, size: int) -> tuple[int, int]:
    """Read past ``size`` bytes, or to the end; how many they were, and how many of them behind the last newline."""
    passed = line = 0
    while passed < size and (chunk := stream.read(min(CHUNK, size - passed))):
        line = passed + newline + 1 if (newline := chunk.rfind(b"\n")) >= 0 else line
        passed += len(chunk)
    return passed, passed - line


def lines(stream: Readable, *, skip_to: int = 0, first_line: int = 1) -> Iterator[Line]:
    """The lines of a stream from byte ``skip_to`` on, which lies in line ``first_line``, mostly at its start.

    Empty lines are passed over. Raises DamagedError where compressed data is broken: whole lines before it were given.
    """
    position, begins = _skip(stream, skip_to)
    found = _split(stream, position, first_line)
    if begins and (first := next(found, None)):
        yield msgspec.structs.replace(first, begins=begins) if first.number == first_line else first
    yield from found


def _split(stream: Readable, position: int, number: int) -> Iterator[Line]:
    rest = b""
    at_start = position == 0
    dropping = False
    while chunk := stream.read(CHUNK):
        if at_start and chunk.startswith(BOM):
            position, chunk = len(BOM), chunk[len(BOM) :]
        at_start = False
        parts = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        rest = parts.pop()
        for part in parts:
            position += len(part) + 1
            if dropping:
                dropping = False
                yield Line(number, b"", position, too_long=True)
            elif part and not part.isspace():
                yield Line(number, part, position)
            number += 1
        if len(rest) > MAX_LINE:
            position += len(rest)
            rest, dropping = b"", True
    if dropping:
        yield Line(number, b"", position + len(rest), whole=False, too_long=True)
    elif rest and not rest.isspace():
        yield Line(number, rest, position + len(rest), whole=False)
