"""Which pods have a change in them: what a rollout changed, only the pods of its revision can suffer from.

A ReplicaSet is a revision of a Deployment and keeps the pod template of its pods; a pod is named after its ReplicaSet.
"""

from __future__ import annotations

from app.core.diff import apply
from app.core.model import Change, FieldDiff, Json, Resource, Symptom, Verb
from app.core.topology import Named, Topology

TEMPLATE = ("spec", "template")


def revision(symptom: Symptom) -> Named | None:
    """The (namespace, name) of the ReplicaSet that the pod which complains is named after."""
    pod = symptom.resource
    if pod is None or pod.kind != "Pod":
        return None
    return pod.namespace or "", pod.name.rpartition("-")[0]


def lacking(change: Change, top: Topology) -> frozenset[Named]:
    """The revisions of a Deployment whose pods do not have in them what this change wrote into the pod template."""
    diffs = [diff for diff in change.diffs if diff.path[:2] == TEMPLATE]
    resource = change.resource
    if resource.kind != "Deployment" or change.verb is not Verb.UPDATE or not diffs:
        return frozenset()
    found = top.revisions.get((resource.namespace or "", resource.name), ())
    return frozenset((one.namespace or "", one.name) for one in found if not _has(diffs, one, top))


def _has(diffs: list[FieldDiff], revision: Resource, top: Topology) -> bool:
    state: Json = top.states[revision]
    return all(_is_there(diff, state) for diff in diffs)


def _is_there(diff: FieldDiff, state: Json) -> bool:
    try:
        return apply([diff], state) == state
    except (KeyError, IndexError):  # its place is not there
        return diff.op == "remove"
