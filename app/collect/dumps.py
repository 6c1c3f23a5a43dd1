"""Dumps of objects, as `kubectl get -o json` prints them: which objects they hold, and when they were made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from app.collect.documents import split
from app.collect.entries import UNUSABLE, Reading
from app.collect.files import Line, written_at
from app.collect.intake import Intake, RawObject
from app.collect.refusals import explain

_TIMES = (
    *("time", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastUpdateTime", "lastHeartbeatTime"),
    *("lastProbeTime", "firstTimestamp", "lastTimestamp", "eventTime", "lastObservedTime", "renewTime", "acquireTime"),
    *("startedAt", "finishedAt", "startTime", "completionTime", "lastScheduleTime", "lastScaleTime"),
)
"""Fields in which objects say when something was: those of managedFields, of Events, of conditions and of states."""
_TIME = re.compile(
    rb'"(?:%s)"\s*:\s*"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)"' % "|".join(_TIMES).encode()
)  # API servers write UTC


class _List(msgspec.Struct):
    items: list[msgspec.Raw] = []
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - the wire's name


_object = msgspec.json.Decoder(RawObject)


def dated(intake: Intake, read: Reading, body: bytes, *, shift_seconds: int = 0) -> tuple[bool, datetime]:
    """When a dump was made, and whether that cannot be: then it is refused, and can be imported when it was touched."""
    written = written_at(read.input.path, intake.now)
    at = made_at(body, written=written) + timedelta(seconds=shift_seconds)
    problem = intake.check_time(at)
    if problem:
        reason = f"a dump is as old as it and its file say, and {problem}: touch the file with the time it was made"
        intake.reject(read.input.path, Line(1, b"", 0), reason, again=True)
    return bool(problem), at


def made_at(body: bytes, *, written: datetime) -> datetime:
    """The last time that the objects of a dump tell, but not after the file was ``written``; else then."""
    limit = written.isoformat()[:19].encode()
    told = {text for text in _TIME.findall(body) if text[:19] <= limit}
    for text in sorted(told, reverse=True):
        with suppress(ValueError):  # what is called like one of these may be anybody's, and no time
            return min(datetime.fromisoformat(text.decode()), written)
    return written


def keep_objects(intake: Intake, read: Reading, body: bytes, *, at: datetime) -> Iterator[None]:
    """Keep the objects of a dump, seen at ``at``; yields behind each. What cannot be used is refused."""
    for document in split(body):
        try:
            for raw in items(document.data):
                try:
                    intake.dump_item(raw, at)
                except UNUSABLE as error:
                    _refuse(intake, read, document, error=error, part=bytes(raw))
                yield
        except UNUSABLE as error:
            _refuse(intake, read, document, error=error, part=document.data)


def _refuse(intake: Intake, read: Reading, document: Line, *, error: Exception, part: bytes) -> None:
    """Refuse a part of a document, where it stands."""
    reason, column = explain(error, part, expected="dump of objects (kubectl get -o json)")
    before = document.data[: max(0, document.data.find(part))]
    line = Line(document.number + before.count(b"\n"), part, document.end, begins=len(before) - before.rfind(b"\n") - 1)
    intake.reject(read.input.path, line, reason, column=column, again=True)


def items(document: bytes) -> Iterator[msgspec.Raw]:
    """The objects of a List, of an object, or of a map of Lists by resource. Raises UNUSABLE."""
    top = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    if "items" in top:
        yield from _items(document)
    elif "kind" in top and "metadata" in top:
        yield msgspec.Raw(document)
    else:
        for raw in top.values():
            yield from _items(raw)


def _items(raw: bytes | msgspec.Raw) -> Iterator[msgspec.Raw]:
    found = msgspec.json.decode(raw, type=_List)
    kind = found.kind.removesuffix("List")
    for item in found.items:
        if not kind or not bytes(item).startswith(b"{") or _object.decode(item).kind:
            yield item
        else:  # the items of a typed List leave out what the List says
            named = f'{{"kind":"{kind}","apiVersion":"{found.apiVersion}",'.encode()
            yield msgspec.Raw(named + bytes(item)[1:])
