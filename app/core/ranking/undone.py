"""What was undone, or overwritten, before anything turned bad: it is no longer there to do harm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from app.core.model import Change, Json, Path, Resource, Verb

LAST = 8
"""Of so many edits of an object that still stand it is looked at whether they are undone: a duel goes on for ever."""


def undone(ordered: Iterable[Change]) -> dict[str, datetime]:
    """When each update, by its id, no longer stood: another one gave every field of it another value, mostly the one
    that it held before.

    ``ordered`` by time. Fields whose values are not known are never known to be given another.
    """
    found: dict[str, datetime] = {}
    standing: dict[Resource, list[Change]] = defaultdict(list)
    for change in ordered:
        if change.verb is not Verb.UPDATE or not change.diffs:
            continue
        given = {diff.path: diff.new for diff in change.diffs}
        still = []
        for one in standing[change.resource]:
            if _replaces(given, one):
                found[one.id] = change.at
            else:
                still.append(one)
        standing[change.resource] = [*still, change][-LAST:]
    return found


def _replaces(given: dict[Path, Json], change: Change) -> bool:
    return all(diff.path in given and given[diff.path] != diff.new for diff in change.diffs)
