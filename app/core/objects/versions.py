"""The versions of an object, rebuilt from its last known state by undoing its changes one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.core.model import Change, DiffSource, FieldDiff, Json, Object, Verb
from app.core.objects.diff import undo


@dataclass(frozen=True, slots=True)
class Version:
    """The object after ``change``. ``state`` None with ``known``: it was gone; without: no body was recorded."""

    change: Change
    state: Json
    known: bool


@dataclass(frozen=True, slots=True)
class Write:
    """As much of a change as it takes to go back behind it."""

    verb: Verb
    diffs: tuple[FieldDiff, ...]
    diff_source: DiffSource


def versions(last: Object | None, changes: Iterable[Change], newer: Iterable[Write] | None = ()) -> tuple[Version, ...]:
    """One version a change, newest first. ``last`` is the last known state, for a deleted object the one it had.

    ``newer`` are the writes between the first of ``changes`` and ``last``, newest first; None when they are not
    known. Going back ends at the first change whose fields were not recorded as differences of states, or do not
    fit the state: what lies before it is unknown, never guessed.
    """
    state: Json = last
    known = last is not None and newer is not None
    for write in newer or ():
        state, known = _before(write, state, known=known)
    found = []
    for change in changes:
        if change.verb is Verb.DELETE:
            found.append(Version(change, None, known=True))
        else:
            found.append(Version(change, state if known else None, known))
        state, known = _before(change, state, known=known)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Side:
    """An object on one side of a write. ``state`` None with ``known``: it was not there; without: nobody can tell."""

    state: Json
    known: bool


def sides(last: Object | None, writes: Sequence[Write]) -> tuple[Side, Side]:
    """The object right before and right after the oldest of ``writes``, which are all since then, newest first.

    ``last`` is as for ``versions``.
    """
    *newer, write = writes
    state: Json = last
    known = last is not None
    for one in newer:
        state, known = _before(one, state, known=known)
    after = Side(None, known=True) if write.verb is Verb.DELETE else Side(state, known and state is not None)
    return Side(*_before(write, state, known=known)), after


def _before(write: Write | Change, state: Json, *, known: bool) -> tuple[Json, bool]:
    """The object before a write, and whether that can be told; ``state`` is the one after it."""
    if write.verb is Verb.DELETE:
        whole = write.diffs and not write.diffs[0].path
        return (write.diffs[0].old, True) if whole else (state, known and state is not None)
    if not known:
        return None, False
    if write.verb is Verb.CREATE:
        return None, True
    if write.diff_source is not DiffSource.STATES:
        return (state, True) if _is_of_status(write) else (None, False)
    try:
        return undo(write.diffs, state), True
    except (KeyError, IndexError, TypeError):
        return None, False


def _is_of_status(write: Write | Change) -> bool:
    """Whether a request was for nothing but a status, which is no part of a state."""
    return bool(write.diffs) and all(found.path[:1] == ("status",) for found in write.diffs)
