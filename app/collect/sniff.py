"""What a file is, by its first bytes: they are decoded as far as they reach, and its name says nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from io import BytesIO
from itertools import islice, pairwise
from typing import Any

from app.collect.cloud_logging import SERVICE
from app.collect.documents import Documents
from app.collect.exports import LINE, Export
from app.collect.files import BOM, lines


class InputKind(StrEnum):
    AUDIT = "audit log"
    WATCH = "watch events"
    METRICS = "OpenMetrics text"
    ALERTS = "Alertmanager payload"
    DUMP = "dump of objects"


class UnknownKindError(Exception):
    """What a file holds is none of InputKind, or lacks what an import needs; the message says what to do.

    ``cut`` where the bytes end before a document does: more of them may tell.
    """

    def __init__(self, message: str, *, cut: bool = False) -> None:
        super().__init__(message)
        self.cut = cut


class _Cut(str):
    """A value that the bytes end in."""

    __slots__ = ()


FIRST_DOCUMENTS = 20
"""So many are looked at: the first may be cut, where a log was rotated or copied."""
FIRST_LINES = 5
_METRIC = re.compile(rb"# (?:TYPE|HELP|UNIT|EOF)\b|[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^}]*\})? +[-+0-9.eInfaN]+(?:\s|$)")
_SPACE = re.compile(r"\s*")
_INSIGHTS = re.compile(rb"(?:\"?@?\w+\"?,)*\"?@(?:timestamp|message|logStream)\b")
_json = json.JSONDecoder()
_TIMELESS = 'is a watch whose events have no time: each needs its "at", as docs/import.md shows under "Watch events"'
_LOSSY = (
    "is a result of CloudWatch Logs Insights, which leaves events out and cuts long ones: get the events themselves,"
    " with aws logs filter-log-events or an export to S3, as docs/import.md shows"
)
_NOT_AUDIT = (
    "is an export of {}, but of no audit log that is known in its first entries: docs/import.md says which to export"
)


def kind_of(head: bytes) -> InputKind | Export:
    """What the file is that begins with these bytes: of an exported audit log, how. Raises UnknownKindError."""
    text = head.removeprefix(BOM).lstrip()
    if any(LINE.match(line) for line in text.split(b"\n", FIRST_LINES)[:FIRST_LINES]):
        return _kind_of_lines(text)
    told: UnknownKindError | None = None
    cut = False
    for document in _documents(text):
        top = _top(document)
        cut = cut or any(isinstance(value, _Cut) for value in top.values())
        try:
            kind = _kind(top)
        except UnknownKindError as error:
            told = told or error
            continue
        if kind is not None:
            return kind
    if told:
        raise told
    if _INSIGHTS.match(text):
        raise UnknownKindError(_LOSSY)
    if any(_METRIC.match(line) for line in text.split(b"\n", FIRST_LINES)[:FIRST_LINES]):
        return InputKind.METRICS
    if text.startswith((b"{", b"[")):
        raise UnknownKindError(
            "is JSON, but neither an audit log, watch events, an Alertmanager payload nor a dump of objects", cut=cut
        )
    raise UnknownKindError("is neither JSON lines nor OpenMetrics text")


def check_order(head: bytes) -> None:
    """Raises UnknownKindError on what ``gcloud logging read`` printed newest first, as it does by default: of each
    object the last state would be learned first, and none of its changes.
    """
    text = head.removeprefix(BOM).lstrip()
    if not text.startswith(b"["):
        return  # a sink's lines come as they come
    told = (_top(document).get("timestamp") for document in _documents(text))
    times = [at[: len("2026-11-21T11:00:00")] for at in told if isinstance(at, str) and not isinstance(at, _Cut)]
    if times and times[0] > times[-1] and all(a >= b for a, b in pairwise(times)):
        raise UnknownKindError(
            "tells the newest entry first, so no change could be told from it: read it with gcloud's --order=asc, or"
            " turn it around with jq reverse"
        )


def _documents(text: bytes) -> Iterator[str]:
    """What begins the file, as one document, and then each of its first documents by itself."""
    if text.startswith(b"{"):
        yield text.decode("utf-8", "replace")
    found = Documents(lines(BytesIO(text)))
    pieces = (piece for line in found for piece in found.within(line))
    for piece in islice(pieces, FIRST_DOCUMENTS):
        if piece.data.startswith(b"{"):
            yield piece.data.decode("utf-8", "replace")


def _kind_of_lines(text: bytes) -> Export:
    """What a file is in whose lines a time stands before each message. Raises UnknownKindError."""
    found = (LINE.match(line) for line in text.split(b"\n", FIRST_DOCUMENTS)[:FIRST_DOCUMENTS])
    if any(_is_audit(_top(one.string[one.end() :].decode("utf-8", "replace"))) for one in found if one):
        return Export.CLOUDWATCH_LINE
    raise UnknownKindError(_NOT_AUDIT.format("CloudWatch Logs"))


def _is_audit(top: dict[str, Any]) -> bool:
    version = top.get("apiVersion")
    return "stage" in top or (isinstance(version, str) and version.startswith("audit.k8s.io/"))


def _kind_of_export(top: dict[str, Any]) -> Export | None:
    """What an entry of these fields was exported from, or the first in a list. Raises UnknownKindError on one of no
    audit log, or of one that cannot be told from it.
    """
    if ("results" in top and "statistics" in top) or "@message" in top:
        raise UnknownKindError(_LOSSY)
    if listed := next((name for name in ("events", "logEvents", "records") if name in top), None):
        return _kind_of_export(_first(top[listed]))
    if isinstance(name := top.get("logName"), str) and "protoPayload" in top:
        service = _fields(top["protoPayload"]).get("serviceName", SERVICE)
        if "/logs/cloudaudit.googleapis.com%2F" in name and service == SERVICE:
            return Export.CLOUD_LOGGING
        raise UnknownKindError(_NOT_AUDIT.format("Google Cloud Logging"))
    if isinstance(message := top.get("message"), str) and "timestamp" in top:
        if _is_audit(_top(message)) or (isinstance(message, _Cut) and "audit.k8s.io/" in message):
            return Export.CLOUDWATCH_EVENT
        raise UnknownKindError(_NOT_AUDIT.format("CloudWatch Logs"))
    if "category" in top and "properties" in top and "resourceId" in top:
        if str(top["category"]).startswith("kube-audit"):
            return Export.AZURE_RECORD
        raise UnknownKindError(_NOT_AUDIT.format("Azure Monitor"))
    return None


def _kind(top: dict[str, Any]) -> InputKind | Export | None:
    """What a document of these fields is. Raises UnknownKindError on one that lacks something."""
    if top.get("kind") == "Table":
        raise UnknownKindError("is a Table, which leaves the objects out: ask kubectl for them with -o json")
    if _is_audit(top):
        return InputKind.AUDIT
    if export := _kind_of_export(top):
        return export
    if "object" in top and "type" in top:
        if "at" not in top and not isinstance(top["object"], _Cut):
            raise UnknownKindError(_TIMELESS)
        return InputKind.WATCH
    if "alerts" in top:
        return InputKind.ALERTS
    if "items" in top:
        first = _kind(_first(top["items"]))
        return first if first in (InputKind.AUDIT, InputKind.WATCH) else InputKind.DUMP
    if {"apiVersion", "kind", "metadata"} <= top.keys() or (top and all(map(_is_list, top.values()))):
        return InputKind.DUMP
    return None


def _is_list(value: object) -> bool:
    """Whether this is a List, as far as it can be read."""
    return "items" in _fields(value)


def _fields(value: object) -> dict[str, Any]:
    """The fields of what should be an object, as far as they can be read."""
    return _top(value) if isinstance(value, _Cut) else value if isinstance(value, dict) else {}


def _first(items: object) -> dict[str, Any]:
    """The fields of the first item of a list, as far as they can be read."""
    if isinstance(items, _Cut):
        return _top(items.removeprefix("[").lstrip())
    first = items[0] if isinstance(items, list) and items else None
    return first if isinstance(first, dict) else {}


def _top(text: str) -> dict[str, Any]:
    """The fields of the JSON object that a text begins with; the last is a _Cut where the text ends in it."""
    found: dict[str, Any] = {}
    at = _past(text, 0)
    try:
        while text[at] in "{,":
            key, at = _json.raw_decode(text, _past(text, at + 1))
            at = _past(text, _past(text, at) + 1)  # past the colon
            found[key] = _Cut(text[at:])
            found[key], at = _json.raw_decode(text, at)
            at = _past(text, at)
    except (ValueError, IndexError, TypeError, RecursionError):
        pass
    return found


def _past(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
