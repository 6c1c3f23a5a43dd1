"""Which pods have a change in them: only the pods of its revision can suffer from what a rollout changed, or call more.

A ReplicaSet is a revision of a Deployment and keeps the pod template of its pods; a pod is named after its ReplicaSet.
Pods of a DaemonSet or StatefulSet are made of its template without one in between: each is looked at itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from app.core.model import Change, FieldDiff, Json, ObjectState, Symptom, Verb
from app.core.objects.dependencies import Named
from app.core.objects.diff import apply, undo
from app.core.objects.untyped import fields

TEMPLATE = ("spec", "template")
_REPLICA_SET, _POD = ("apps", "ReplicaSet"), ("", "Pod")
Revisions = Mapping[tuple[str, Named], Mapping[Named, dict[str, Any]]]
"""By the kind and (namespace, name) of who owns them: the pod template of each ReplicaSet, and each pod that no
ReplicaSet owns, by (namespace, name)."""


def revisions(states: Iterable[ObjectState], gone: Iterable[ObjectState] = ()) -> Revisions:
    """``gone`` are pods that went lately: what they complained of still stands."""
    found: dict[tuple[str, Named], dict[Named, dict[str, Any]]] = defaultdict(dict)
    for one in (*gone, *states):
        sort, namespace = (one.resource.api_group, one.resource.kind), one.resource.namespace or ""
        if one.state is None or sort not in (_REPLICA_SET, _POD) or one.owner_kind in ("", "ReplicaSet"):
            continue
        kept: Any = one.state
        if sort == _REPLICA_SET:
            kept = fields(fields(kept.get("spec")).get("template"))
        found[one.owner_kind, (namespace, one.owner_name)][namespace, one.resource.name] = kept
    return found


def pod_of(symptom: Symptom) -> Named | None:
    """The (namespace, name) of the pod that complains."""
    pod = symptom.resource
    return (pod.namespace or "", pod.name) if pod is not None and pod.kind == "Pod" else None


def lacking(change: Change, known: Revisions) -> frozenset[Named]:
    """The revisions of a workload whose pods have in them what this change replaced in the pod template.

    What replaced that again, as the next attempt to mend it does, is no pod without the change: it came after.
    """
    diffs = [replace(diff, path=diff.path[2:]) for diff in change.diffs if diff.path[:2] == TEMPLATE]
    if change.verb is not Verb.UPDATE or not diffs:
        return frozenset()
    found = known.get((change.resource.kind, (change.resource.namespace or "", change.resource.name)), {})
    return frozenset(named for named, template in found.items() if _is_before(diffs, template))


def lacks(pod: Named, without: frozenset[Named]) -> bool:
    """Whether a pod is one of these, or is named after a ReplicaSet that is."""
    return pod in without or (pod[0], pod[1].rpartition("-")[0]) in without


def _is_before(diffs: list[FieldDiff], template: Json) -> bool:
    return any(_was_there(diff, template) and not _is_there(diff, template) for diff in diffs)


def _is_there(diff: FieldDiff, template: Json) -> bool:
    try:
        return apply([diff], template) == template
    except (KeyError, IndexError):  # its place is not there
        return diff.op == "remove"


def _was_there(diff: FieldDiff, template: Json) -> bool:
    try:
        return undo([diff], template) == template
    except (KeyError, IndexError):
        return diff.op == "add"
