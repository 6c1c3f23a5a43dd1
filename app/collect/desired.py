"""Which desired state watches have told of each object, so that a status alone need not tell it again.

What is remembered here must have been kept: it lasts as long as one connection, which ends when something could not be.
It says nothing of what was learned since; who finds that something of it is not known asks for the whole again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from app.collect.words import Served
from app.core.body import RawWhole
from app.core.kinds import BUILT_IN

LIMIT = 100_000
"""Objects of a kind that are remembered, of about 130 bytes each; what comes then begins to fill it anew."""


class KindDesired:
    """The desired states of one kind's objects, as its watch told them last."""

    def __init__(self, served: Served) -> None:
        self._kind, self._api_version = msgspec.Raw(f'"{served.kind}"'), msgspec.Raw(f'"{served.api_version}"')
        self.is_kept = (served.api_group, served.kind) in BUILT_IN and served.kind != "Event"
        """Not custom resources: who wrote them last is read of every version. Events have no desired state."""
        self._hashes: dict[int, int] = {}
        self._is_late = False

    def begin(self) -> None:
        """All objects will be told."""
        self._hashes.clear()
        self._is_late = False

    def resumed(self) -> None:
        """What comes now may have happened before: only a whole object says when."""
        self._is_late = True

    def reached(self) -> None:
        """All that was late has been told."""
        self._is_late = False

    def is_told(self, whole: RawWhole) -> bool:
        """Whether the desired state of an object is the one that was told last: from now on it is."""
        meta = whole.metadata
        is_ours = whole.kind == self._kind and whole.apiVersion == self._api_version
        if not (is_ours and meta.uid and meta.name and meta.resourceVersion.isdigit()):
            return False
        key, desired = hash(meta.uid), whole.desired()
        if self._hashes.get(key) == desired:
            return not self._is_late
        if len(self._hashes) >= LIMIT:
            self._hashes.clear()
        self._hashes[key] = desired
        return False

    def forget(self, uids: Iterable[str] | None = None) -> None:
        """Tell these objects as a whole when they are told next; or all of them."""
        if uids is None:
            self._hashes.clear()
            return
        for uid in uids:
            self._hashes.pop(hash(uid), None)


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
