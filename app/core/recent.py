"""The changes told lately: where a second sighting of the same write finds the first."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from app.core.body import Body
from app.core.model import Change, Resource, Verb
from app.core.sightings import Sighting

SAME_WRITE = timedelta(seconds=2)
"""How far apart an audit event without a version and a watch event of one write may lie."""

_ROLLED_OUT = (("spec", "template"), ("spec", "updateStrategy"))

BEGAN_WITHIN = timedelta(seconds=10)
"""How far a change and the first sight of the rollout that it began may lie apart."""


class Recent:
    """A bounded number of changes, found by key or by object."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: OrderedDict[int, Change] = OrderedDict()
        self._aliases: dict[int, int] = {}
        self._by_object: defaultdict[Resource, list[int]] = defaultdict(list)
        self._unversioned: OrderedDict[Resource, None] = OrderedDict()

    def by_key(self, key: int) -> Change | None:
        return self._changes.get(self._aliases.get(key, key))

    def add(self, change: Change) -> None:
        self._changes[change.key] = change
        self._by_object[change.resource].append(change.key)
        if not change.resource_version:
            self._unversioned[change.resource] = None
            if len(self._unversioned) > self._limit:
                self._unversioned.popitem(last=False)
        while len(self._changes) > self._limit:
            key, gone = self._changes.popitem(last=False)
            keys = self._by_object[gone.resource]
            keys.remove(key)
            if not keys:
                del self._by_object[gone.resource]

    def update(self, change: Change) -> None:
        """Put a better telling in the place of the first."""
        self._changes[change.key] = change

    def alias(self, key: int, change: Change) -> None:
        """Another key under which the same write may be told again."""
        if key != change.key:
            if len(self._aliases) > self._limit:
                self._aliases.clear()
            self._aliases[key] = change.key

    def of(self, resource: Resource) -> Iterator[Change]:
        """The object's recent changes, the last told first."""
        return (self._changes[key] for key in reversed(self._by_object.get(resource, ())))

    def near(self, sighting: Sighting, body: Body | None) -> Change | None:
        """The change that this sighting tells of again, where a version cannot say so.

        One of the two has no version; same object, same verb, within SAME_WRITE, told by the other source only.
        """
        if body is not None and sighting.resource not in self._unversioned:
            return None
        best: Change | None = None
        for change in self.of(sighting.resource):
            if sighting.at - change.at > 5 * SAME_WRITE:
                break
            if sighting.source in change.sources or change.verb is not sighting.verb:
                continue
            if body is not None and change.resource_version:
                continue
            apart = abs(change.at - sighting.at)
            if apart <= SAME_WRITE and (best is None or apart < abs(best.at - sighting.at)):
                best = change
        return best

    def created(self, resource: Resource, uid: str) -> bool:
        """Whether this life of the object was told to begin."""
        return any(change.verb is Verb.CREATE and change.uid == uid for change in self.of(resource))

    def began_rollout(self, resource: Resource, at: datetime) -> str | None:
        """The id of the last change that touched the object's pod template, or how it is rolled out (a partition holds
        pods back), if it is about as old as ``at``."""
        for change in self.of(resource):
            if at - change.at > 5 * BEGAN_WITHIN:
                break
            if any(not found.path or found.path[:2] in _ROLLED_OUT for found in change.diffs):
                return change.id if abs(at - change.at) <= BEGAN_WITHIN else None
        return None

    def objects(self, kind: str) -> list[Resource]:
        """The objects of a kind with recent changes."""
        return [resource for resource in self._by_object if resource.kind == kind]
