"""The files of a snapshot as ITBench records one: rows of objects and of Events, alerts, a ground truth.

The form is that of https://github.com/itbench-hub/ITBench at 8949d5b: what the k8sobjects receiver of an OpenTelemetry
collector told ClickHouse (lists of objects every five minutes, a watch of Events), as tab-separated values under a line
of names; docs/evaluation.md has it. A row is a line: the JSON in it has no newline.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from app.collect import alerts
from app.collect.entries import BEFORE_ALL, UNUSABLE
from app.collect.files import MAX_LINE, DamagedError, Line, UnreadableError, lines, open_stream
from app.collect.inputs import read_document
from app.collect.intake import RawObject
from app.collect.refusals import UnusableError, explain
from app.core.evaluation.ground_truth import GroundTruth, RawGroundTruth
from app.core.model import Symptom
from app.core.objects.redact import Redactor

OBJECTS = "k8s_objects_raw.tsv"
EVENTS = "k8s_events_raw.tsv"
GROUND_TRUTH = "ground_truth.yaml"
PACKED = ("", ".gz", ".zst")
"""What a file's name may end in: they are read packed too."""
NAMES = tuple(f"{name}{end}" for name in (OBJECTS, EVENTS) for end in PACKED)
"""By which a folder is known as a snapshot."""

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z| ?\+00:?00(?: UTC)?)?")
"""In UTC, as ClickHouse, pandas and Go print it."""
_NAMED_AT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-?(\d\d)-?(\d\d)(\.\d{1,6})?")
"""When alerts were asked for, in the name of the file: alerts_at_2025-12-15T17-30-00.123456.json."""

Refuse = Callable[[Path, Line, str, int], None]
"""Takes what cannot be used: its file, its line, why, and the column."""


class Row(Struct, frozen=True, gc=False):
    """An object as it was told at a time: by a list, or as a ``type`` of watch event. ``peek`` says which it is."""

    at: datetime
    line: int
    object: bytes
    peek: RawObject
    type: str = ""


class _Body(Struct):
    """A watch event, where ``object`` is something; else it is an object by itself."""

    type: Any = ""
    object: msgspec.Raw = msgspec.Raw(b"")


_body = msgspec.json.Decoder(_Body)
_object = msgspec.json.Decoder(RawObject)


def find(folder: Path, name: str) -> Path | None:
    """A file of a snapshot, packed or not."""
    return next((path for end in PACKED if (path := folder / f"{name}{end}").is_file()), None)


def rows(path: Path, refuse: Refuse) -> Iterator[Row]:
    """The rows of a file in its order, which is that of time. Raises UnreadableError where it has no such columns."""
    csv.field_size_limit(MAX_LINE)  # ConfigMaps are larger than what it takes otherwise
    last, number = BEFORE_ALL, 0
    with open_stream(str(path)) as stream:
        found = lines(stream)
        try:
            names = _names(path, next(found, None))
            for line in found:
                number = line.number
                try:
                    row = _row(line, names)
                    if row.at < last:
                        raise UnusableError("it is older than the row before it: sort the rows by their Timestamp")
                except UNUSABLE as error:
                    reason, _ = explain(error, line.data, expected="object")
                    refuse(path, line, reason, max(1, line.data.find(b"{") + 1))
                    continue
                last = row.at
                yield row
        except DamagedError as error:
            refuse(path, Line(number + 1, b"", 0), str(error), 1)


def _names(path: Path, head: Line | None) -> list[str]:
    """The columns, as the first line names them."""
    try:
        names = _fields(head) if head else []
    except UNUSABLE as error:
        raise UnreadableError(f"{path}, line 1: {error}") from None
    if missing := {"Timestamp", "Body"}.difference(names):
        told = " and ".join(sorted(missing))
        raise UnreadableError(f"{path}, line 1: it names no column {told}, as ITBench's first lines do")
    return names


def _fields(line: Line) -> list[str]:
    try:
        return next(csv.reader([line.data.decode()], delimiter="\t"), [])
    except csv.Error as error:
        raise UnusableError(f"no tab-separated values: {error}") from None


def _row(line: Line, names: list[str]) -> Row:
    """Raises UNUSABLE."""
    if line.too_long:
        raise UnusableError("longer than 16 MiB, as no object is: leave it out")
    fields = _fields(line)
    if len(fields) != len(names):
        raise UnusableError(f"it has {len(fields)} columns, and the first line names {len(names)}: was it cut?")
    at, text = _time(fields[names.index("Timestamp")]), fields[names.index("Body")].encode()
    body = _body.decode(text)
    if not bytes(body.object):
        return Row(at, line.number, text, _peek(text))
    if body.type not in ("ADDED", "MODIFIED", "DELETED"):
        raise UnusableError(f"a watch event of the type {body.type!r} tells of no object")
    return Row(at, line.number, bytes(body.object), _peek(body.object), body.type)


def _peek(text: bytes | msgspec.Raw) -> RawObject:
    peek = _object.decode(text)
    if not peek.kind or not peek.metadata.name:
        raise UnusableError("it says no kind, or no name")
    return peek


def _time(text: str) -> datetime:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise UnusableError(f"{text!r} is no time in UTC, as in 2025-12-15 17:30:00.123456789")
    day, time, fraction = found.groups()
    return datetime.fromisoformat(f"{day}T{time}.{(fraction or '0')[:6].ljust(6, '0')}+00:00")


class _Standing(Struct):
    """An alert as GET /api/v1/alerts of Prometheus tells of it
    (https://prometheus.io/docs/prometheus/latest/querying/api/#alerts)."""

    activeAt: Annotated[datetime, msgspec.Meta(tz=True)]  # noqa: N815 - the wire's name
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    state: str = "firing"


class _Data(Struct):
    alerts: list[msgspec.Raw] | None = None
    data: _Data | None = None


_standing = msgspec.json.Decoder(_Standing)
_alerts = msgspec.json.Decoder(_Data | list[msgspec.Raw])


def read_alerts(folder: Path, redactor: Redactor, *, end: datetime, refuse: Refuse) -> list[Symptom]:
    """The alerts that fired, each once: it began when it became active, and ended when it was first not told any more.

    ``end`` is the snapshot's.
    """
    told: dict[tuple[str, datetime], dict[str, object]] = {}
    paths = {*folder.glob("alerts*.json"), *folder.glob("alerts/*.json")}
    for asked, path in sorted((_asked(path), path) for path in paths):
        answer = _answer(path, refuse)
        if answer is None:
            continue
        firing = {(str(sorted(one.labels.items())), one.activeAt): one for one in answer}
        for key, one in firing.items():
            alert = {"startsAt": one.activeAt, "labels": one.labels, "annotations": one.annotations}
            told[key] = alert | {"status": "firing"}
        for key in told.keys() - firing.keys():
            if asked > BEFORE_ALL and told[key]["status"] == "firing":
                told[key] |= {"status": "resolved", "endsAt": asked}
    payload = msgspec.json.encode({"version": "4", "alerts": list(told.values())})
    found, _ = alerts.parse(payload, redactor, received=end)
    return found


def _asked(path: Path) -> datetime:
    """When a file's alerts were asked for; BEFORE_ALL where its name does not say."""
    found = _NAMED_AT.search(path.name)
    if found is None:
        return BEFORE_ALL
    day, hour, minute, second, fraction = found.groups(default="")
    try:
        return _time(f"{day} {hour}:{minute}:{second}{fraction}")
    except ValueError:
        return BEFORE_ALL


def _answer(path: Path, refuse: Refuse) -> list[_Standing] | None:
    """The alerts of a file that fire; None where it cannot be read."""
    body = b""
    try:
        body = read_document(str(path))
        answer = _alerts.decode(body)
    except DamagedError as error:
        refuse(path, Line(1, b"", 0), str(error), 1)
        return None
    except UNUSABLE as error:
        reason, column = explain(error, body, expected="answer of Prometheus' /api/v1/alerts")
        refuse(path, Line(1, body, 0), reason, column)
        return None
    listed = answer if isinstance(answer, list) else (answer.data or answer).alerts or []
    found = []
    for number, raw in enumerate(listed, start=1):
        try:
            found.append(_standing.decode(raw))
        except UNUSABLE as error:
            refuse(path, Line(1, bytes(raw), 0), f"alert {number} of {len(listed)}: {error}", 1)
    return [one for one in found if one.state == "firing"]


def read_ground_truth(path: Path) -> GroundTruth:
    """Raises UnreadableError, naming the file and what of it cannot be used."""
    try:
        return GroundTruth.of(msgspec.yaml.decode(path.read_bytes(), type=RawGroundTruth))
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    except UNUSABLE as error:
        raise UnreadableError(f"{path}: {error}") from None
