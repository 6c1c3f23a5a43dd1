"""The versions of an object, rebuilt from its last known state by undoing its changes one after another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.core.diff import undo
from app.core.model import Change, DiffSource, Json, Object, Verb


@dataclass(frozen=True, slots=True)
class Version:
    """The object after ``change``. ``state`` None with ``known``: it was gone; without: no body was recorded."""

    change: Change
    state: Json
    known: bool


def versions(last: Object | None, changes: Iterable[Change]) -> tuple[Version, ...]:
    """One version a change, newest first. ``last`` is the last known state, for a deleted object the one it had.

    Going back ends at the first change whose fields were not recorded as differences of states, or do not fit the
    state: what lies before it is unknown, never guessed.
    """
    found = []
    state: Json = last
    known = last is not None
    for change in changes:
        if change.verb is Verb.DELETE:
            found.append(Version(change, None, known=True))
            if change.diffs and not change.diffs[0].path:
                state, known = change.diffs[0].old, True
            continue
        found.append(Version(change, state if known else None, known))
        if not known:
            continue
        if change.verb is Verb.CREATE:
            state = None
        elif change.diff_source is not DiffSource.STATES:
            known = False
        else:
            state, known = _before(change, state)
    return tuple(found)


def _before(change: Change, state: Json) -> tuple[Json, bool]:
    try:
        return undo(change.diffs, state), True
    except (KeyError, IndexError, TypeError):
        return None, False
