"""Which pods have a change in them: what a rollout changed, only the pods of its revision can suffer from.

A ReplicaSet is a revision of a Deployment and keeps the pod template of its pods; a pod is named after its ReplicaSet.
"""

from __future__ import annotations

from app.core.diff import apply, undo
from app.core.model import Change, FieldDiff, Json, Symptom, Verb
from app.core.topology import Named, Topology

TEMPLATE = ("spec", "template")


def revision(symptom: Symptom) -> Named | None:
    """The (namespace, name) of the ReplicaSet that the pod which complains is named after."""
    pod = symptom.resource
    if pod is None or pod.kind != "Pod":
        return None
    return pod.namespace or "", pod.name.rpartition("-")[0]


def lacking(change: Change, top: Topology) -> frozenset[Named]:
    """The revisions of a Deployment whose pods have in them what this change replaced in the pod template.

    What replaced that again, as the next attempt to mend it does, is no pod without the change: it came after.
    """
    diffs = [diff for diff in change.diffs if diff.path[:2] == TEMPLATE]
    resource = change.resource
    if resource.kind != "Deployment" or change.verb is not Verb.UPDATE or not diffs:
        return frozenset()
    found = top.revisions.get((resource.namespace or "", resource.name), ())
    return frozenset((one.namespace or "", one.name) for one in found if _is_before(diffs, top.states[one]))


def _is_before(diffs: list[FieldDiff], state: Json) -> bool:
    return any(_was_there(diff, state) and not _is_there(diff, state) for diff in diffs)


def _is_there(diff: FieldDiff, state: Json) -> bool:
    try:
        return apply([diff], state) == state
    except (KeyError, IndexError):  # its place is not there
        return diff.op == "remove"


def _was_there(diff: FieldDiff, state: Json) -> bool:
    try:
        return undo([diff], state) == state
    except (KeyError, IndexError):
        return diff.op == "add"
