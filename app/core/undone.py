"""What was undone before anything turned bad: it is no longer there to do harm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from app.core.model import Change, Json, Path, Resource, Verb

LAST = 8
"""Of so many edits of an object that still stand it is looked at whether they are undone: a duel goes on for ever."""


def undone(ordered: Iterable[Change]) -> dict[str, datetime]:
    """When each update, by its id, was undone: another one gave every field of it back what it held before.

    ``ordered`` by time. Fields whose values are not known are never known to be given back.
    """
    found: dict[str, datetime] = {}
    standing: dict[Resource, list[Change]] = defaultdict(list)
    for change in ordered:
        if change.verb is not Verb.UPDATE or not change.diffs:
            continue
        given = {diff.path: diff.new for diff in change.diffs}
        earlier = standing[change.resource]
        back = [one for one in earlier if _gives_back(given, one)]
        found |= {one.id: change.at for one in back}
        standing[change.resource] = [*(one for one in earlier if one.id not in found), change][-LAST:]
    return found


def _gives_back(given: dict[Path, Json], change: Change) -> bool:
    return all(diff.path in given and given[diff.path] == diff.old != diff.new for diff in change.diffs)
