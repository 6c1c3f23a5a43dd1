"""Write fights: one field of one object rewritten back and forth.

The fight index is the share of consecutive writes of a field that return it to a value it had before. Two
controllers that disagree, two pods of one controller, or one controller with two intents all look like this, and
each single write looks harmless: that is why repeats are never deduplicated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import orjson

from app.core.model import Change, Json, Resource, WriteFight

MIN_WRITES = 10
MIN_INDEX = 0.8
MIN_PER_SECOND = 1 / 60
FIRST_BLOW = timedelta(seconds=5)
"""A fight is dated from the first return to a former value: the write it returned from came shortly before."""


@dataclass(slots=True)
class _Run:
    """The writes of one field of one object, in order."""

    times: list[datetime] = field(default_factory=list)
    writers: list[str] = field(default_factory=list)
    seen: dict[bytes, int] = field(default_factory=dict)
    returns: int = 0
    began: datetime | None = None


def write_fights(changes: Iterable[Change]) -> list[WriteFight]:
    """The fights among these changes (any order), most writes first. Objects fighting over one field are one fight."""
    runs: dict[tuple[Resource, str], _Run] = defaultdict(_Run)
    for change in sorted(changes, key=lambda c: c.at):
        for diff in change.diffs:
            if not diff.path:
                continue  # a create or delete ends no fight: the field comes back with the next write
            run = runs[(change.resource, diff.path_text)]
            value = _fingerprint(diff.new)
            if not run.seen:
                run.seen[_fingerprint(diff.old)] = 0
            if value in run.seen:
                run.returns += 1
                run.began = run.began or (run.times[-1] if run.times else change.at)
            run.seen[value] = run.seen.get(value, 0) + 1
            run.times.append(change.at)
            run.writers.append(_writer(change))
    grouped: dict[tuple[str, str, str], list[tuple[Resource, _Run]]] = defaultdict(list)
    for (resource, path), run in runs.items():
        writes = len(run.times)
        lasted = (run.times[-1] - run.times[0]).total_seconds()
        if (
            writes >= MIN_WRITES
            and run.returns / (writes - 1) >= MIN_INDEX
            and writes / max(lasted, 1.0) >= MIN_PER_SECOND
        ):
            grouped[(resource.api_group, resource.kind, path)].append((resource, run))
    fights = [_fight(group, kind, path, members) for (group, kind, path), members in grouped.items()]
    return sorted(fights, key=lambda f: -f.writes)


def fight_members(changes: Iterable[Change], fights: Iterable[WriteFight]) -> list[Change]:
    """The changes that are blows of these fights: symptoms, drawn as a braid and not as changes of their own."""
    fought: dict[Resource, list[WriteFight]] = defaultdict(list)
    for fight in fights:
        for resource in fight.objects:
            fought[resource].append(fight)
    return [change for change in changes if _belongs(change, fought.get(change.resource, ()))]


def _belongs(change: Change, fights: Iterable[WriteFight]) -> bool:
    """Whether every field it wrote is being fought over. The write that first made the field is of the fight too."""
    fields = [fight.path_text for fight in fights if change.at >= fight.began_at - FIRST_BLOW]
    paths = [diff.path_text for diff in change.diffs if diff.path]
    return bool(paths) and all(
        any(f == path or f.startswith((f"{path}.", f"{path}[")) for f in fields) for path in paths
    )


def _fight(group: str, kind: str, path: str, members: list[tuple[Resource, _Run]]) -> WriteFight:
    writes = sum(len(run.times) for _, run in members)
    # It began with the first return, not with the first write: an honest edit may have come before.
    began = min(run.began or run.times[0] for _, run in members)
    ended = max(run.times[-1] for _, run in members)
    counted: dict[str, int] = defaultdict(int)
    values: dict[str, int] = defaultdict(int)
    for _, run in members:
        for writer in run.writers:
            counted[writer] += 1
        for value, times in run.seen.items():
            values[_text(value)] += times
    return WriteFight(
        api_group=group,
        kind=kind,
        path_text=path,
        objects=tuple(sorted((r for r, _ in members), key=str)),
        writers=tuple(sorted(counted, key=lambda w: -counted[w])),
        writes=writes,
        began_at=began,
        ended_at=ended,
        per_second=writes / max((ended - began).total_seconds(), 1.0),
        values=tuple(sorted((v for v in values if values[v] > 1), key=lambda v: -values[v])[:4]),
    )


def _fingerprint(value: Json) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _text(fingerprint: bytes) -> str:
    value = orjson.loads(fingerprint)
    return value if isinstance(value, str) else fingerprint.decode()[:60]


def _writer(change: Change) -> str:
    """A writer is a user and, where it is known, the pod: two pods of one controller can fight each other."""
    return f"{change.actor.name} ({change.actor.pod})" if change.actor.pod else change.actor.name
