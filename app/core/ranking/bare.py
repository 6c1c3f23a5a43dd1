"""Pods that nobody owns, put down to who made them where no audit log tells: the one program that may make pods there.

They are counted as an audit log would count them, for making.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.core.changes.audit import slot_of
from app.core.counted import Calls
from app.core.model import CallCount, CallKey, ObjectState

Makers = Mapping[str, frozenset[str]]
"""By namespace, "" for all of them: which users may make pods there."""


def made_bare(pods: Iterable[ObjectState], makers: Makers) -> Calls:
    """Of ``pods``, those that nobody owns as calls of who made them, each when it was last told of, mostly as it was
    given its node; what was there as the record begins was made before. Nothing where more than one may have."""
    all_of_them = [pod for pod in pods if pod.resource.kind == "Pod"]
    alone = (pod for pod in all_of_them if not pod.owner_kind)
    bare = [(pod, user) for pod in alone if (user := _maker(pod.resource.namespace or "", makers))]
    first = slot_of(min(pod.seen_at for pod in all_of_them)) if bare else 0
    return Calls.of(
        CallCount(_created(user, pod), max(first, slot_of(pod.seen_at)), int(slot_of(pod.seen_at) > first), 0)
        for pod, user in bare
    )


def _maker(namespace: str, makers: Makers) -> str:
    """Who may make pods in a namespace, where that is one; who may do so everywhere is behind who may here alone."""
    able = makers.get(namespace) or makers.get("") or frozenset()
    return next(iter(able)) if len(able) == 1 else ""


def _created(user: str, pod: ObjectState) -> CallKey:
    return CallKey(user, "", "", "create", "", "pods", pod.resource.namespace or "", 201)
