"""What a recording's label says: how it was recorded, and which change it was. That is read only once all is ranked."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from app.collect.inputs import LABEL
from app.core.model import Change
from app.failures import Expected

_T = TypeVar("_T")
SAME_MOMENT = timedelta(seconds=3)
"""A label's time is when the writer sent it; ours when the API server took or told it."""
MUST = 'it must say {"culprit": {"kind", "namespace", "name", "at"}}, or null where no change preceded the incident'


class NotJudgedError(Expected):
    """A recording cannot be judged; the message names the file, what is wrong with it and what to do."""


class RawChange(msgspec.Struct):
    """A change, as a label tells it."""

    kind: str
    name: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    namespace: str | None = None

    def is_of(self, change: Change) -> bool:
        """Whether this is the change that is meant."""
        resource = change.resource
        same = (resource.kind, resource.namespace, resource.name) == (self.kind, self.namespace, self.name)
        return same and abs(change.at - self.at) <= SAME_MOMENT


class RawLabel(msgspec.Struct):
    """``culprit`` is None where no change preceded the incident: then "none of these" should win. ``accepted`` are
    other changes that are as right an answer, as a second write of the same hand for the same purpose."""

    culprit: RawChange | None = None
    accepted: tuple[RawChange, ...] = ()

    @property
    def answers(self) -> tuple[RawChange, ...]:
        """What is right; nothing where it was no change."""
        return (self.culprit, *self.accepted) if self.culprit else ()


class RawSetting(msgspec.Struct):
    """``alert_shift_seconds``: so much later than it came the recorded alert says to have started."""

    alert_shift_seconds: float = 0.0


def read_shift(folder: Path) -> timedelta:
    """By how much a recording's alert tells its start wrong. Raises NotJudgedError."""
    return timedelta(seconds=read(folder / LABEL, RawSetting, MUST).alert_shift_seconds)


def read_label(folder: Path) -> RawLabel:
    """The answer of a recording. Raises NotJudgedError."""
    return read(folder / LABEL, RawLabel, MUST)


def read(path: Path, kind: type[_T], must: str) -> _T:
    """A document beside a recording; ``must`` says what is expected of it. Raises NotJudgedError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise NotJudgedError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJudgedError(f"{path}: {error}; {must}") from None
