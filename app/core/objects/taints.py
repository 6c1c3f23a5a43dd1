"""Taints of Nodes: whom an edit of them keeps out, and which of them the scheduler says that pods do not tolerate.

Facts: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/ . Of each node the scheduler names
the first taint that a pod does not tolerate, "node(s) had untolerated taint {KEY: VALUE}", before 1.24 "node(s) had
taint {KEY: VALUE}, that the pod didn't tolerate"; since 1.35 it says "untolerated taint(s)" and names none
(https://github.com/kubernetes/kubernetes/pull/134740).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from app.core.model import Change, FieldDiff, Verb

_REFUSE = ("NoSchedule", "NoExecute")
"""Effects that keep pods out; PreferNoSchedule refuses nobody."""
_NAMED = re.compile(r"\btaint \{([^:}\s]+)")
_WAITS = ("FailedScheduling", "Unschedulable", "Pending")
"""What is said of pods that find no node."""


def refusing(change: Change) -> set[str] | None:
    """The keys of the taints that an update of a Node's taints added or changed and that keep pods out; None for any
    other change, be it of taints and something else."""
    paths = [diff.path for diff in change.diffs]
    is_update = change.resource.kind == "Node" and change.verb is Verb.UPDATE
    if not is_update or not paths or any(path[:2] != ("spec", "taints") for path in paths):
        return None
    return {str(taint.get("key")) for diff in change.diffs for taint in _set(diff) if taint.get("effect") in _REFUSE}


def _set(diff: FieldDiff) -> Iterator[dict[str, Any]]:
    """The taints that are there, or are otherwise, since a diff: of a list, of one item, or of a field of one, of which
    the merge key tells the rest."""
    if len(diff.path) > 3:
        yield dict(diff.path[2]) if isinstance(diff.path[2], tuple) else {}
        return
    old, new = ((value if isinstance(value, list) else [value]) for value in (diff.old, diff.new))
    yield from (taint for taint in new if isinstance(taint, dict) and taint not in old)


def words_back(change: Change) -> list[str]:
    """What ``kubectl taint`` is told to undo an update of a Node's taints and nothing else, a word a taint; none for
    any other change. The list itself cannot be put back: what controllers keep in it is not recorded (normalise).
    https://kubernetes.io/docs/reference/kubectl/generated/kubectl_taint/"""
    before: dict[tuple[str, str], str] = {}
    after: dict[tuple[str, str], str] = {}
    for found in change.diffs:
        if found.path[:2] != ("spec", "taints") or (found.path[3:] and found.path[3:] != ("value",)):
            return []
        known = dict(found.path[2]) if len(found.path) > 3 and isinstance(found.path[2], tuple) else None
        for taken, side in ((before, found.old), (after, found.new)):
            for one in [{**known, "value": side}] if known else side if isinstance(side, list) else [side]:
                if isinstance(one, dict):
                    taken[str(one.get("key")), str(one.get("effect"))] = str(one.get("value") or "")
    gone = [f"{key}:{effect}-" for key, effect in after if (key, effect) not in before]
    return gone + [
        f"{key}={value}:{effect}" if value else f"{key}:{effect}"
        for (key, effect), value in before.items()
        if after.get((key, effect)) != value
    ]


def is_other_taint(change: Change, reason: str, text: str) -> bool:
    """Whether only taints were edited by which the pods that wait for a node, as messages tell, are not kept out: none
    was added, or others than those that the messages name."""
    keys = refusing(change)
    return keys is not None and reason in _WAITS and keys.isdisjoint(_NAMED.findall(text) or keys)
