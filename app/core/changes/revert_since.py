"""What became of an object since a change: what an undoing would take back with it, or cannot find any more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from app.core.changes.recipe import Caution, Known
from app.core.model import Change, DiffSource, FieldDiff, Object, Path, Verb
from app.core.objects.actors import short
from app.core.objects.api_versions import served
from app.core.objects.diff import undo
from app.core.objects.owners import is_sync
from app.core.phrases import excerpt, many

_IN_ORDER = frozenset({"containers", "initContainers", "env", "webhooks"})
"""Named lists whose order counts: Kubernetes expands variables, starts containers and calls webhooks in it."""
_TOLD = 3
"""Writes that are named one by one; the others are counted."""


def overlapping(later: Change, paths: Collection[Path]) -> bool:
    """Whether a later write altered one of these fields, what is in it, or what it is in; () is the whole object."""
    return any(
        found.path[: len(path)] == path or path[: len(found.path)] == found.path
        for found in later.diffs
        for path in paths
    )


def blind(since: Sequence[Change]) -> Change | None:
    """The newest write of which it is not recorded what it altered."""
    return next((c for c in reversed(since) if c.verb is Verb.UPDATE and c.diff_source is DiffSource.NONE), None)


def unplaced(change: Change) -> str:
    """The lists whose order counts and out of which it took something, "" for none: where that stood is not recorded
    (core.objects.diff)."""
    taken = (found.path for found in change.diffs if found.op == "remove" and isinstance(found.path[-1], tuple))
    return " and ".join(dict.fromkeys(str(path[-2]) for path in taken if path[-2] in _IN_ORDER))


def renumbered(diffs: Sequence[FieldDiff]) -> Iterator[tuple[FieldDiff, FieldDiff]]:
    """Items of lists that were taken out, each with the only one of its name that was put into the same list: one item,
    of which what tells it apart was altered, as the number of a port."""
    sides: dict[tuple[Path, str], dict[str, list[FieldDiff]]] = {}
    for found in diffs:
        item = found.new if found.op == "add" else found.old
        if found.path and isinstance(found.path[-1], tuple) and isinstance(item, dict) and "name" in item:
            name = (found.path[:-1], str(item["name"]))
            sides.setdefault(name, {}).setdefault(found.op, []).append(found)
    for side in sides.values():
        match side.get("remove"), side.get("add"):
            case [taken], [put]:
                yield taken, put


def port_taken(change: Change) -> bool:
    """Whether it took a port out of a Service that has others: which is the first counts for who asks for that alone,
    as SERVICE_PORT in a container's environment does."""
    if (change.resource.api_group, change.resource.kind) != ("", "Service"):
        return False
    moved = [taken.path for taken, _ in renumbered(change.diffs)]
    return any(
        one.op == "remove" and one.path[:-1] == ("spec", "ports") and one.path not in moved for one in change.diffs
    )


def gone(change: Change, known: Known) -> Caution | None:
    """That there is nothing to undo it in, any more or yet, or that it was undone; None where there is."""
    last = known.last
    if last is not None and last.deleted_at is not None and change.verb is not Verb.DELETE:
        deleted = next((one for one in reversed(known.since) if one.verb is Verb.DELETE), None)
        by = f", by {short(deleted.actor)}" if deleted else ""
        said = f"The object is gone since {_time(last.deleted_at)}{by}: there is nothing to undo."
        again = " To make it again as it was, apply the manifest before this change."
        return Caution(said + (again if change.verb is Verb.UPDATE else ""), deleted.id if deleted else "")
    if change.verb is Verb.DELETE and last is not None and last.deleted_at is None and last.uid == change.uid != "":
        return Caution(
            "It is being deleted, and still there while finalizers keep it: that cannot be taken back. Once it is gone,"
            " look here again for how to make it anew."
        )
    if change.verb is Verb.DELETE and change.diffs and known.state == change.diffs[0].old is not None:
        made = next((one for one in reversed(known.since) if one.verb is Verb.CREATE), None)
        return Caution("The object is there again as it was: nothing is left to undo.", made.id if made else "")
    if known.state is not None and change.verb is Verb.UPDATE and _is_undone(change, known.state):
        if is_sync(change):
            return None  # what asked for it is gone, what it brought is there
        by_whom = next((one for one in reversed(known.since) if _touches(one, change)), None)
        when = f", since {_time(by_whom.at)} by {short(by_whom.actor)}" if by_whom else ""
        place = (
            f" Where in {lists} it stood is not recorded, so look at the order." if (lists := unplaced(change)) else ""
        )
        said = f"The values before are there again{when}: nothing is left to undo.{place}"
        return Caution(said, by_whom.id if by_whom else "")
    return None


def cautions(change: Change, known: Known) -> Iterator[Caution]:
    """What to mind of what was written to the object since, and of its kind."""
    yield from _anew(change, known)
    yield from _others(change, known.since)
    if known.is_cut:
        yield Caution(
            f"Of what was written to it since, only the newest {many(len(known.since), 'write')} were looked at."
        )
    yield from _kind(known)


def _anew(change: Change, known: Known) -> Iterator[Caution]:
    made = next((one for one in known.since if one.verb is Verb.CREATE), None)
    another = known.last is not None and "" not in (known.last.uid, change.uid) and known.last.uid != change.uid
    if made is not None:
        yield Caution(
            f"{_who(made)} made the object anew at {_time(made.at)}: it is another one of the same name"
            f"{', which this would overwrite' if change.verb is Verb.DELETE else ', so compare first'}.",
            made.id,
        )
    elif another and known.state is not None:
        yield Caution("The object was made anew since: it is another one of the same name, so compare first.")


def _others(change: Change, since: Sequence[Change]) -> Iterator[Caution]:
    """Who changed the same fields since, the newest first."""
    found = [one for one in reversed(since) if one.verb is Verb.UPDATE and _touches(one, change)]
    same = "it" if change.verb is Verb.CREATE else "the same fields"
    for one in found[:_TOLD]:
        said = excerpt(one.summary, 100) or "what is not recorded"
        yield Caution(f"{_who(one)} changed {same} at {_time(one.at)} ({said}): this takes that back, too.", one.id)
    if len(found) > _TOLD:
        yield Caution(f"{many(len(found) - _TOLD, 'more write', 'more writes')} to {same} would go with it.")
    if unknown := blind(since):
        yield Caution(f"{_who(unknown)} wrote it at {_time(unknown.at)}; which fields, was not recorded.", unknown.id)


def _touches(later: Change, change: Change) -> bool:
    return overlapping(later, [found.path for found in change.diffs])


def _kind(known: Known) -> Iterator[Caution]:
    """Whether the API server still knows the kind, in the version in which the change was recorded."""
    definition = known.definition
    if definition is None:
        return
    if definition.now is None:
        yield Caution(f"The CustomResourceDefinition {definition.name} is gone: the API server knows no such kind now.")
        return
    then, now = served(definition.then or {}), served(definition.now)
    if then and now and then[0] not in now:
        yield Caution(
            f"It was recorded in version {then[0]} of its API, which {definition.name} serves no more; it serves"
            f" {' and '.join(now)}: the same field may be another there, or none."
        )


def _is_undone(change: Change, state: Object) -> bool:
    return bool(change.diffs) and change.diff_source is DiffSource.STATES and all(_was(d, state) for d in change.diffs)


def _was(found: FieldDiff, state: Object) -> bool:
    """Whether a field has its value from before."""
    try:
        return undo([found], state) == state
    except (KeyError, IndexError):
        return found.op == "add"


def _who(change: Change) -> str:
    name = short(change.actor)
    return name[:1].upper() + name[1:] if not change.actor.name else name


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
