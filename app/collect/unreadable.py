"""Which object a line is of that cannot be decoded: the API server stores what is too deep for most JSON parsers."""

from __future__ import annotations

import re

import msgspec

Place = tuple[str, str, str]
"""Of an object its namespace ("" where it is in none), its name and its uid."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]')
_METADATA = b'"metadata"'
_WANTED = (b'"namespace"', b'"name"', b'"uid"')


def place_of(line: bytes) -> Place | None:
    """The place of the object in an event, or of a bare one; None where its metadata do not say it.

    Brackets are counted, not remembered: managedFields, which may be as deep as the object, stand before the name.
    """
    found: dict[bytes, str] = {}
    depth, within, key = 0, 0, b""
    for token in _TOKEN.finditer(line):
        what = token[0]
        if what in b"[{":
            depth += 1
            if key == _METADATA and not within:
                within = depth
        elif what in b"]}":
            if depth == within:
                break
            depth -= 1
        elif line.startswith(b":", token.end()):
            key = what
            continue
        elif depth == within and key in _WANTED:
            try:
                found[key] = msgspec.json.decode(what, type=str)
            except msgspec.DecodeError:
                return None
        key = b""
    namespace, name, uid = (found.get(one, "") for one in _WANTED)
    return (namespace, name, uid) if name and uid else None
