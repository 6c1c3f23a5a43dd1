"""Where reading goes on: in a file that was read before, wholly or in part, and in one that has grown since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.collect.entries import Reading
from app.collect.inputs import Input, InputKind
from app.core.model import Position

_BY_LINES = frozenset({InputKind.AUDIT, InputKind.WATCH, InputKind.METRICS})
"""What can be read on from its midst. A dump or a payload that grew is read again, and what it told is told again:
objects and alerts have keys of their own."""


def asked(inputs: Iterable[Input]) -> set[str]:
    """The hashes of the positions that tell what is left to read."""
    return {found for one in inputs for found in (one.file_hash, one.grew_from) if found}


def reading(one: Input, known: Mapping[str, Position]) -> Reading:
    """What is left to read of an input, with the positions that are ``known`` by their hash; nothing where it is
    ``done``."""
    position = known.get(one.file_hash)
    if position is not None:
        return Reading(one, position.offset, position.lines, done=position.done)
    before = known.get(one.grew_from)
    if before is None:
        return Reading(one)
    if one.kind in _BY_LINES:
        return Reading(one, before.offset, before.lines, follows=before.file_hash)
    return Reading(one, follows=before.file_hash)


def read_on(read: Reading) -> str:
    """In words where a file is read on that has grown, empty where it is not."""
    if not read.follows or not read.offset:
        return ""
    return f"{read.input.path}: read on from line {read.lines + 1:,}, where it ended at the last import"
