"""Status conditions of custom resources, APIServices and Namespaces -> what does not work.

By convention a condition says of what it is called whether it is so, and Ready, Accepted and their kin are good when
true: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md .
Routes of the Gateway API have conditions for each of their parents. A Namespace has none but those that say what keeps
it from going: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/namespace-v1/#NamespaceStatus .
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from app.core.objects.pod_states import Found
from app.core.objects.raw_workload import RawCondition

GOOD = frozenset(
    {
        *("Ready", "Available", "Accepted", "Programmed", "ResolvedRefs", "Synced", "Healthy", "Established"),
        *("Reconciled", "Valid"),
    }
)
"""Types of conditions that are true where all is well."""
BAD = frozenset(
    {
        *("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure"),
        *("NamespaceDeletionContentFailure", "NamespaceFinalizersRemaining"),
    }
)
"""Types of conditions that are true where something is in the way. That content remains is so of each namespace that
goes, for a while."""
UNDER_WAY = frozenset(
    {
        *("Progressing", "ProgressingWithRetry", "Reconciling", "Pending", "InProgress", "Initializing", "Creating"),
        *("Updating", "Issuing", "DependencyNotReady", "Unknown"),
    }
)
"""Reasons of what is not so yet."""


class RawParent(msgspec.Struct, gc=False):
    conditions: list[RawCondition] | None = None


class RawConditions(msgspec.Struct, gc=False):
    conditions: list[RawCondition] | None = None
    parents: list[RawParent] | None = None


_status = msgspec.json.Decoder(RawConditions)


def failing(status: bytes, at: datetime) -> Found:
    """By reason, since when (``at`` where it does not say) and with which message a good condition is false, or a bad
    one true.

    A status of another shape tells nothing: custom resources are free to have any.
    """
    try:
        told = _status.decode(status)
    except (msgspec.MsgspecError, ValueError):
        return {}
    found: Found = {}
    for condition in _all(told):
        lacks = condition.type in GOOD and condition.status == "False" and condition.reason not in UNDER_WAY
        if lacks or (condition.type in BAD and condition.status == "True"):
            reason = condition.reason or f"{'Not' if lacks else ''}{condition.type}"
            found.setdefault(reason, (condition.lastTransitionTime or at, condition.message))
    return found


def _all(told: RawConditions) -> Iterator[RawCondition]:
    yield from told.conditions or ()
    for parent in told.parents or ():
        yield from parent.conditions or ()
