"""Which changes chat is told of: those that begin something, and not what follows, repeats or tunes itself."""

from __future__ import annotations

from app.core.edges.mechanism import only_scales
from app.core.model import Change, DiffSource, FieldDiff, Verb
from app.core.objects import kinds
from app.core.objects.actors import acts_by_itself, is_controller
from app.core.objects.created import helm_words
from app.core.objects.kinds import Policy

_CRON_JOB = frozenset({"suspend", "schedule", "timeZone", "image"})
"""Fields of a CronJob that say whether, when and what it runs, by the last step of their path."""
_NODE = (("spec", "unschedulable"), ("spec", "taints"), ("status", "nodeInfo", "kubeletVersion"))
_WRITTEN_BY_MACHINES = "caBundle"
"""Is put into webhooks, definitions and APIServices by who renews certificates."""


def is_told(change: Change) -> bool:
    """Whether chat is told of a change: its kind is (kinds.Policy.TOLD), or it is a release of Helm, and it does more
    than to scale or to label. What another change began, and what a cluster only remembers, never is."""
    if change.begun_by or change.found_in:
        return False
    resource = change.resource
    if helm_words(resource):
        return change.verb is Verb.CREATE
    if kinds.policy(resource.api_group, resource.kind) is not Policy.TOLD:
        return False
    if kinds.told_by(resource.api_group):
        return True
    if change.verb is not Verb.UPDATE:
        return resource.kind != "Node"  # they come and go with the load
    by_itself = is_controller(change.actor) or acts_by_itself(change.actor.name)
    if change.diff_source is DiffSource.NONE:  # what was written nobody told: programs mostly scale
        return resource.kind not in {"Node", "CronJob", "Namespace"} and not by_itself
    if only_scales(change):
        return change.diffs[0].new == 0 and not by_itself
    return any(_says_something(resource.kind, diff) for diff in change.diffs)


def _says_something(kind: str, diff: FieldDiff) -> bool:
    match kind:
        case "Node":
            return any(diff.path[: len(field)] == field for field in _NODE)
        case "CronJob":
            return diff.path[-1:] != () and diff.path[-1] in _CRON_JOB
        case "Namespace":
            return False  # told when it comes and when it goes
    return diff.path[:1] not in {("metadata",), ("status",)} and diff.path[-1:] != (_WRITTEN_BY_MACHINES,)


def never_told(kind: str) -> bool:
    """Whether changes of every kind of this name, whatever its case, are on the timeline alone.

    One in small letters that Kubernetes does not have is somebody else's (kinds.EXTERNAL).
    """
    known = [info for info in kinds.BUILT_IN.values() if info.kind.lower() == kind.lower()]
    return not any(info.policy is Policy.TOLD for info in known) and (bool(known) or not kind.islower())
