"""Objects of a cluster as they are now -> changes of its past, as far as the cluster remembers it itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from app.core.changes.deliveries import deliveries
from app.core.changes.past import HISTORY, SAME, Remembering, creation, deletion, last_writes
from app.core.changes.templates import KEPT_IN, KINDS, Revision, revision, updates
from app.core.model import Change, DiffSource, Object, Resource, Verb
from app.core.objects.body import Body
from app.core.objects.kinds import Kinds, Policy
from app.core.objects.parts import Parts
from app.core.objects.redact import Redactor

_TEMPLATE = ("spec", "template")
_RELEASE = "meta.helm.sh/release-name"


class _Deleted(Struct, gc=False):
    deletionTimestamp: datetime | None = None  # noqa: N815 - the wire's name
    deletionGracePeriodSeconds: int | None = None  # noqa: N815


class _Meta(Struct, gc=False):
    metadata: _Deleted


_deleted = msgspec.json.Decoder(_Meta)


class Past:
    """The past of one cluster. Revisions are to be kept before the workloads that they are of are asked for."""

    def __init__(self, redactor: Redactor, kinds: Kinds) -> None:
        self._redactor, self._kinds = redactor, kinds
        self._parts = Parts(redactor)
        self._revisions: dict[str, list[Revision]] = {}

    def keep(self, raw: bytes, body: Body) -> None:
        """Hold the template that a ReplicaSet or ControllerRevision keeps. Raises as templates.revision does."""
        found = revision(raw, body, self._redactor)
        if found is not None:
            self._revisions.setdefault(found.owner, []).append(found)

    def of(self, resource: Resource, raw: bytes, body: Body) -> list[Change]:
        """What one object tells of its past, in no order. Raises msgspec.MsgspecError and ValueError."""
        name = resource.api_group, resource.kind
        if name in KEPT_IN or self._kinds.policy(*name) not in (Policy.TOLD, Policy.TIMELINE):
            return []
        if resource.kind == "Job" and body.owner(resource) is not None:
            return []  # a run of a CronJob
        one = self._remembering(resource, raw, body)
        found = list(updates(one, self._revisions.get(body.uid, []))) if name in KINDS else []
        found += deliveries(one, body.status(), self._redactor.text)
        found += list(last_writes(one, found))
        whole = (creation(one, found), deletion(one))
        return [*found, *(change for change in whole if change is not None)]

    def _remembering(self, resource: Resource, raw: bytes, body: Body) -> Remembering:
        state = self._parts.state(resource, body)
        going = _deleted.decode(raw).metadata
        grace = timedelta(seconds=going.deletionGracePeriodSeconds or 0)
        return Remembering(
            resource,
            body.uid,
            state,
            body.managed_fields(),
            created=body.created,
            deleted=going.deletionTimestamp - grace if going.deletionTimestamp else None,
            generation=body.generation,
            release=_release(state),
        )


def _release(state: Object) -> str:
    metadata = state.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    name = annotations.get(_RELEASE) if isinstance(annotations, dict) else None
    return name if isinstance(name, str) else ""


def is_remembered(change: Change) -> bool:
    """Whether nobody told of this write but the cluster's own memory."""
    return HISTORY in change.sources and not change.resource_version


def same_write(remembered: Change, told: Change) -> bool:
    """Whether a change that a cluster remembers is the one that was told: of the same object, by the time, and in what
    it changed as far as that is known. Both are updates: a creation and a deletion have keys of their own."""
    if remembered.uid != told.uid or not remembered.verb is told.verb is Verb.UPDATE:
        return False
    begins, ends = (remembered.since or remembered.at) - SAME, remembered.at + SAME
    if (told.since or told.at) > ends or told.at < begins:
        return False
    known = DiffSource.NONE not in (remembered.diff_source, told.diff_source)
    return not known or _of_template(remembered) == _of_template(told)


def _of_template(change: Change) -> bool:
    return any(found.path[:2] == _TEMPLATE for found in change.diffs)


def made_in(found: Iterable[Change], begin: datetime, end: datetime) -> list[Change]:
    """Those that were made in [begin, end], the oldest first."""
    return sorted((one for one in found if begin <= one.at <= end), key=lambda one: (one.at, one.key))
