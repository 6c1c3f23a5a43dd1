"""gzip and zstd files as streams that give everything before a damage, and only then say that there is one.

The libraries' own readers either drop what they had already unpacked when they meet damage, or take a cut file for a
whole one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import IO, Self

import zstandard

CHUNK = 1 << 18
"""Bytes of content that are given at once, at most: a small file that unpacks to terabytes fills no memory, and what is
split into lines is still near the processor when they are read (a sixth of the time of splitting and decoding)."""
PACKED = 1 << 16
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_ZSTD_HEADER = 18
"""The longest header of a frame: https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1."""
_RLE = 1


class DamagedError(Exception):
    """Compressed data that ends early or is broken; what was read before it is good."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the compressed data is damaged or cut short ({what}): compare it with its original")


class Unpacked:
    """A compressed file as a stream of what is in it."""

    def __init__(self, packed: IO[bytes], unpack: Callable[[IO[bytes]], Iterator[bytes]]) -> None:
        self._packed = packed
        self._chunks = filter(None, unpack(packed))
        self._rest = b""

    def read(self, size: int) -> bytes:
        """At least one and at most ``size`` bytes, none at the end. Raises DamagedError once all before it is read."""
        found = self._rest or next(self._chunks, b"")
        self._rest = found[size:]
        return found[:size]

    def tell(self) -> int:
        """How far the file itself is read."""
        return self._packed.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._packed.close()


def gunzip(packed: IO[bytes]) -> Iterator[bytes]:
    """The content of a gzip file, member after member (RFC 1952), in chunks of at most CHUNK."""
    data = packed.read(PACKED)
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof:
            before = member.copy()
            try:
                chunk = member.decompress(data, CHUNK)
            except zlib.error as error:
                yield from _until_damage(before, data)
                raise DamagedError(str(error).rpartition(": ")[2]) from None
            if chunk:
                yield chunk
            data = member.unused_data or member.unconsumed_tail or packed.read(PACKED)
            if not data and not member.eof:
                yield member.flush()
                raise DamagedError("it ends before its end mark")
        while data and not (data := data.lstrip(b"\0")):  # tapes pad with zeros
            data = packed.read(PACKED)


def _until_damage(member: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """What comes out before the byte at which it is broken."""
    found = []
    try:
        for at in range(len(data)):
            found.append(member.decompress(data[at : at + 1], CHUNK))  # noqa: PERF401 - what was found must outlive the error
    except zlib.error:
        yield b"".join(found)


def unzstd(packed: IO[bytes]) -> Iterator[bytes]:
    """The content of a zstd file, frame after frame (RFC 8878), block by block: one is at most 128 KiB."""
    while head := packed.read(4):
        if int.from_bytes(head, "little") in _SKIPPABLE:
            _exactly(packed, int.from_bytes(_exactly(packed, 4), "little"))
            continue
        try:
            yield from _frame(packed, head)
        except zstandard.ZstdError as error:
            raise DamagedError(str(error).rpartition(": ")[2]) from None


def _frame(packed: IO[bytes], head: bytes) -> Iterator[bytes]:
    head += _exactly(packed, 1)
    while len(head) < _ZSTD_HEADER and len(head) < zstandard.frame_header_size(head):
        head += _exactly(packed, 1)
    frame = zstandard.ZstdDecompressor().decompressobj()
    yield frame.decompress(head)
    last = False
    while not last:
        block = _exactly(packed, 3)
        header = int.from_bytes(block, "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        yield frame.decompress(block + _exactly(packed, 1 if kind == _RLE else size))
    if not frame.eof:
        yield frame.decompress(_exactly(packed, 4))  # the checksum


def _exactly(packed: IO[bytes], size: int) -> bytes:
    data = packed.read(size)
    if len(data) < size:
        raise DamagedError("it ends before its end mark")
    return data
