"""Which objects rest: while their desired state stays as it is, their next statuses teach nothing as long as they do.

That is asked of every status that a watch tells.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from app.core.changes.rollouts import KINDS as ROLLED_OUT
from app.core.changes.standing import has_rolled_out
from app.core.edges.references import is_custom
from app.core.model import Resource
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


def rests_for_good(api_group: str, kind: str) -> bool:
    """Whether an object of this kind that rests does so until its desired state changes."""
    return kind != "Pod" and not _is_always_read(api_group, kind)


def rests(api_group: str, kind: str, whole: RawWhole) -> bool:
    """Whether an object rests: a pod that is well, a workload that has rolled out, anything else whose status nobody
    looks at."""
    if _is_always_read(api_group, kind):
        return False
    if kind == "Pod":
        return is_well(bytes(whole.status))
    if (api_group, kind) in ROLLED_OUT:
        generation = whole.metadata.generation or 0
        return has_rolled_out(kind, bytes(whole.spec), bytes(whole.status), generation=generation)
    return True


@lru_cache(maxsize=4096)
def _is_always_read(api_group: str, kind: str) -> bool:
    """Whether every status is looked at: conditions of a custom resource turn bad long after it was written."""
    return kind in _NEVER or is_custom(Resource("", api_group, kind, None, ""))


def is_well(status: bytes) -> bool:
    """Whether a pod runs and is ready, nothing of it has gone wrong of late, and nobody takes it away."""
    try:
        found = _well.decode(status)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    told = {condition.type for condition in found.conditions}
    return "Ready" in told and "DisruptionTarget" not in told
