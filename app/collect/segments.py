"""The files of a spool: segments of frames, how far they are whole, and who has their folder.

A frame is the payload's length and a crc32, four bytes each, then the payload.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, NamedTuple

import structlog

from app.failures import Exit, Expected

INCOMING = ".incoming"
"""How a file ends that is being written and counts for nothing yet."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_IDENTITY = "id"
_LOCK = "lock"
_NAME = re.compile(r"\d{20}\.log")

log = structlog.get_logger()

READ = 1 << 16
"""Bytes that are asked of the disk at once."""

HEADER = struct.Struct(">II")
"""Of a frame: the bytes of its payload, and the crc32 of that number and of them: zeros are no frame."""


class SpoolFullError(Expected):
    """The spool, or its disk, has no room: what it holds must be recorded first."""

    code = Exit.NOT_NOW


class SpoolTakenError(Expected):
    """Another process has this folder."""

    code = Exit.NOT_NOW


@dataclass(slots=True)
class Segment:
    """A file of frames, and the positions of its first byte and behind its last."""

    path: Path
    start: int
    end: int


class Frame(NamedTuple):
    """A record and the position after it; ``payload`` is None where the spool is damaged up to there."""

    after: int
    payload: bytes | None


def crc_of_length(length: int) -> int:
    """The crc32 to begin with for a payload of that length."""
    return zlib.crc32(length.to_bytes(4))


def framed(payload: bytes) -> bytes:
    """A payload as a frame."""
    return HEADER.pack(len(payload), zlib.crc32(payload, crc_of_length(len(payload)))) + payload


def write_all(file: int, data: bytes, at: int) -> None:
    """Write all of it, where a signal or a disk that gets full lets the system write a part. Raises OSError."""
    left = memoryview(data)
    while left:
        count = os.pwrite(file, left, at)
        left, at = left[count:], at + count


def frames(path: Path, *, start: int, position: int, end: int) -> Iterator[Frame]:
    """The frames of the segment that begins at ``start``, from ``position`` to ``end``, up to one that is not."""
    with path.open("rb", buffering=READ) as file:
        file.seek(position - start)
        while position + HEADER.size <= end:
            length, crc = HEADER.unpack(file.read(HEADER.size))
            position += HEADER.size + length
            if position > end:
                return
            payload = file.read(length)
            if zlib.crc32(payload, crc_of_length(length)) != crc:
                return
            yield Frame(position, payload)


def whole_bytes(path: Path, start: int) -> int:
    """How many bytes of a segment are whole frames."""
    at = start
    for frame in frames(path, start=start, position=start, end=start + path.stat().st_size):
        at = frame.after
    return at - start


def take(folder: Path) -> BinaryIO:
    """Hold a lock on the folder for as long as the file that is answered is open."""
    file = (folder / _LOCK).open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise SpoolTakenError(f"another process has the spool {folder}: end it, or give this one its own") from None
    return file


def identity_of(folder: Path) -> str:
    """The random name of a folder, made at its first use."""
    path = folder / _IDENTITY
    if path.exists():
        return path.read_text()
    named = token_hex(16)
    put(path, named)
    return named


def put(path: Path, text: str) -> None:
    """Writes a small file, which a kill leaves whole or not at all: beside, and then in its place."""
    made = path.with_name(f"{path.name}{INCOMING}")
    with made.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    sync_folder(path.parent)


def segments_of(folder: Path) -> list[Segment]:
    """The segments of a folder; what is not whole at the end of the last one is cut off."""
    paths = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    found = [Segment(path, int(path.stem), int(path.stem) + path.stat().st_size) for path in paths]
    if found:
        last = found[-1]
        whole = last.start + whole_bytes(last.path, last.start)
        with last.path.open("rb+") as file:
            if whole < last.end:
                log.warning("cut off what a kill left of a record", segment=str(last.path), bytes=last.end - whole)
                file.truncate(whole - last.start)
            os.fsync(file.fileno())  # what was written and not synced before a kill is durable from here on
        last.end = whole
        sync_folder(folder)
    return found


def sync_folder(folder: Path) -> None:
    """Make new and removed names durable: the files' own sync does not."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def disk_full_in_words(folder: Path) -> Iterator[None]:
    """Turns a full disk into a SpoolFullError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SpoolFullError(f"the disk of {folder} is full") from error
        raise
