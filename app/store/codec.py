"""How values lie in PostgreSQL: canonical JSON, zstd, and text that the server will take.

PostgreSQL refuses U+0000 and lone surrogates in text and jsonb, and orjson refuses integers beyond 64 bits:
anybody who may write an annotation can send them, so they are replaced here and never stop a batch.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import orjson
import psycopg
import zstandard
from psycopg.pq import Format
from psycopg.types.json import set_json_dumps, set_json_loads

from app.core.model import FieldDiff, Object, Path, Segment

_UNTAKEABLE = re.compile("[\x00\ud800-\udfff]")
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AMBIGUOUS = re.compile("[\t=]")
_OP = {"add": "+", "remove": "-", "replace": "="}
_OPS = {short: op for op, short in _OP.items()}
MAX_UNPACKED = 64 * 1024 * 1024

loads = orjson.loads


def clean(text: str) -> str:
    """Text as PostgreSQL takes it: U+0000 and lone surrogates become U+FFFD."""
    return text if text.isascii() and "\x00" not in text else _UNTAKEABLE.sub("\ufffd", text)


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): _scrub(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scrub(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 10**300 else str(value)[:40]
    return value


def dumps(value: Any) -> bytes:
    """Canonical JSON (sorted keys, no spaces) that jsonb takes; equal values give equal bytes."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, TypeError):
        return orjson.dumps(_scrub(value), option=orjson.OPT_SORT_KEYS)
    if b"\\u0000" in text:
        return orjson.dumps(_scrub(value), option=orjson.OPT_SORT_KEYS)
    return text


def jsonb_text(value: Any) -> str:
    """``dumps`` as text, as SQLAlchemy wants it."""
    return dumps(value).decode()


def jsonb(value: Any) -> bytes:
    """A value of a jsonb column as binary COPY takes it: the version of the format, 1, and the text (jsonb_recv in
    PostgreSQL's jsonb.c). psycopg's own way costs as much again as making the text."""
    return b"\x01" + dumps(value)


def int_array(numbers: Iterable[int]) -> str:
    """Whole numbers as PostgreSQL reads an array of them: of a list psycopg looks at each, as it may be anything."""
    return f"{{{','.join(map(str, numbers))}}}"


def id_array(ids: Iterable[str]) -> str:
    """The same of ids of our own, which have nothing in them that would need quotes."""
    return f"{{{','.join(ids)}}}"


def packed_id(text: str) -> bytes:
    """An audit ID: a UUID as its sixteen bytes behind a zero, what else somebody sent as one as it is."""
    return b"\0" + UUID(text).bytes if _UUID.fullmatch(text) else clean(text).encode()


def unpacked_id(stored: bytes) -> str:
    """The inverse of packed_id."""
    if stored[:1] != b"\0":
        return stored.decode()
    digits = stored[1:].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class _Zstd(threading.local):
    """Each thread's own: of one, no two threads may use what it has at the same time
    (https://python-zstandard.readthedocs.io/en/latest/concepts.html), and rankings are read in one of their own."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=3, write_content_size=True).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_zstd = _Zstd()


def pack(raw: bytes) -> bytes:
    """zstd, level 3: a batch of states costs 20 µs a piece and takes a sixth of the room."""
    return _zstd.compress(raw)


def unpack(packed: bytes) -> bytes:
    """The inverse of pack."""
    return _zstd.decompress(packed, max_output_size=MAX_UNPACKED)


def pack_state(state: Object | None) -> bytes | None:
    """An object's state as stored in ``objects.state``."""
    return None if state is None else pack(dumps(state))


def unpack_state(packed: bytes | None) -> Object | None:
    """The inverse of pack_state."""
    if packed is None:
        return None
    state: Object = loads(unpack(packed))
    return state


def _written(path: Path) -> str | list[Any]:
    """A path as one string, steps apart by tabs and merge keys as ``[name=app``: a third of what a list takes.

    A path that could be misread so (an index, a tab, a strange merge key) stays a list.
    """
    steps = []
    for step in path:
        if isinstance(step, tuple) and len(step) == 1 and not _AMBIGUOUS.search(step[0][0] + step[0][1]):
            steps.append(f"[{step[0][0]}={step[0][1]}")
        elif isinstance(step, str) and "\t" not in step and not step.startswith("["):
            steps.append(step)
        else:
            return list(path)
    return "\t".join(steps) if steps else []


def _read(written: str | list[Any]) -> Path:
    if isinstance(written, str):
        return _steps(written)
    return tuple(tuple((name, value) for name, value in step) if isinstance(step, list) else step for step in written)


@lru_cache(maxsize=10_000)  # the same few fields are written all the time
def _steps(written: str) -> Path:
    return tuple(map(_step, written.split("\t")))


def _step(step: str) -> Segment:
    if not step.startswith("["):
        return step
    name, _, value = step[1:].partition("=")
    return ((name, value),)


def diff_rows(diffs: tuple[FieldDiff, ...]) -> list[list[Any]]:
    """Field diffs as ``changes.diff`` holds them: ``[[path, op, old, new], ...]``, short for jsonb's sake."""
    return [[_written(diff.path), _OP[diff.op], diff.old, diff.new] for diff in diffs]


def diffs_of(rows: list[list[Any]]) -> tuple[FieldDiff, ...]:
    """The inverse of diff_rows."""
    return tuple(FieldDiff(_read(path), _OPS[op], old, new) for path, op, old, new in rows)


def utc(seconds: float) -> datetime:
    """Epoch seconds as the ``datetime`` that every noun holds."""
    return datetime.fromtimestamp(seconds, UTC)


class _Binary(psycopg.AsyncCursor[Any]):
    """Values come as the server holds them: as text, payloads take twice the room, and time on both sides to be hex."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.format = Format.BINARY


def adapt(connection: psycopg.AsyncConnection[Any]) -> None:
    """Teaches one connection our JSON, and to take values in binary."""
    connection.cursor_factory = _Binary
    set_json_dumps(dumps, connection)
    set_json_loads(loads, connection)
