"""What the paths given to an import are: a recording's folder, or any of its files alone, told by their content."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from app.collect.files import UnreadableError, identity, open_stream


class InputKind(StrEnum):
    AUDIT = "audit log"
    WATCH = "watch events"
    METRICS = "OpenMetrics text"
    ALERTS = "Alertmanager payload"
    DUMP = "dump of objects"


LABEL = "label.json"
"""The answer of a recording: an evaluation reads it, an import never does."""
WHOLE_DOCUMENT_LIMIT = 256 << 20


@dataclass(frozen=True, slots=True)
class Input:
    path: str
    kind: InputKind
    file_hash: str


class _Head(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - the wire's name
    type: str = ""
    stage: str = ""
    alerts: msgspec.Raw = msgspec.Raw()
    items: msgspec.Raw = msgspec.Raw()
    object: msgspec.Raw = msgspec.Raw()


def find_inputs(paths: list[str]) -> list[Input]:
    """The inputs behind these paths, in the order to read them. Raises UnreadableError, naming the path."""
    files: list[str] = []
    for path in paths:
        folder = Path(path)
        if path != "-" and folder.is_dir():
            inside = sorted(str(f) for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
            inside = [f for f in inside if Path(f).name not in (LABEL, "README.md", "LICENSE")]
            if not inside:
                raise UnreadableError(f"{path}: the folder has no file to import")
            files += inside
        else:
            files.append(path)
    found = [_input(path) for path in dict.fromkeys(files)]
    order = list(InputKind)
    return sorted(found, key=lambda i: order.index(i.kind))


def _input(path: str) -> Input:
    if path == "-":
        return Input("-", InputKind.AUDIT, "stdin")
    with open_stream(path) as stream:
        head = stream.read(1 << 16)
    if not head.strip():
        raise UnreadableError(f"{path}: is empty")
    return Input(path, _kind(path, head), identity(path))


def _kind(path: str, head: bytes) -> InputKind:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text.startswith(b"{"):
        if text.startswith(b"#") or b" " in text.split(b"\n", 1)[0]:
            return InputKind.METRICS
        raise UnreadableError(f"{path}: is neither JSON lines nor OpenMetrics text")
    first = text.split(b"\n", 1)[0]
    try:
        line = msgspec.json.decode(first, type=_Head)
    except msgspec.MsgspecError:
        return _document_kind(text)
    if line.apiVersion.startswith("audit.k8s.io/") or line.stage:
        return InputKind.AUDIT
    if line.object and line.type:
        return InputKind.WATCH
    return _document_kind(text)


def _document_kind(text: bytes) -> InputKind:
    """Of a JSON document over several lines (or longer than the head): an alert payload says so near its top."""
    if b'"alerts"' in text[:4096] or b'"groupKey"' in text[:4096]:
        return InputKind.ALERTS
    if b'"audit.k8s.io/v1"' in text[:4096]:
        return InputKind.AUDIT
    if b'"object"' in text[:512] and b'"type"' in text[:512]:
        return InputKind.WATCH
    return InputKind.DUMP


def read_document(path: str) -> bytes:
    """A whole JSON document. Raises UnreadableError past WHOLE_DOCUMENT_LIMIT."""
    with open_stream(path) as stream:
        data = stream.read(WHOLE_DOCUMENT_LIMIT + 1)
    if len(data) > WHOLE_DOCUMENT_LIMIT:
        raise UnreadableError(f"{path}: is larger than {WHOLE_DOCUMENT_LIMIT >> 20} MiB decompressed")
    return data
