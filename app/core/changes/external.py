"""Changes that Kubernetes does not see: a deploy of CI, a feature flag, Terraform, DNS, a console of a cloud.

Each becomes a Change like any other, of a resource whose API group says who told of it (kinds.EXTERNAL), and is ranked
by the same evidence. What is told is redacted before anything else is done with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.core.changes import summaries
from app.core.changes.summaries import clip
from app.core.model import (
    Actor,
    ActorSource,
    Change,
    DiffSource,
    FieldDiff,
    Json,
    ObjectState,
    Path,
    Resource,
    Segment,
    Verb,
    version_key,
)
from app.core.objects.kinds import EXTERNAL
from app.core.objects.redact import Redactor

AHEAD = timedelta(minutes=5)
"""How far a sender's clock may go ahead of ours: what Kerberos allows, too (RFC 4120, section 8.2)."""
UNTOLD = "what of it, nobody said"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\[\]]+)\]")


class External(Struct, frozen=True):
    """What a sender tells of one change. ``cluster`` None is every cluster; ``at`` None is when it is received.

    ``namespace`` and ``workload``, a workload of that namespace, are what it concerns, where it concerns something.
    ``actor`` "" is nobody but the ``source``; ``summary`` "" is made of the rest.
    """

    source: str
    kind: str
    name: str
    verb: Verb = Verb.UPDATE
    cluster: str | None = None
    namespace: str | None = None
    workload: str = ""
    at: datetime | None = None
    actor: str = ""
    summary: str = ""
    url: str = ""
    fields: tuple[FieldDiff, ...] = ()


def path_of(text: str) -> Path:
    """A path as people write it, ``rules[0].rollout`` or ``web[blue].size``. Raises ValueError, in words."""
    steps: list[Segment] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None or (at == 0 and text[0] == "."):
            raise ValueError("a path is names with dots between them, and what stands in a list in [brackets]")
        name, item = step.groups()
        item = item and item.strip("\"'")
        steps.append(int(item) if item and item.isascii() and item.isdigit() and len(item) < 9 else name or item)
        at = step.end()
    return tuple(steps)


def field(path: str, old: Json, new: Json) -> FieldDiff:
    """A field before and after; None is where there was none, or is none. Raises ValueError for what is no path."""
    op = "add" if old is None else "remove" if new is None else "replace"
    return FieldDiff(path_of(path), op, old, new)


def redacted(told: External, redactor: Redactor) -> External:
    """The same without its secrets."""
    group = EXTERNAL + told.source
    return replace(
        told,
        name=redactor.text(told.name),
        actor=redactor.text(told.actor),
        summary=redactor.text(told.summary),
        url=redactor.uri(told.url),
        fields=tuple(_redacted(found, group, told.kind, redactor=redactor) for found in told.fields),
    )


def _redacted(found: FieldDiff, group: str, kind: str, *, redactor: Redactor) -> FieldDiff:
    old, new = (_value(value, found.path, group, kind=kind, redactor=redactor) for value in (found.old, found.new))
    return FieldDiff(tuple(_step(step, redactor) for step in found.path), found.op, old, new)


def _step(step: Segment, redactor: Redactor) -> Segment:
    if isinstance(step, tuple):
        return tuple((name, redactor.text(value)) for name, value in step)
    return redactor.text(step) if isinstance(step, str) else step


def _value(value: Json, path: Path, group: str, *, kind: str, redactor: Redactor) -> Json:
    """A value as it is kept where it stands: what it is called decides, and what it is under."""
    if value is None:
        return None
    tree = value
    for step in reversed(path):
        tree = {str(step): tree}
    kept: Json = redactor.object(group, kind, tree if isinstance(tree, dict) else {"value": tree})
    for _ in path:
        if not isinstance(kept, dict):
            break  # all below a secretive name is one secret
        kept = next(iter(kept.values()))
    return kept


def digest(told: External) -> bytes:
    """Equal for what tells the same. Of what is redacted, so that nobody can test a guess of a secret with it."""
    return sha256(msgspec.json.encode(told, order="deterministic")).digest()


def resource_of(told: External, cluster: str) -> Resource:
    """What was changed, as a resource of this cluster."""
    return Resource(cluster, EXTERNAL + told.source, told.kind, told.namespace, told.name)


def change_of(told: External, cluster: str, *, request: str, now: datetime) -> Change:
    """The change in one cluster. ``told`` is redacted; ``request`` names the request that told of it, and no other."""
    resource = resource_of(told, cluster)
    summary = clip(told.summary) or summaries.summary(
        resource, told.verb, told.fields, old=None, new=None, unknown=UNTOLD
    )
    return Change(
        resource,
        told.at or now,
        told.verb,
        version_key(cluster, str(resource), f"{resource.api_group} {request}"),
        actor=Actor(told.actor or told.source, ActorSource.TOLD, user_agent=told.source),
        diffs=told.fields,
        diff_source=DiffSource.PATCH if told.fields else DiffSource.NONE,
        summary=summary,
        sources=frozenset({"external"}),
        url=told.url,
        workload=told.workload,
    )


def states_of(told: Iterable[Change]) -> tuple[ObjectState, ...]:
    """What is known of their resources since: whether they are there."""
    return tuple(
        ObjectState(one.resource, "", "", one.at, None, deleted_at=one.at if one.verb is Verb.DELETE else None)
        for one in told
    )
