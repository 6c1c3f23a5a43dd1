"""A sighting of a write -> the Change that it tells of, before its actor and its cause are looked for."""

from __future__ import annotations

from datetime import UTC

from app.core.changes.sightings import Sighting
from app.core.changes.summaries import summary
from app.core.model import Change, DiffSource, FieldDiff, Object, ObjectState, Resource, Verb, version_key
from app.core.objects import kinds
from app.core.objects.body import Body
from app.core.objects.kinds import Policy
from app.core.objects.memory import Entry


def key_of(resource: Resource, uid: str, version: str) -> int:
    """The key on which all tellings of one write meet."""
    return version_key(resource.cluster, uid, version)


def creation_key(resource: Resource, uid: str) -> int:
    """An object is created once, whoever tells of it."""
    return key_of(resource, uid, "created")


def deletion_key(sighting: Sighting, uid: str) -> int:
    """An object is deleted once. Where nobody says which object it was, each deletion is one of its own."""
    if uid:
        return key_of(sighting.resource, uid, "deleted")
    return key_of(sighting.resource, str(sighting.resource), f"{sighting.audit_id}:{sighting.at.isoformat()}")


def is_state(sighting: Sighting) -> bool:
    """Whether it is of a kind whose writes are state and no changes (KINDS: ``Policy.STATE``). What a person does to a
    ReplicaSet is a change: it is else made and deleted for its Deployment's sake alone."""
    resource, name = sighting.resource, sighting.actor.name
    if kinds.policy(resource.api_group, resource.kind) is not Policy.STATE:
        return False
    person = sighting.source == "audit" and bool(name) and not name.startswith("system:")
    return not (person and resource.kind == "ReplicaSet")


def whole(sighting: Sighting, verb: Verb, state: Object | None, *, body: Body | None, uid: str = "") -> Change:
    """A creation, or a deletion, of an object whose state was ``state`` (None: not known)."""
    resource = sighting.resource
    uid = (body.uid if body else "") or uid
    version = str(body.version) if body and body.version else ""
    made = verb is Verb.CREATE
    old, new = (None, state) if made else (state, None)
    found = (FieldDiff((), "add" if made else "remove", old, new),) if state is not None else ()
    creation = creation_key(resource, uid) if uid else key_of(resource, uid, version)
    return Change(
        resource, sighting.at, verb, creation if made else deletion_key(sighting, uid), sighting.actor, uid,
        version, body.generation if body else None, found, DiffSource.STATES if found else DiffSource.NONE,
        summary(resource, verb, found, old=old, new=new), frozenset({sighting.source}), None, sighting.audit_id,
    )  # fmt: skip


def version_of(change: Change) -> int:
    """The resourceVersion that a change is told with, as a number; 0 for none."""
    return int(change.resource_version) if change.resource_version.isdigit() else 0


def state(sighting: Sighting, entry: Entry, now: Object | None) -> ObjectState:
    """How the object of an entry is ``now``."""
    owner = entry.owner
    version = str(entry.version) if entry.version else ""
    return ObjectState(
        sighting.resource, entry.uid, version, sighting.at.astimezone(UTC), now,
        entry.generation, owner.kind if owner else "", owner.name if owner else "",
    )  # fmt: skip


def gone(sighting: Sighting, uid: str) -> ObjectState:
    """That the object of this uid is there no more."""
    return ObjectState(sighting.resource, uid, "", sighting.at, None, deleted_at=sighting.at)


def lingers(sighting: Sighting, body: Body | None, *, is_watched: bool) -> bool:
    """Whether an object may be there still after the audit log told that it was deleted: for its finalizers, or its
    grace period. An API server answers with the object then, and mostly with no more than its uid where it is gone;
    where neither was recorded, a watch tells of the end."""
    if sighting.source != "audit":
        return False
    if body is not None:
        return body.deleting and body.finalizers
    return is_watched and not sighting.uid


def update(
    sighting: Sighting, body: Body, found: tuple[FieldDiff, ...], *, old: Object | None, new: Object | None
) -> Change:
    """An update that made ``found`` the difference between two states."""
    resource = sighting.resource
    return Change(
        resource, sighting.at, Verb.UPDATE, key_of(resource, body.uid, str(body.version)), sighting.actor, body.uid,
        str(body.version), body.generation, found, DiffSource.STATES,
        summary(resource, Verb.UPDATE, found, old=old, new=new), frozenset({sighting.source}), None,
        sighting.audit_id,
    )  # fmt: skip


def is_compared(change: Change) -> bool:
    """Whether an update is told by its object's states before and after it."""
    return change.diff_source is DiffSource.STATES and change.verb is Verb.UPDATE
