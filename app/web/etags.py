"""Tags of answers (RFC 9110, section 8.8.3): the same tag is the same answer, but for how fresh it is, to the minute.

A cluster that is watched is recorded up to another second each second. A tag of that would never be met again; one
without it would let a client believe that an hour-old answer is as fresh as it says. So the times that move by
themselves count by their minute: how fresh the answer is, what it looked back from, and up to when something that is
still not seen was not seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

_MOVING = ("freshness", "now_from", "before_from", "to", "start")
_SECONDS = re.compile(rb"(\d\d:\d\d):\d\d(?:\.\d+)?")
_NOT_SEEN = re.compile(rb'("(?:to_at|time_end)":"[^":]+:\d\d):[^"]*')
_SENT = re.compile(r'\*|(?:W/)?("[^"]*")')


def basis(answer: Mapping[str, Any]) -> bytes:
    """What the tag of an answer is made of."""
    moving = {name: answer[name] for name in _MOVING if name in answer}
    rest = {name: value for name, value in answer.items() if name not in moving}
    coarse = _SECONDS.sub(rb"\1", orjson.dumps(moving, option=orjson.OPT_SORT_KEYS))
    return coarse + _NOT_SEEN.sub(rb"\1", orjson.dumps(rest))


def basis_of_text(body: bytes) -> bytes:
    """The same of a table whose first line says from when to when it is."""
    head, _, rest = body.partition(b"\n")
    return _SECONDS.sub(rb"\1", head) + b"\n" + rest


def version(answer: Mapping[str, Any]) -> str:
    """What stands for the one thing that an answer tells of, whatever it says of how fresh that is; "" where it tells
    of several. With it its tag begins: what is written by ``If-Match`` is not refused because a minute is over."""
    if "incident" not in answer:
        return ""
    return blake2b(orjson.dumps(answer["incident"], option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def tag(kind: str, made_of: bytes, of: str = "") -> str:
    """A weak tag of one representation, of the version ``of`` a thing."""
    made = blake2b(kind.encode() + made_of, digest_size=12).hexdigest()
    return f'W/"{of}.{made}"' if of else f'W/"{made}"'


def is_of(if_match: str, of: str) -> bool:
    """Whether one of the tags is of this version of a thing."""
    return any(one[0] == "*" or one[1].startswith(f'"{of}.') for one in _SENT.finditer(if_match))


def met(if_none_match: str, found: str) -> bool:
    """Whether a client has what ``found`` is the tag of; compared weakly, as GET is."""
    opaque = found.removeprefix("W/")
    return any(one[0] == "*" or one[1] == opaque for one in _SENT.finditer(if_none_match))
