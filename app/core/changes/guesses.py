"""What requests were thought to make of an object, until somebody shows what they made of it.

A request says what was asked for. Admission may have added to it or rewritten it, and of two requests a watch shows the
first before the second was done: what it shows is held against the state before all of them.
"""

from __future__ import annotations

from app.core.model import Change, FieldDiff, Json
from app.core.objects.diff import diff, undo, unordered
from app.core.objects.memory import Entry

_MOST = 4
"""Requests in a row of which no state was shown: of more, no watch follows the object."""


def guessed(entry: Entry, change: Change) -> None:
    """The entry's state is now what this request was thought to make of it."""
    goes_on = not entry.guessed or bool(entry.guesses)
    kept = (*entry.guesses, (change.key, change.diffs)) if goes_on and not change.resource_version else ()
    entry.guesses, entry.guessed = kept if len(kept) <= _MOST else (), True


def found_out(entry: Entry, known: Json, new: Json, *, source: str) -> tuple[tuple[FieldDiff, ...], int]:
    """What a write did to an entry whose state is ``known`` so far, and is ``new`` after it; and the key of the change
    that told of its request, where it is one that was guessed from, else 0."""
    found = diff(known, new)
    if not entry.guessed:
        return found, 0
    rest, before = unordered(found), _before(entry, known)
    if before is None or source != "watch":  # who writes the audit log tells each write by itself
        return rest, 0
    found = unordered(diff(before, new))
    if not rest:  # all that was asked for has been done
        return (found, entry.guesses[0][0]) if len(entry.guesses) == 1 else ((), 0)
    paths = {one.path for one in found}
    fits = (key for key, asked in entry.guesses if paths.issuperset(one.path for one in asked))
    return found, next(fits, 0)


def _before(entry: Entry, state: Json) -> Json:
    """The state before all requests, None where it is not known."""
    try:
        for _, asked in reversed(entry.guesses):
            state = undo(asked, state)
    except (KeyError, IndexError):
        return None
    return state if entry.guesses else None
