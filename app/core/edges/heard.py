"""What programs read over the API and do not mount: an edit of it is heard by few.

What one of them then does, as it never did, follows from that edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.core.edges.topology import Topology
from app.core.model import Change, FieldDiff, Json
from app.core.objects.kinds import plural_of

HEARD = timedelta(seconds=10)
"""How long after an edit of what it reads a program's write is put down to that: it watches, or asks every few
seconds."""
IN_ONE_GO = timedelta(seconds=1)
"""So soon after one edit the next one of its sort is no further occasion."""
FEW_READERS = 3
"""What more programs read says little about whom it is for."""
BY_CHANCE = 0.3
"""Where so many edits of a sort fall into any ``HEARD``, no single one of them is known to have been meant."""

_Sort = tuple[str, str, str]  # user, api group, plural


def _defaults(diff: FieldDiff) -> bool:
    """Whether a schema gives a field another default, or one more field that has one."""
    return "default" in diff.path or _has_default(diff.old) or _has_default(diff.new)


def _has_default(schema: Json) -> bool:
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return (isinstance(schema, dict) and "default" in schema) or any(map(_has_default, parts))


@dataclass(slots=True)
class Heard:
    """The last edit of each sort that a program reads, and how often there was one before it ``since`` the window
    began: what comes in one go is one."""

    top: Topology
    since: datetime
    _last: dict[str, dict[_Sort, Change]] = field(default_factory=dict)
    _before: Counter[_Sort] = field(default_factory=Counter)

    def tell(self, change: Change) -> None:
        """An edit on which anybody may act is heard by those who read its object, where they are few."""
        for sort in self._readers(change):
            last = self._last.setdefault(sort[0], {})
            self._before[sort] += sort in last and change.at - last[sort].at > IN_ONE_GO
            last[sort] = change

    def by(self, change: Change) -> Change | None:
        """The last edit that the writer of this change had heard just before, of a sort that is heard seldom."""
        found = [
            edit
            for sort, edit in self._last.get(change.actor.name, {}).items()
            if change.at - edit.at <= HEARD
            and edit.resource != change.resource
            and self._before[sort] * HEARD <= BY_CHANCE * max(HEARD, change.at - self.since)
        ]
        return max(found, key=lambda edit: edit.at, default=None)

    def _readers(self, change: Change) -> Iterator[_Sort]:
        resource = change.resource
        group, plural = resource.api_group, plural_of(resource.api_group, resource.kind)
        if resource.kind == "CustomResourceDefinition" and any(map(_defaults, change.diffs)):
            # A default is read in each object that does not say otherwise, at once:
            # https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting
            plural, _, group = resource.name.partition(".")
        users = self.top.reading.get((group, plural, ""), set())
        if resource.namespace and (here := self.top.reading.get((group, plural, resource.namespace))):
            users = users | here
        for user in users - {change.actor.name} if 0 < len(users) <= FEW_READERS else ():
            yield user, group, plural
