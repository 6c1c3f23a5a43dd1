"""What somebody asks of a rollout of Argo's that is under way: to go on, to stop, to be tried again.

`kubectl argo rollouts` asks for it by a field or two of the status alone, and so do its dashboard and Argo CD
(https://github.com/argoproj/argo-rollouts/tree/v1.10.2/pkg/kubectl-argo-rollouts/cmd: promote, abort, retry). Its
controller writes these fields, too, but always others with them. Who asked only the audit log knows, where it has the
bodies of requests; no desired state is changed.
"""

from __future__ import annotations

from msgspec.structs import replace

from app.core.changes.made import key_of
from app.core.changes.patches import patch_diffs
from app.core.changes.rollouts import ARGO
from app.core.changes.sightings import Learned, Sighting
from app.core.changes.summaries import clip, subject_of
from app.core.model import Change, DiffSource, Object, Verb
from app.core.objects.redact import decode

_AND_STEP = frozenset({"pauseConditions", "currentStepIndex"})


def with_asked(sighting: Sighting, learned: Learned) -> Learned:
    """``learned`` with the change that it is to ask for such a thing, where that is what was sent."""
    change = _change(sighting) if sighting.subresource == "status" and sighting.patch is not None else None
    return learned if change is None else replace(learned, changes=(*learned.changes, change))


def is_asked(change: Change) -> bool:
    """Whether a change is such a request."""
    return (change.resource.api_group, change.resource.kind) == ARGO and {one.path[:1] for one in change.diffs} == {
        ("status",)
    }


def taken_back_by(change: Change) -> str:
    """The command of `kubectl argo rollouts` that undoes what was asked."""
    aborted = any(found.path == ("status", "abort") and found.new is True for found in change.diffs)
    return "retry rollout" if aborted else "abort"


def _change(sighting: Sighting) -> Change | None:
    resource = sighting.resource
    if (resource.api_group, resource.kind) != ARGO or sighting.verb is not Verb.UPDATE:
        return None
    status = _status(sighting.patch or b"")
    asked = _word(status) if status is not None else ""
    if not asked:
        return None
    told = f"audit:{sighting.audit_id}:{sighting.at.isoformat()}"
    version = sighting.resource_version
    return Change(
        resource, sighting.at, Verb.UPDATE,
        key_of(resource, sighting.uid if version else "", f"asked:{version or told}"),
        sighting.actor, sighting.uid, version, diffs=patch_diffs({"status": status}, None),
        diff_source=DiffSource.PATCH, summary=clip(f"rollout of {subject_of(resource)} {asked}"),
        sources=frozenset({sighting.source}), audit_id=sighting.audit_id,
    )  # fmt: skip


def _status(patch: bytes) -> Object | None:
    """The status that a merge patch of nothing else sets."""
    try:
        sent = decode(patch)
    except ValueError:
        return None
    status = sent.get("status") if isinstance(sent, dict) and len(sent) == 1 else None
    return status if isinstance(status, dict) else None


def _word(status: Object) -> str:
    """What it asks for; "" where it is no such request."""
    match status:
        case {"abort": abort} if len(status) == 1 and (abort is None or isinstance(abort, bool)):
            return "aborted" if abort else "retried"
        case {"promoteFull": True} if len(status) == 1:
            return "promoted in full"
        case {"pauseConditions": None} if status.keys() <= _AND_STEP:
            return "promoted"
    return ""
