"""What watches have told of each object, so that a status need not tell it again: the desired state, and that it rests.

What is remembered here must have been kept: it lasts as long as one connection, which ends when something could not be.
It says nothing of what was learned since; who finds that something of it is not known asks for the whole again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from app.collect.words import Served
from app.core.changes.rest import rests, rests_for_good
from app.core.objects.body import RawWhole, small_hash
from app.core.objects.kinds import BUILT_IN

LIMIT = 100_000
"""Objects of a kind that are remembered, of about 100 bytes each; what comes then begins to fill it anew."""


class News(Enum):
    """How much of an object is new to who was told of it before."""

    ALL = "all of it, or one cannot tell"
    STATUS = "no more than its status"
    NONE = "nothing that teaches anything: it rests as it did"


class KindDesired:
    """The desired states of one kind's objects, as its watch told them last."""

    def __init__(self, served: Served) -> None:
        self._name = served.api_group, served.kind
        self._rest_for_good = rests_for_good(*self._name)
        self._kind, self._api_version = msgspec.Raw(f'"{served.kind}"'), msgspec.Raw(f'"{served.api_version}"')
        self.is_kept = (served.api_group, served.kind) in BUILT_IN and served.kind != "Event"
        """Not custom resources: who wrote them last is read of every version. Events have no desired state."""
        self._told: dict[int, int] = {}
        """By the hash of the uid: that of the desired state, and in the last bit whether it was told at rest."""
        self._is_late = False

    def begin(self) -> None:
        """All objects will be told."""
        self._told.clear()
        self._is_late = False

    def resumed(self) -> None:
        """What comes now may have happened before: only a whole object says when."""
        self._is_late = True

    def reached(self) -> None:
        """All that was late has been told."""
        self._is_late = False

    def news(self, whole: RawWhole) -> News:
        """What is new of an object that is told now."""
        meta = whole.metadata
        is_ours = whole.kind == self._kind and whole.apiVersion == self._api_version
        if not (is_ours and meta.uid and meta.name and meta.resourceVersion.isdigit()):
            self.forget((meta.uid,))
            return News.ALL
        key, desired = small_hash(meta.uid), whole.desired() & ~1
        told = self._told.get(key)
        if told is None or told & ~1 != desired:
            if len(self._told) >= LIMIT:
                self._told.clear()
            self._told[key] = desired
            return News.ALL
        rested = bool(told & 1)
        if not (rested and self._rest_for_good):
            rest = rests(*self._name, whole)
            if rest != rested:
                self._told[key] = desired | rest
            rested = rested and rest
        if self._is_late:
            return News.ALL
        return News.NONE if rested else News.STATUS

    def forget(self, uids: Iterable[str] | None = None) -> None:
        """Tell these objects as a whole when they are told next; or all of them."""
        if uids is None:
            self._told.clear()
            return
        for uid in uids:
            self._told.pop(small_hash(uid), None)


class Desired:
    """What was told of one cluster through one connection."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], KindDesired] = {}

    def of(self, served: Served) -> KindDesired:
        """A kind whose watch begins: nothing has been told of it yet."""
        made = self._kinds[served.name] = KindDesired(served)
        return made

    def forget(self, uids: Iterable[str] | None = None) -> None:
        """As KindDesired.forget, whatever kind they are of."""
        uids = None if uids is None else tuple(uids)
        for kind in self._kinds.values():
            kind.forget(uids)
