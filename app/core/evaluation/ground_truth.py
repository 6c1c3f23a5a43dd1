"""What a benchmark says an incident's root cause was, and which of the recorded changes that makes right.

It names objects, not changes: by kind, namespace and regular expressions of names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct

from app.core.model import Change, ObjectState, Resource

Known = tuple[str, str | None, str]
"""An object by its kind, namespace and name."""


class GroundTruthError(ValueError):
    """A ground truth that cannot be used; the message says what of it, and what to do."""


class RawNamed(Struct):
    name: str
    namespace: str | None = None


class RawEntity(Struct):
    """An object at fault, as version 2 names it."""

    kind: str
    metadata: RawNamed


class RawGroup(Struct):
    """Objects of one kind, by the regular expressions of ``filter`` or by one ``name``."""

    kind: str
    id: str = ""
    namespace: str | None = None
    name: str = ""
    filter: list[str] | None = None
    root_cause: bool = False


class RawAlert(Struct):
    """An alert that the fault is expected to set off, by its name: ``id`` in version 1, ``name`` in version 2."""

    id: str = ""
    name: str = ""


class RawSpec(Struct):
    alerts: list[RawAlert] | None = None
    groups: list[RawGroup] | None = None
    entities: list[RawEntity] | None = None


class RawGroundTruth(RawSpec):
    """A ground truth with its ``spec`` around it, or bare."""

    spec: RawSpec | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Objects that are a root cause. Kinds are compared without regard to case: ground truths say HttpChaos."""

    kind: str
    namespace: str | None
    names: tuple[re.Pattern[str], ...]

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{' or '.join(one.pattern for one in self.names)}"

    def has(self, kind: str, namespace: str | None, name: str) -> bool:
        """Whether an object is one of them. What is in no namespace may be said to be in any, as a Namespace is."""
        return (
            kind.lower() == self.kind.lower()
            and (None in (namespace, self.namespace) or namespace == self.namespace)
            and any(one.match(name) for one in self.names)
        )


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """The root causes, and the names of the alerts that are expected, which may be none."""

    causes: tuple[Group, ...]
    alerts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, raw: RawGroundTruth) -> GroundTruth:
        """Raises GroundTruthError."""
        spec = raw.spec or raw
        causes = [_group(group) for group in spec.groups or () if group.root_cause]
        named = [(one.kind, one.metadata) for one in spec.entities or ()]
        causes += [Group(kind, which.namespace, (_exactly(which.name),)) for kind, which in named]
        if not causes:
            raise GroundTruthError('it names no root cause: neither "groups" with root_cause: true nor "entities"')
        return cls(tuple(causes), frozenset(one.id or one.name for one in spec.alerts or ()) - {""})

    def right(self, changes: Iterable[Change], states: Iterable[ObjectState], *, before: datetime) -> frozenset[str]:
        """The ids of the changes that are as right an answer as this can tell: those that may have been made ``before``
        a time, to an object of a root cause, to one that owns it, or to one that it owns.

        ``states`` tell who owns whom. A group of a workload's kind may name it by the names of its pods.
        """
        family = _Family(states)
        return frozenset(
            change.id
            for change in changes
            if (change.since or change.at) <= before and self._is(change.resource, family)
        )

    def _is(self, resource: Resource, family: _Family) -> bool:
        itself = (resource.kind, resource.namespace, resource.name)
        owned = list(family.owned(itself))
        akin = (itself, *family.owners(itself), *owned, *((resource.kind, one[1], one[2]) for one in owned))
        return any(cause.has(*one) for cause in self.causes for one in akin)


class _Family:
    """Who owns whom."""

    def __init__(self, states: Iterable[ObjectState]) -> None:
        self._owner: dict[Known, Known] = {}
        self._owned: dict[Known, list[Known]] = defaultdict(list)
        for state in states:
            if state.owner_kind:
                one = state.resource
                owned, owner = (one.kind, one.namespace, one.name), (state.owner_kind, one.namespace, state.owner_name)
                self._owner[owned] = owner
                self._owned[owner].append(owned)

    def owners(self, one: Known) -> Iterator[Known]:
        """The owner, its owner and so on; what was seen is not followed again: references may go in circles."""
        seen = {one}
        while (owner := self._owner.get(one)) and owner not in seen:
            yield owner
            seen.add(owner)
            one = owner

    def owned(self, one: Known) -> Iterator[Known]:
        """All that it owns, and what these own."""
        left, seen = [one], {one}
        while left:
            for owned in self._owned.get(left.pop(), ()):
                if owned not in seen:
                    yield owned
                    seen.add(owned)
                    left.append(owned)


def _group(raw: RawGroup) -> Group:
    named = f'the root cause "{raw.id or raw.kind}"'
    if not raw.filter and not raw.name:
        raise GroundTruthError(f'{named} names no object: give it a "filter" or a "name"')
    try:
        names = [re.compile(text) for text in raw.filter or ()]
    except re.error as error:
        raise GroundTruthError(f"{named}: {error.pattern!r} is no regular expression: {error}") from None
    return Group(raw.kind, raw.namespace, tuple(names) or (_exactly(raw.name),))


def _exactly(name: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(name)}\Z")
