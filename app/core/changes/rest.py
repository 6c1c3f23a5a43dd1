"""Which objects rest: while their desired state stays as it is, their next statuses teach nothing as long as they do.

That is asked of every status that a watch tells.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from app.core.changes.rollouts import KINDS as ROLLED_OUT
from app.core.changes.rollouts import has_rolled_out
from app.core.objects.body import RawWhole

_NEVER = frozenset({"Node", "Namespace", "APIService", "CustomResourceDefinition"})
"""Built-in kinds of which every status is looked at."""


class _True(msgspec.Struct, gc=False):
    status: Literal["True"]
    type: str = ""


class _Ended(msgspec.Struct, gc=False):
    exitCode: Literal[0]  # noqa: N815 - the wire's name
    reason: Literal["Completed"]


class _State(msgspec.Struct, gc=False):
    waiting: None = None
    terminated: _Ended | None = None


class _Container(msgspec.Struct, gc=False):
    state: _State | None = None
    lastState: _State | None = None  # noqa: N815


class _Well(msgspec.Struct, gc=False):
    """The status of a pod that runs, whose conditions are all true, where no container waits and none has ended but
    well: no other can be decoded as this."""

    phase: Literal["Running"]
    conditions: list[_True]
    containerStatuses: list[_Container] | None = None  # noqa: N815
    initContainerStatuses: list[_Container] | None = None  # noqa: N815


_well = msgspec.json.Decoder(_Well)


def rests_for_good(kind: str) -> bool:
    """Whether an object of a built-in kind that rests does so until its desired state changes."""
    return kind != "Pod" and kind not in _NEVER


def rests(kind: str, whole: RawWhole) -> bool:
    """Whether an object of a built-in kind rests: a pod that is well, a workload that has rolled out, anything else
    whose status nobody looks at."""
    if kind == "Pod":
        return is_well(bytes(whole.status))
    if kind in ROLLED_OUT:
        generation = whole.metadata.generation or 0
        return has_rolled_out(kind, bytes(whole.spec), bytes(whole.status), generation=generation)
    return kind not in _NEVER


def is_well(status: bytes) -> bool:
    """Whether a pod runs and is ready, nothing of it has gone wrong of late, and nobody takes it away."""
    try:
        found = _well.decode(status)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    told = {condition.type for condition in found.conditions}
    return "Ready" in told and "DisruptionTarget" not in told
