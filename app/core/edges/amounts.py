"""Changes of amounts alone: settings by which a program holds no more in its memory than before, fewer at once, or
other words for people; and how much room pods are given."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from app.core.edges.settings import PARTS, full_name, settings_of
from app.core.entities import WORKLOADS
from app.core.model import Change, FieldDiff, Verb
from app.core.objects.normalise import amount_of
from app.core.objects.values import NUMBER, name_of

KILLED = re.compile(r"exit code 137\b|\bOOMKilled\b")
"""How it is told of a container that was killed, as the kernel does where memory runs out."""
_AT_ONCE = re.compile(
    r"batch|page.?size|chunk|concurren|parallel|worker|thread|pool|connections?\b|cache|buffer|prefetch|fetch|queue"
    r"|max.?(?:conn|client)|per.?core|max.?(?:items|entries|records|rows|size|in.?flight)",
    re.IGNORECASE,
)
"""Names of settings that say how much a program holds at once."""
SIZES = re.compile(
    r"(?:message|body|request|packet|frame|record|payload|upload|header|file|line|field).?(?:max.?)?(?:bytes|size|length)"
    r"|max.?(?:\w+.?)?(?:message|body|packet|frame|payload|upload)(?!s)",
    re.IGNORECASE,
)
"""Names of settings that say how large one thing may be: message.max.bytes, proxy-body-size, max_allowed_packet."""
_BOUNDS = re.compile(
    r"interval|period|timeout|time.?out|ttl|seconds|minutes|expir|limit|memory|heap|every", re.IGNORECASE
)
"""Names of such of which less may be more: how often, for how long, and what it is let have."""
_PROSE = re.compile(r"[^\W\d_][^\d=:;{}<>\[\]/\\$%@]*")
"""Words for people: with none of what programs read in them, and several before or after."""


def holds_no_more(change: Change) -> bool:
    """Whether an update of configuration only lowers how much is held at once, or only changes words for people."""
    told = _configured(change)
    return bool(told) and all(_is_lower(diff) or _is_prose(diff) for diff in told)


def only_words(change: Change) -> bool:
    """Whether an update of configuration only changes words for people: what a page says, or a mail."""
    told = _configured(change)
    return bool(told) and all(map(_is_prose, told))


def _configured(change: Change) -> list[FieldDiff]:
    """What an update of configuration changed; nothing for other changes."""
    is_update = change.verb is Verb.UPDATE and change.resource.kind in ("ConfigMap", "Secret")
    return [diff for diff in change.diffs if "metadata" not in diff.path] if is_update else []


_ROOM = frozenset(
    {
        *("resources", "replicas", "strategy", "updateStrategy", "minReadySeconds", "progressDeadlineSeconds"),
        *("readinessProbe", "livenessProbe", "startupProbe", "priorityClassName", "revisionHistoryLimit"),
    }
)


def only_room(change: Change) -> bool:
    """Whether an update of a workload only says how many pods it has, what room they are given, and when they count as
    well: the program does what it did."""
    is_update = change.verb is Verb.UPDATE and change.resource.kind in WORKLOADS and bool(change.diffs)
    return is_update and all(not _ROOM.isdisjoint(map(str, diff.path)) for diff in change.diffs)


def only_first_amounts(change: Change) -> bool:
    """Whether an update of a workload only gives its programs variables that they did not have, all of them amounts."""
    is_update = change.verb is Verb.UPDATE and change.resource.kind in WORKLOADS and bool(change.diffs)
    return is_update and all(map(_is_first_amount, change.diffs))


def _is_first_amount(diff: FieldDiff) -> bool:
    if "env" not in diff.path or diff.old is not None:
        return False
    told = diff.new if isinstance(diff.new, list) else [diff.new]
    return all(NUMBER.fullmatch(str(one.get("value") if isinstance(one, dict) else one)) for one in told)


_MANY = frozenset({"replicas", "maxReplicas", "maxReplicaCount", "parallelism"})
_LIMITS = frozenset({("limits", "cpu"), ("limits", "memory")})
_MEASURES = frozenset({"metrics", "triggers"})
_PER_POD = re.compile(
    r"\A(?:averageUtilization|averageValue|value|\w*[tT]hreshold|targetValue|targetQueryValue|\w+Length|messageCount)\Z"
)
"""What an autoscaler lets each pod have before it makes another (https://keda.sh/docs/latest/scalers/)."""


def left_of(change: Change) -> tuple[float, FieldDiff] | None:
    """The least share, below 1, that an update leaves of how much a program can do at once, and where it says so: of
    how many pods there are or may be, of a limit of processor or memory, of a pool. Not to none: that stops it."""
    if change.verb is not Verb.UPDATE:
        return None
    told = (one for diff in change.diffs for one in _each(diff))
    found = [(share, diff) for diff in told if (share := _left(diff)) is not None and 0 < share < 1]
    return min(found, key=lambda pair: pair[0], default=None)


def _each(diff: FieldDiff) -> Iterator[FieldDiff]:
    """A diff; of a text of several settings one for each that differs."""
    if not any(isinstance(value, str) and PARTS.search(value) for value in (diff.old, diff.new)):
        yield diff
    else:
        for name, old, new in settings_of(diff):
            yield replace(diff, path=(*diff.path, name), old=old, new=new)


def _left(diff: FieldDiff) -> float | None:
    if (
        diff.path[:1] == ("spec",)
        and diff.path[1:2]
        and diff.path[1] in _MEASURES
        and _PER_POD.match(str(diff.path[-1]))
    ):
        old, new = amount_of(str(diff.old)), amount_of(str(diff.new))
        return float(old / new) if old and new else None  # as many fewer pods as each may have more to do
    name = full_name(*map(name_of, diff.path[-2:])) if len(diff.path) > 1 else str(diff.path[-1:])
    says_how_much = SIZES.search(name) or (_AT_ONCE.search(name) and not _BOUNDS.search(name))
    if _MANY.isdisjoint(map(str, diff.path[-1:])) and diff.path[-2:] not in _LIMITS and not says_how_much:
        return None
    old, new = amount_of(str(diff.old)), amount_of(str(diff.new))
    return float(new / old) if old and new is not None else None


def _is_lower(diff: FieldDiff) -> bool:
    name = str(diff.path[-1]) if diff.path else ""
    old, new = (NUMBER.fullmatch(str(value)) for value in (diff.old, diff.new))
    if old is None or new is None or old["unit"] != new["unit"]:
        return False
    says_how_much = _AT_ONCE.search(name) is not None and _BOUNDS.search(name) is None
    return says_how_much and float(new["number"]) < float(old["number"])


def _is_prose(diff: FieldDiff) -> bool:
    texts = [value.strip() for value in (diff.old, diff.new) if isinstance(value, str)]
    return len(texts) == 2 and all(map(_PROSE.fullmatch, texts)) and any(len(text.split()) > 1 for text in texts)
