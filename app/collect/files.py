"""Input files as streams of lines: plain, gzip or zstd, or standard input, with their position and identity."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import IO, cast

import msgspec
import zstandard

CHUNK = 1 << 20
BOM = b"\xef\xbb\xbf"
MAX_LINE = 16 << 20
"""A longer line cannot be an object of Kubernetes (etcd refuses 1.5 MiB): it is refused, not read into memory."""


class UnreadableError(Exception):
    """A path that cannot be imported; the message says why and what to do."""


class DamagedError(Exception):
    """Compressed data that ends early or is broken; the lines before it were good."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line without its end, its number, and where the next one begins (bytes of decompressed content).

    ``whole`` is False for a last line without a newline: it may still be being written. A Struct, since one is made
    for every line of a log.
    """

    number: int
    data: bytes
    end: int
    whole: bool = True
    too_long: bool = False


def open_stream(path: str) -> IO[bytes]:
    """Open a path, or "-" for standard input, decompressed by what its first bytes are, not by its name."""
    if path == "-":
        raw: IO[bytes] = sys.stdin.buffer
        return raw
    file = Path(path)
    if not file.exists():
        raise UnreadableError(f"{path}: no such file or folder")
    if file.is_dir():
        raise UnreadableError(f"{path}: is a folder; name the files in it, or a recording's folder")
    try:
        opened = file.open("rb")
    except PermissionError:
        raise UnreadableError(f"{path}: not readable by this user") from None
    magic = opened.read(4)
    opened.seek(0)
    if magic[:2] == b"\x1f\x8b":
        opened.close()
        return cast("IO[bytes]", gzip.open(file, "rb"))
    if magic == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().stream_reader(opened, read_across_frames=True, closefd=True)
    return opened


def identity(path: str) -> str:
    """What makes two files the same: a hash of the stored bytes of the first and last MiB, and the size.

    Hashing a whole 5 GB log would cost more than importing some of it. A file that grew is another file: its
    lines are recorded again without harm, and its counts under their own position.
    """
    file = Path(path)
    size = file.stat().st_size
    digest = blake2b(str(size).encode(), digest_size=16)
    with file.open("rb") as opened:
        digest.update(opened.read(CHUNK))
        if size > 2 * CHUNK:
            opened.seek(-CHUNK, 2)
            digest.update(opened.read(CHUNK))
    return digest.hexdigest()


def _read(stream: IO[bytes], size: int) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise DamagedError(f"the compressed data is damaged or cut short: {error}") from error


def modified_at(path: str) -> datetime:
    """When a file was last written."""
    return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)


def lines(stream: IO[bytes], *, skip_to: int = 0, first_line: int = 1) -> Iterator[Line]:
    """The lines of a stream from byte ``skip_to`` on, which is the start of line ``first_line``.

    Empty lines are passed over. Raises DamagedError where compressed data is broken: what came before holds.
    """
    position = 0
    while position < skip_to:
        skipped = len(_read(stream, min(CHUNK, skip_to - position)))
        if not skipped:
            return
        position += skipped
    number, rest = first_line, b""
    at_start = skip_to == 0
    dropping = False
    while chunk := _read(stream, CHUNK):
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
    if rest and not rest.isspace():
        yield Line(number, rest, position + len(rest), whole=False)
