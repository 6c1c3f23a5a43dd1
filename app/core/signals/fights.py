"""Write fights: one field of one object rewritten back and forth.

The fight index is the share of consecutive writes of a field that return it to a value it had before. Two
controllers that disagree, two pods of one controller, or one controller with two intents all look like this, and
each single write looks harmless: that is why repeats are never deduplicated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from app.core.findings import WriteFight
from app.core.model import ActorSource, Change, Json, Path, Resource, path_text

MIN_WRITES = 10
MIN_INDEX = 0.8
MIN_PER_SECOND = 1 / 60
PAUSE = timedelta(seconds=MIN_WRITES / MIN_PER_SECOND)
"""A field that rests for this long is at peace: what comes after is another fight."""
BY_HAND_PER_SECOND = 0.2
"""No hand rewrites a field every five seconds for long: one person who does it slower changes their mind."""
FIRST_BLOW = timedelta(seconds=5)
"""A fight is dated from the first return to a former value: the write it returned from came shortly before."""


@dataclass(frozen=True, slots=True)
class _Write:
    """One write of one field of one object, for as many like it as ``count`` says; ``returns`` it to a value that it
    had before."""

    at: datetime
    writer: str
    by_hand: bool
    value: bytes
    returns: bool
    count: float


def write_fights(changes: Iterable[Change], *, stands_for: Mapping[int, float] | None = None) -> list[WriteFight]:
    """The fights among these changes (any order), most writes first. Objects fighting over one field are one fight.

    ``stands_for`` says of some, by key, how many like it were made of which these are a part.
    """
    counts = stands_for or {}
    # A create or delete (no path) ends no fight: the field comes back with the next write. Of what is large no values
    # are known. Most fields are written once or twice, and of those no more is looked at.
    written = [(c, diff) for c in changes for diff in c.diffs if diff.path and (diff.old, diff.new) != (None, None)]
    busy = Counter(change.resource for change, _ in written)
    written = [(change, diff) for change, diff in written if busy[change.resource] >= MIN_WRITES]
    often = Counter((change.resource, diff.path) for change, diff in written)
    runs: dict[tuple[Resource, Path], list[_Write]] = defaultdict(list)
    seen: dict[tuple[Resource, Path], set[bytes]] = {}
    for change, diff in sorted(written, key=lambda write: write[0].at):
        if often[change.resource, diff.path] >= MIN_WRITES:
            field, value = (change.resource, diff.path), _fingerprint(diff.new)
            known = seen.setdefault(field, {_fingerprint(diff.old)})
            runs[field].append(
                _Write(
                    change.at, _writer(change), _is_by_hand(change), value, value in known, counts.get(change.key, 1.0)
                )
            )
            known.add(value)
    grouped: dict[tuple[str, str, str], list[tuple[Resource, list[_Write]]]] = defaultdict(list)
    for (resource, path), run in runs.items():
        if bout := _bout(run):
            grouped[(resource.api_group, resource.kind, path_text(path))].append((resource, bout))
    fights = [_fight(group, kind, path, members) for (group, kind, path), members in grouped.items()]
    return sorted(fights, key=lambda f: -f.writes)


def _bout(run: list[_Write]) -> list[_Write]:
    """The part of a field's writes that is a fight, whatever honest edits came before and after; empty where none is.

    Of all stretches it is the one in which returns outweigh other writes most, one of these counting as many returns
    as MIN_INDEX allows for it (the maximum subarray).
    """
    against = MIN_INDEX / (1 - MIN_INDEX)
    best, bout, weight, first = 0.0, run[:0], 0.0, 0
    for number, write in enumerate(run):
        if weight <= 0 or write.at - run[number - 1].at > PAUSE:
            weight, first = 0.0, number
        weight += 1 if write.returns else -against
        if weight > best:
            best, bout = weight, run[first : number + 1]
            if first and write.returns and run[first].at - run[first - 1].at <= PAUSE:
                bout = run[first - 1 : number + 1]  # with the write that was returned from
    lasted = (bout[-1].at - bout[0].at).total_seconds() if bout else 0.0
    pace = sum(write.count for write in bout) / max(lasted, 1.0)
    one_person = all(write.by_hand for write in bout) and len({write.writer for write in bout}) == 1
    return bout if len(bout) >= MIN_WRITES and pace >= (BY_HAND_PER_SECOND if one_person else MIN_PER_SECOND) else []


def fight_members(changes: Iterable[Change], fights: Iterable[WriteFight]) -> list[Change]:
    """The changes that are blows of these fights: symptoms, drawn as a braid and not as changes of their own."""
    fought: dict[Resource, list[WriteFight]] = defaultdict(list)
    for fight in fights:
        for resource in fight.objects:
            fought[resource].append(fight)
    return [change for change in changes if _belongs(change, fought.get(change.resource, ()))]


def _belongs(change: Change, fights: Iterable[WriteFight]) -> bool:
    """Whether every field it wrote is being fought over. The write that first made the field is of the fight too."""
    fields = [fight.path_text for fight in fights if fight.began_at - FIRST_BLOW <= change.at <= fight.ended_at]
    paths = [diff.path_text for diff in change.diffs if diff.path] if fields else []
    return bool(paths) and all(
        any(f == path or f.startswith((f"{path}.", f"{path}[")) for f in fields) for path in paths
    )


def _fight(group: str, kind: str, path: str, members: list[tuple[Resource, list[_Write]]]) -> WriteFight:
    writes = [write for _, bout in members for write in bout]
    made = round(sum(write.count for write in writes))
    began, ended = min(write.at for write in writes), max(write.at for write in writes)
    writers = Counter(write.writer for write in writes)
    values = Counter(_text(write.value) for write in writes)
    return WriteFight(
        api_group=group,
        kind=kind,
        path_text=path,
        objects=tuple(sorted((r for r, _ in members), key=str)),
        writers=tuple(sorted(writers, key=lambda w: -writers[w])),
        writes=made,
        began_at=began,
        ended_at=ended,
        per_second=made / max((ended - began).total_seconds(), 1.0),
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


def writer_of(writer: str) -> tuple[str, str]:
    """The user and the pod of one of WriteFight.writers, "" for what is not known."""
    user, _, pod = writer.removesuffix(")").partition(" (")
    return user, pod


def _is_by_hand(change: Change) -> bool:
    """Whether a person may have written it: no ServiceAccount, no part of Kubernetes, no controller's field manager."""
    actor = change.actor
    if actor.source is ActorSource.AUDIT:
        return not actor.name.startswith("system:")
    return actor.name.startswith("kubectl")
