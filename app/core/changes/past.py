"""What one object remembers of its own past: its creation, the deletion it waits for, who wrote last and when.

Times in metadata are whole seconds. An entry of managedFields keeps the time of its manager's last write, not what that
write changed, and leaves with the manager's last field
(https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management): what is told here is a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from app.core.changes import summaries
from app.core.changes.made import creation_key, key_of
from app.core.changes.sight import unseen
from app.core.model import NOBODY, Actor, ActorSource, Change, DiffSource, FieldDiff, Json, Object, Path, Resource, Verb
from app.core.objects.actors import actor_from_managed_fields, is_controller
from app.core.objects.diff import diff

HISTORY = "history"
"""What ``sources`` of a change says where a cluster remembered it."""
SAME = timedelta(seconds=2)
"""How far apart two memories of one write may lie: both are cut to whole seconds, and one may be a controller's, which
acts on the write a moment later."""
_FEW = 3
"""So many fields of a manager are worth naming: more say nothing of what its last write was about."""


class Remembering(Struct, frozen=True):
    """One object as it is now. ``state`` is normalised and redacted; ``managed`` its managedFields.

    ``release`` names the Helm release that it belongs to, "" for none.
    """

    resource: Resource
    uid: str
    state: Object
    managed: list[Json]
    created: datetime | None = None
    deleted: datetime | None = None
    generation: int | None = None
    release: str = ""

    def found_in(self, what: str) -> str:
        return f"{what}, Helm release {self.release}" if self.release else what


class Entry(Struct, frozen=True):
    """A manager's entry in managedFields that has a time."""

    raw: Json
    manager: str
    at: datetime
    paths: tuple[Path, ...]

    @property
    def actor(self) -> Actor:
        return Actor(self.manager, ActorSource.MANAGED_FIELDS, self.manager)


def entries(one: Remembering) -> list[Entry]:
    """Who wrote desired state, and when last, the oldest first; without the control plane, which only follows others,
    and without who owns bookkeeping alone."""
    found = []
    for raw in one.managed:
        if not isinstance(raw, dict) or raw.get("subresource") == "status":
            continue
        manager, at = raw.get("manager"), _time(raw.get("time"))
        paths = tuple(path for path in _leaves(raw.get("fieldsV1"), ()) if _has(one.state, path))
        if not isinstance(manager, str) or at is None or not paths:
            continue
        if not is_controller(Actor(manager, ActorSource.MANAGED_FIELDS)):
            found.append(Entry(raw, manager, at, paths))
    return sorted(found, key=lambda entry: (entry.at, entry.manager))


def creation(one: Remembering, later: Iterable[Change]) -> Change | None:
    """When the object was created, and as what, if nothing was written ``later``."""
    if one.created is None:
        return None
    rest = [entry for entry in entries(one) if entry.at > one.created + SAME]
    known = not rest and not any(later) and (one.generation or 1) == 1
    found = (FieldDiff((), "add", None, one.state),) if known else ()
    by = [entry.raw for entry in entries(one) if entry.at <= one.created + SAME]
    actor = actor_from_managed_fields(by, [FieldDiff((), "add")], before="")
    said = summaries.summary(one.resource, Verb.CREATE, found, old=None, new=one.state if known else None)
    return Change(
        one.resource, one.created, Verb.CREATE, creation_key(one.resource, one.uid), actor, one.uid, diffs=found,
        diff_source=DiffSource.STATES if known else DiffSource.NONE, summary=said, sources=frozenset({HISTORY}),
        found_in=one.found_in("creationTimestamp"),
    )  # fmt: skip


def deletion(one: Remembering) -> Change | None:
    """That somebody asked to delete the object, which waits for its finalizers."""
    if one.deleted is None:
        return None
    found = (FieldDiff((), "remove", one.state, None),)
    said = summaries.summary(one.resource, Verb.DELETE, found, old=one.state, new=None)
    return Change(
        one.resource, one.deleted, Verb.DELETE, key_of(one.resource, one.uid, "deleted"), NOBODY, one.uid, diffs=found,
        summary=said, sources=frozenset({HISTORY}), found_in=one.found_in("deletionTimestamp"),
    )  # fmt: skip


def last_writes(one: Remembering, known: Collection[Change]) -> Iterator[Change]:
    """A change for each manager's last write that neither the creation nor a ``known`` change explains."""
    for entry in entries(one):
        if one.created is not None and entry.at <= one.created + SAME:
            continue
        if any(abs(change.at - entry.at) <= SAME and change.since is None for change in known):
            continue
        said = summaries.summary(one.resource, Verb.UPDATE, (), old=None, new=None, unknown=_perhaps(entry))
        yield Change(
            one.resource, entry.at, Verb.UPDATE,
            key_of(one.resource, one.uid, f"{entry.manager} {entry.at.isoformat()}"), entry.actor, one.uid,
            diff_source=DiffSource.NONE, summary=said, sources=frozenset({HISTORY}),
            found_in=one.found_in("managedFields"),
        )  # fmt: skip


def update(
    one: Remembering,
    states: tuple[Object, Object],
    between: tuple[datetime, datetime],
    *,
    at: datetime | None,
    name: str,
    found_in: str,
) -> Change | None:
    """An update that led from one part of the desired state to another; None where nothing that counts differs.

    It was written ``between`` two times; ``at`` where that is known. ``name`` is what it has in common with no other
    update of the object, and will have when it is told again.
    """
    found = diff(*states)
    if not found:
        return None
    since, actor = between[0] if at is None else None, NOBODY
    at = at or between[1]
    for entry in entries(one):
        wrote = actor_from_managed_fields([entry.raw], found, before="")
        if between[0] - SAME <= entry.at <= between[1] + SAME and wrote is not NOBODY:
            actor, at, since = wrote, max(entry.at, between[0]), None
    said = summaries.summary(one.resource, Verb.UPDATE, found, old=states[0], new=states[1])
    change = Change(
        one.resource, at, Verb.UPDATE, key_of(one.resource, one.uid, name), actor, one.uid, diffs=found, summary=said,
        sources=frozenset({HISTORY}), found_in=one.found_in(found_in),
    )  # fmt: skip
    return unseen(change, since) if since is not None and since < at else change


def _perhaps(entry: Entry) -> str:
    """What the last write of a manager may have been about."""
    if len(entry.paths) > _FEW:
        return "what was changed is not known"
    names = ", ".join(FieldDiff(path, "replace").path_text for path in entry.paths)
    return f"perhaps {names}: only when is known"


def _time(value: Json) -> datetime | None:
    try:
        found = msgspec.convert(value, datetime) if isinstance(value, str) else None
    except msgspec.ValidationError:
        return None
    return found if found is not None and found.tzinfo else None


def _leaves(fields: Json, path: Path) -> Iterator[Path]:
    """The paths that a fieldsV1 tree ends in: "f:name" is a field, 'k:{"name":"app"}' the item of a list."""
    inner = {key: value for key, value in fields.items() if key != "."} if isinstance(fields, dict) else {}
    if not inner and path:
        yield path
    for key, value in inner.items():
        sort, _, name = key.partition(":")
        if sort == "f":
            yield from _leaves(value, (*path, name))
        elif sort == "k" and (item := _item(name)):
            yield from _leaves(value, (*path, item))
        elif path:
            yield path


def _item(key: str) -> tuple[tuple[str, str], ...]:
    try:
        found = msgspec.json.decode(key)
    except msgspec.DecodeError:
        return ()
    return tuple((name, str(value)) for name, value in found.items()) if isinstance(found, dict) else ()


def _has(state: Json, path: Path) -> bool:
    """Whether there is something at that path of a state."""
    for step in path:
        if isinstance(step, str) and isinstance(state, dict) and step in state:
            state = state[step]
        elif isinstance(step, tuple) and isinstance(state, list):
            fits = (x for x in state if isinstance(x, dict) and all(str(x.get(k)) == v for k, v in step if k in x))
            state = next(fits, None)
        else:
            return False
    return state is not None
