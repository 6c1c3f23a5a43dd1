"""The pod templates that a workload had, as its revisions keep them: what each rollout changed, field by field.

Deployments (and Argo's Rollouts) keep them in ReplicaSets, numbered by an annotation, StatefulSets and DaemonSets in
ControllerRevisions; as many as the workload's revisionHistoryLimit says, 10 where nothing is said. Going back to an
earlier template gives its revision a new number and leaves its creationTimestamp: when that was, only the times of the
revision before it and of the last write to its own object bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise

import msgspec
from msgspec import Struct

from app.core.changes import summaries
from app.core.changes.made import key_of
from app.core.changes.past import HISTORY, SAME, Remembering, entries, update
from app.core.model import Change, DiffSource, Json, Object, Verb
from app.core.objects.body import Body
from app.core.objects.normalise import normalise
from app.core.objects.redact import Redactor, decode

KINDS = frozenset({("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("argoproj.io", "Rollout")})
"""The workloads whose templates are kept."""
KEPT_IN = (("apps", "ReplicaSet"), ("apps", "ControllerRevision"))
_BEFORE = "deployment.kubernetes.io/revision-history"
"""The numbers that a ReplicaSet had before. A ControllerRevision is written anew only to give it another number."""
_NUMBERS = ("deployment.kubernetes.io/revision", "rollout.argoproj.io/revision")


class Revision(Struct, frozen=True, gc=False):
    """One template of one workload. ``made`` is when its object was created, ``touched`` when that was last written.

    ``again``: the workload left it and came back; ``original``: it is known to have begun with it. ``template`` is
    normalised, redacted, and packed as JSON: many are held at a time.
    """

    owner: str
    number: int
    name: str
    made: datetime
    touched: datetime
    again: bool
    original: bool
    template: bytes

    @property
    def state(self) -> Object:
        return {"spec": {"template": msgspec.json.decode(self.template)}}


class _Owner(Struct, gc=False):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - the wire's name
    uid: str = ""
    controller: bool | None = None


class _Metadata(Struct, gc=False):
    name: str = ""
    uid: str = ""
    creationTimestamp: datetime | None = None  # noqa: N815
    annotations: dict[str, str] | None = None
    ownerReferences: list[_Owner] | None = None  # noqa: N815


class _Spec(Struct, gc=False):
    template: msgspec.Raw = msgspec.Raw(b"null")


class _Data(Struct, gc=False):
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Keeper(Struct, gc=False):
    """A ReplicaSet, or a ControllerRevision."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    data: _Data | None = None
    revision: int = 0


_keeper = msgspec.json.Decoder(_Keeper)


def revision(raw: bytes, body: Body, redactor: Redactor) -> Revision | None:
    """The template that a ReplicaSet or ControllerRevision keeps; None where it keeps none of a workload's.

    Raises msgspec.MsgspecError and ValueError on what is neither.
    """
    found = _keeper.decode(raw)
    meta = found.metadata
    owner = next((one for one in meta.ownerReferences or () if one.controller), None)
    group = owner.apiVersion.rpartition("/")[0] if owner else ""
    if owner is None or meta.creationTimestamp is None or (group, owner.kind) not in KINDS:
        return None
    annotations = meta.annotations or {}
    numbers = [annotations.get(name, "") for name in _NUMBERS]
    number = found.revision or next((int(text) for text in numbers if text.isdigit()), 0)
    had = [int(text) for text in annotations.get(_BEFORE, "").split(",") if text.isdigit()]
    template = decode(bytes(found.data.spec.template if found.data else found.spec.template))
    if not number or not isinstance(template, dict):
        return None
    template.pop("$patch", None)  # of a ControllerRevision: its data is a patch that replaces
    whole: Object = {"kind": owner.kind, "metadata": {}, "spec": {"template": template}}
    state = normalise(redactor.object(group, owner.kind, whole), group, kind=owner.kind)
    spec = state.get("spec")
    kept = spec.get("template") if isinstance(spec, dict) else None
    written = body.last_written()
    touched = msgspec.convert(written, datetime) if written else meta.creationTimestamp
    again = bool(had or (found.data and touched - meta.creationTimestamp > SAME))
    packed = msgspec.json.encode(kept)
    return Revision(
        owner.uid, number, meta.name, meta.creationTimestamp, touched, again, min([number, *had]) == 1, packed
    )


class _Use(Struct, frozen=True):
    """A workload going over to a template: for the first time, or back to it."""

    revision: Revision
    first: bool


def updates(one: Remembering, kept: list[Revision]) -> Iterator[Change]:
    """The updates of a workload that its revisions tell of, the oldest first; not its creation."""
    uses = _uses(kept)
    word = "ControllerRevision" if one.resource.kind in ("StatefulSet", "DaemonSet") else "ReplicaSet"
    if not uses:
        return
    oldest = uses[0].revision
    if one.created is not None and not oldest.original and oldest.made - one.created > SAME:
        yield _unknown(one, oldest, found_in=f"{word} {oldest.name}")
    began = oldest.made
    for place, (before, after) in enumerate(pairwise(uses), 1):
        here = after.revision
        later = [use.revision.made for use in uses[place + 1 :] if use.first]
        change = update(
            one,
            (before.revision.state, here.state),
            (began, here.made if after.first else max(began, min([here.touched, *later]))),
            at=here.made if after.first else None,
            name=_first(here) if after.first else f"revision {here.number}",
            found_in=f"{word} {here.name}",
        )
        if change is not None:
            began = change.at if change.since is None else began
            yield change
    yield from _not_rolled_out(one, uses[-1].revision)


def _uses(kept: list[Revision]) -> list[_Use]:
    """How a workload went from template to template, as far as that is known: first uses as they were made; the last
    return to a template behind what its number follows."""
    uses = [_Use(one, first=True) for one in sorted(kept, key=lambda one: (one.made, one.number))]
    for one in sorted(kept, key=lambda one: one.number):
        if one.again:
            before = max((other for other in kept if other.number < one.number), key=_number, default=None)
            places = [place for place, use in enumerate(uses) if use.revision == before]
            uses.insert(places[-1] + 1 if places else len(uses), _Use(one, first=False))
    return uses


def _number(one: Revision) -> int:
    return one.number


def _first(one: Revision) -> str:
    return f"template {one.name}"


def _unknown(one: Remembering, oldest: Revision, *, found_in: str) -> Change:
    """The rollout of the oldest template that is kept: the one before it was forgotten."""
    why = "the template before it was forgotten"
    said = summaries.summary(one.resource, Verb.UPDATE, (), old=None, new=None, unknown=why)
    return Change(
        one.resource, oldest.made, Verb.UPDATE, key_of(one.resource, one.uid, _first(oldest)), uid=one.uid,
        diff_source=DiffSource.NONE, summary=said, sources=frozenset({HISTORY}), found_in=one.found_in(found_in),
    )  # fmt: skip


def _not_rolled_out(one: Remembering, last: Revision) -> Iterator[Change]:
    """A template that no revision has yet: the workload is paused, or its controller does not work."""
    spec = one.state.get("spec")
    now: Json = spec.get("template") if isinstance(spec, dict) else None
    wrote = [entry.at for entry in entries(one) if any(path[:2] == ("spec", "template") for path in entry.paths)]
    if now is None or not wrote or max(wrote) < last.made:
        return
    at = max(wrote)
    change = update(
        one, (last.state, {"spec": {"template": now}}), (at, at), at=at,
        name=f"template of {at.isoformat()}", found_in="managedFields",
    )  # fmt: skip
    if change is not None:
        yield change
