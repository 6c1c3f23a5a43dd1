"""What lies in a cluster's spool: what was told of it, as it came, in MessagePack."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import groupby

import msgspec

from app.collect.words import Moved, Served, Word


class AuditBody(msgspec.Struct, frozen=True, array_like=True, tag="audit", gc=False):
    """The body of one request of the audit webhook, as the API server sent it; last in its record: see ``head_of``."""

    received_at: datetime
    body: bytes


class AuditLost(msgspec.Struct, frozen=True, array_like=True, tag="audit lost", gc=False):
    """Audit events that are missing, and why: those of a request that could not be taken ``received_at`` that time, or
    ``since`` an earlier one."""

    received_at: datetime
    why: str
    since: datetime | None = None


class Watched(msgspec.Struct, frozen=True, array_like=True, tag="watched", gc=False):
    """One word of the watch of one kind, heard by who followed the cluster under ``epoch`` (store.collectors)."""

    served: Served
    word: Word
    epoch: int


def joined(words: Iterable[Watched]) -> list[Watched]:
    """The same words in fewer records: what was told at once of objects whose desired state is as before is one."""
    found: list[Watched] = []
    for (_, served, epoch, at), together in groupby(words, _together):
        if at is None:
            found += together
            continue
        objects = [one for watched in together if isinstance(watched.word, Moved) for one in watched.word.objects]
        found.append(Watched(served, Moved(at, objects), epoch))
    return found


def _together(one: Watched) -> tuple[type[Word], Served, int, datetime | None]:
    word = one.word
    return type(word), one.served, one.epoch, word.at if isinstance(word, Moved) else None


Told = AuditBody | AuditLost | Watched

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Told] = msgspec.msgpack.Decoder(Told)
_BIN32 = b"\xc6"
_EMPTY = b"\xc4\x00"
"""MessagePack's byte strings: of a length in four bytes, and an empty one."""


def encode(told: Told) -> bytes:
    return _encoder.encode(told)


def decode(payload: bytes) -> Told:
    """Raises msgspec.MsgspecError."""
    return _decoder.decode(payload)


def head_of(received_at: datetime, size: int) -> bytes:
    """What stands before a body of that size in the record of an AuditBody, always of the same length itself."""
    empty = _encoder.encode(AuditBody(received_at, b""))
    return empty.removesuffix(_EMPTY) + _BIN32 + size.to_bytes(4)
