"""Input files as streams of lines: plain, gzip or zstd, or standard input, with their position and identity."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import file_digest
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from app.collect.unpack import CHUNK, GZIP, ZSTD, DamagedError, Unpacked, gunzip, unzstd
from app.failures import Expected

__all__ = ["CHUNK", "DamagedError", "Line", "Stream", "UnreadableError", "identity", "lines", "open_stream"]

BOM = b"\xef\xbb\xbf"
STDIN_FILENO = 0
START = 1 << 16
"""Bytes that tell what an input is."""
MAX_LINE = 16 << 20
"""A longer line cannot be an object of Kubernetes (etcd refuses 1.5 MiB): it is refused, not read into memory."""


class UnreadableError(Expected):
    """A path that cannot be imported; the message says why and what to do."""


class Stream(Protocol):
    """Bytes to read and close: what of a file object is used here. ``tell`` counts the file's bytes, packed or not."""

    def read(self, size: int, /) -> bytes: ...
    def tell(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line without its end, its number, and where the next one begins (bytes of decompressed content).

    ``whole`` is False for a last line without a newline: it may still be being written. A document of JSON may take
    more or less than a line (collect/documents.py): ``further`` lines after its first, -1 where another follows on its
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


def read_start() -> bytes:
    """The first START bytes of standard input, or all there are: what is read here open_stream must be given."""
    with FileIO(STDIN_FILENO, closefd=False) as opened:
        start = b""
        while len(start) < START and (more := opened.read(START - len(start))):
            start += more
    return start


def open_stream(path: str, start: bytes = b"") -> Stream:
    """Open a path, or "-" for standard input of which ``start`` was read, decompressed by what its first bytes are.

    Reading gives at least one byte until the end, and raises DamagedError behind all that can be decompressed.
    """
    return unpacked(BufferedReader(_StandardInput(start), CHUNK) if path == "-" else _open(path))


def unpacked(opened: BufferedReader) -> Stream:
    """What is in a file, where it is compressed."""
    magic = opened.peek(4)[:4]
    if magic.startswith(GZIP):
        return Unpacked(opened, gunzip)
    if magic == ZSTD:
        return Unpacked(opened, unzstd)
    return opened


def _open(path: str) -> BufferedReader:
    file = Path(path)
    if not file.exists():
        raise UnreadableError(f"{path}: no such file or folder")
    if file.is_dir():
        raise UnreadableError(f"{path}: is a folder; name the files in it, or a recording's folder")
    try:
        return file.open("rb")
    except PermissionError:
        raise UnreadableError(f"{path}: not readable by this user") from None


def identity(path: str) -> str:
    """What makes two files the same: a hash of all their bytes as they are stored.

    SHA-256, for processors have instructions for it: a GB a second, a twentieth of the time that a log's import takes.
    A file that grew is another file: its lines are recorded again without harm, and its counts under their own
    position.
    """
    with Path(path).open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def written_at(path: str, now: datetime) -> datetime:
    """When a file was last written; of standard input, now."""
    if path == "-":
        return now
    return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)


def _skip(stream: Stream, size: int) -> int:
    """Read past ``size`` bytes, or to the end; how many they were."""
    passed = 0
    while passed < size and (chunk := stream.read(min(CHUNK, size - passed))):
        passed += len(chunk)
    return passed


def lines(stream: Stream, *, skip_to: int = 0, first_line: int = 1) -> Iterator[Line]:
    """The lines of a stream from byte ``skip_to`` on, which is the start of line ``first_line``.

    Empty lines are passed over. Raises DamagedError where compressed data is broken: whole lines before it were given.
    """
    position = _skip(stream, skip_to)
    number, rest = first_line, b""
    at_start = skip_to == 0
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
