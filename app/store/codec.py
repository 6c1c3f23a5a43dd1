"""How values lie in PostgreSQL: canonical JSON, zstd, and text that the server will take.

PostgreSQL refuses U+0000 and lone surrogates in text and jsonb, and orjson refuses integers beyond 64 bits:
anybody who may write an annotation can send them, so they are replaced here and never stop a batch.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import orjson
import psycopg
import zstandard
from psycopg.types.json import set_json_dumps, set_json_loads

from app.core.model import FieldDiff, Json, Object, Path, Segment

_UNTAKEABLE = re.compile("[\x00\ud800-\udfff]")
_compress = zstandard.ZstdCompressor(level=3, write_content_size=True)
_decompress = zstandard.ZstdDecompressor()
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


def pack(raw: bytes) -> bytes:
    """zstd, level 3: a batch of states costs 20 µs a piece and takes a sixth of the room."""
    return _compress.compress(raw)


def unpack(packed: bytes) -> bytes:
    """The inverse of pack."""
    return _decompress.decompress(packed, max_output_size=MAX_UNPACKED)


def pack_state(state: Object | None) -> bytes | None:
    """An object's state as stored in ``objects.state``."""
    return None if state is None else pack(dumps(state))


def unpack_state(packed: bytes | None) -> Object | None:
    """The inverse of pack_state."""
    if packed is None:
        return None
    state: Object = loads(unpack(packed))
    return state


def diff_rows(diffs: tuple[FieldDiff, ...]) -> list[list[Any]]:
    """Field diffs as ``changes.diff`` holds them: ``[[path, op, old, new], ...]``; a merge key is a list of pairs."""
    return [[list(diff.path), diff.op, diff.old, diff.new] for diff in diffs]


def _path(steps: list[Any]) -> Path:
    def segment(step: Any) -> Segment:
        return tuple((name, value) for name, value in step) if isinstance(step, list) else step

    return tuple(segment(step) for step in steps)


def diffs_of(rows: list[list[Json]]) -> tuple[FieldDiff, ...]:
    """The inverse of diff_rows."""
    return tuple(FieldDiff(_path(path), str(op), old, new) for path, op, old, new in rows)  # type: ignore[arg-type]


def utc(seconds: float) -> datetime:
    """Epoch seconds as the ``datetime`` that every noun holds."""
    return datetime.fromtimestamp(seconds, UTC)


def adapt(connection: psycopg.AsyncConnection[Any]) -> None:
    """Teaches one connection our JSON."""
    set_json_dumps(dumps, connection)
    set_json_loads(loads, connection)
