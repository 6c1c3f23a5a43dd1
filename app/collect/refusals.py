"""Why a line cannot be used, in words: what is wrong, at which column, what to do about it."""

from __future__ import annotations

import json
import re

import msgspec

MAX_DEPTH = 900
"""Levels of nesting that are read for certain: the interpreter's limit of 1,000 calls, less those under way."""
_BYTE = re.compile(r" \(byte (\d+)\)")
_AT = re.compile(r" - at `\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_SPACE = re.compile(r"[ \t\r\n]*")
_json = json.JSONDecoder()


class UnusableError(ValueError):
    """JSON as it should be that says nothing which could be used; the message says why and what to do."""


def explain(error: Exception, data: bytes, *, expected: str) -> tuple[str, int]:
    """The reason, and the column (bytes, from 1) in ``data``, which should have been ``expected`` and raised ``error``.

    A field of the wrong shape is found by the path that the error names; a missing one has the column of its object.
    """
    if isinstance(error, RecursionError):
        return f"nested deeper than the {MAX_DEPTH} levels that are read; no object of Kubernetes is: leave it out", 1
    if isinstance(error, UnusableError):
        return str(error), 1
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        return f"the byte {data[bad.start]:#04x} is not UTF-8, which JSON must be: convert the file", bad.start + 1
    if isinstance(error, msgspec.ValidationError):
        at = _AT.search(str(error))
        return f"no {expected}: {error}; was another file mixed in?", _column(text, at.group(1) if at else "")
    byte = _BYTE.search(str(error))
    said = _BYTE.sub("", str(error))
    advice = "; was it still being written? Import it again once there is more" if "truncated" in said else ""
    return f"not JSON: {said}{advice}", int(byte.group(1)) + 1 if byte else len(data) if advice else 1


def _column(text: str, path: str) -> int:
    """Where the value stands that a path like ``.user.groups[0]`` leads to, or as far as it can be followed."""
    at = _past_space(text, 0)
    try:
        for name, index in _STEP.findall(path):
            at = _member(text, at, name) if name else _item(text, at, int(index))
    except (ValueError, IndexError, RecursionError):
        pass
    return len(text[:at].encode()) + 1


def _member(text: str, at: int, name: str) -> int:
    while True:
        key, at = _json.raw_decode(text, _past_space(text, at + 1))
        at = _past_space(text, _past_space(text, at) + 1)
        if key == name:
            return at
        at = _past_space(text, _json.raw_decode(text, at)[1])


def _item(text: str, at: int, index: int) -> int:
    for _ in range(index):
        at = _past_space(text, _json.raw_decode(text, _past_space(text, at + 1))[1])
    return _past_space(text, at + 1)


def _past_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
