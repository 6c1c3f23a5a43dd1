"""What is told of one kind of one cluster, in order: what its objects are, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.core.objects.body import AsBefore


class Served(msgspec.Struct, frozen=True):
    """A kind as an API server serves it."""

    api_group: str
    version: str
    kind: str
    plural: str

    @property
    def name(self) -> tuple[str, str]:
        """The kind whatever its version: its group and its plural."""
        return self.api_group, self.plural

    @property
    def api_version(self) -> str:
        return f"{self.api_group}/{self.version}" if self.api_group else self.version

    @property
    def path(self) -> str:
        """Of all its objects, in every namespace."""
        return f"/{'apis' if self.api_group else 'api'}/{self.api_version}/{self.plural}"


class Saw(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """An object as it is now (``type`` ADDED, MODIFIED), or was last (DELETED).

    ``first``: one of all that there are, since Begun.
    """

    at: datetime
    type: str
    object: bytes
    resource_version: str
    first: bool = False


class Moved(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """Objects as they are now (MODIFIED), of which only what is here is not as a Saw of the same watch said."""

    at: datetime
    objects: Sequence[AsBefore]

    @property
    def resource_version(self) -> str:
        return str(self.objects[-1].version)


class Begun(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """All that there is comes from here on, up to Synced. What came of such a set before counts no more."""

    at: datetime


class Synced(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """What there was at ``resource_version`` has been told since Begun: what was not is gone."""

    at: datetime
    resource_version: str


class Reached(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """Nothing was missed up to ``resource_version``."""

    at: datetime
    resource_version: str


class Lost(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """What happened since the last word cannot be told one by one any more: what there is follows, all of it."""

    at: datetime
    why: str


class Blind(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """Nothing is seen for now. With the next word of another kind this is over, and nothing was missed meanwhile."""

    at: datetime
    why: str


class Resumed(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """The API server has taken up the watch from where it was: what happens from here on will be told."""

    at: datetime


class Unreadable(msgspec.Struct, frozen=True, gc=False, tag_field="said", tag=True):
    """A line that is no event; the ones after it are read on."""

    at: datetime
    line: bytes
    why: str


Word = Begun | Saw | Moved | Synced | Reached | Lost | Blind | Resumed | Unreadable


def reached(told: Word) -> str:
    """The version up to which everything has been told with this; "" where it says nothing of that."""
    if isinstance(told, Synced | Reached | Moved):
        return told.resource_version
    return told.resource_version if isinstance(told, Saw) and not told.first else ""
