"""What the paths given to an import are: a recording's folder, or any of its files alone, told by their content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from app.collect.files import CHUNK, DamagedError, Stream, UnreadableError, identity, open_stream


class InputKind(StrEnum):
    AUDIT = "audit log"
    WATCH = "watch events"
    METRICS = "OpenMetrics text"
    ALERTS = "Alertmanager payload"
    DUMP = "dump of objects"


LABEL = "label.json"
"""The answer of a recording: an evaluation reads it, an import never does."""
NOT_INPUT = frozenset({LABEL, "README.md", "LICENSE"})
WHOLE_DOCUMENT_LIMIT = 256 << 20
HEAD = 1 << 16
_METRIC = re.compile(rb"# (?:TYPE|HELP|UNIT|EOF)\b|[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^}]*\})? +[-+0-9.eInfaN]+(?: |$)")
_OF_OBJECTS = re.compile(rb'"(?:items|metadata|kind)"\s*:')


@dataclass(frozen=True, slots=True)
class Input:
    path: str
    kind: InputKind
    file_hash: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What some paths hold: the inputs in the order to read them, and in words each file that is passed over.

    ``unknown`` are files of a folder that are none of our kinds; ``damaged`` archives of which nothing can be read.
    """

    inputs: tuple[Input, ...]
    unknown: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


class _UnknownKindError(Exception):
    """What a file holds is none of InputKind; the message says what was looked for."""


class _Head(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - the wire's name
    type: str = ""
    stage: str = ""
    alerts: msgspec.Raw = msgspec.Raw()
    items: msgspec.Raw = msgspec.Raw()
    object: msgspec.Raw = msgspec.Raw()


def find_inputs(paths: list[str]) -> list[Input]:
    """The inputs behind these paths, in the order to read them: survey() without what is passed over."""
    return list(survey(paths).inputs)


def survey(paths: list[str]) -> Survey:
    """Tell what is behind these paths.

    A file that is named must be one of our kinds; in a folder, others may lie beside. Raises UnreadableError, naming
    the path, also where no input is left.
    """
    inputs: list[Input] = []
    unknown: list[str] = []
    damaged: list[str] = []
    for path, is_named in dict(_files(paths)).items():
        try:
            inputs.append(_input(path))
        except DamagedError as error:
            damaged.append(f"{path}, line 1: {error}")
        except _UnknownKindError as error:
            if is_named:
                raise UnreadableError(f"{path}: {error}") from None
            unknown.append(f"{path}: {error}")
    if not inputs:
        raise UnreadableError("; ".join((*damaged, *unknown)))
    order = list(InputKind)
    return Survey(tuple(sorted(inputs, key=lambda i: order.index(i.kind))), tuple(unknown), tuple(damaged))


def _files(paths: list[str]) -> Iterator[tuple[str, bool]]:
    """Every file, and whether it was named itself."""
    for path in paths:
        folder = Path(path)
        if path == "-" or not folder.is_dir():
            continue
        inside = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
        inside = [f for f in inside if f.name not in NOT_INPUT]
        if not inside:
            raise UnreadableError(f"{path}: the folder has no file to import")
        yield from ((str(f), False) for f in inside)
    yield from ((path, True) for path in paths if path == "-" or not Path(path).is_dir())


def _input(path: str) -> Input:
    if path == "-":
        return Input("-", InputKind.AUDIT, "stdin")
    with open_stream(path) as stream:
        head = _head(stream)
    if not head.strip():
        raise _UnknownKindError("is empty")
    return Input(path, _kind(head), identity(path))


def _head(stream: Stream) -> bytes:
    """The first bytes of a file, or as many as can be decompressed. Raises DamagedError where there is none."""
    head = b""
    try:
        while len(head) < HEAD and (more := stream.read(HEAD - len(head))):
            head += more
    except DamagedError:
        if not head:
            raise
    return head


def _kind(head: bytes) -> InputKind:
    """What a file is, by its first lines: the very first may be cut, where a log was rotated or copied."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for line in text.split(b"\n", 5)[:5]:
        try:
            first = msgspec.json.decode(line, type=_Head)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if first.apiVersion.startswith("audit.k8s.io/") or first.stage:
            return InputKind.AUDIT
        if first.object and first.type:
            return InputKind.WATCH
    if text.startswith(b"{"):
        return _document_kind(text)
    if any(_METRIC.match(line) for line in text.split(b"\n", 5)[:5]):
        return InputKind.METRICS
    raise _UnknownKindError("is neither JSON lines nor OpenMetrics text")


def _document_kind(text: bytes) -> InputKind:
    """Of a JSON document over several lines (or longer than the head): an alert payload says so near its top."""
    if b'"audit.k8s.io/v1"' in text[:4096]:
        return InputKind.AUDIT
    if b'"alerts"' in text[:4096] or b'"groupKey"' in text[:4096]:
        return InputKind.ALERTS
    if b'"object"' in text[:512] and b'"type"' in text[:512]:
        return InputKind.WATCH
    if _OF_OBJECTS.search(text):
        return InputKind.DUMP
    raise _UnknownKindError(
        "is JSON, but neither an audit log, watch events, an Alertmanager payload nor a dump of objects"
    )


def read_document(path: str) -> bytes:
    """A whole JSON document. Raises UnreadableError past WHOLE_DOCUMENT_LIMIT, DamagedError."""
    parts, size = [], 0
    with open_stream(path) as stream:
        while part := stream.read(CHUNK):
            parts.append(part)
            size += len(part)
            if size > WHOLE_DOCUMENT_LIMIT:
                raise UnreadableError(f"{path}: is larger than {WHOLE_DOCUMENT_LIMIT >> 20} MiB decompressed")
    return b"".join(parts)
