"""What the paths given to an import are: a recording's folder, or any of its files alone, told by their content."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

from app.collect.exports import Export
from app.collect.files import (
    CHUNK,
    START,
    DamagedError,
    Inode,
    Stream,
    UnreadableError,
    identity,
    open_stream,
    read_start,
    unpacked,
)
from app.collect.newest_first import first_events, is_evident, is_undecided, newest_first
from app.collect.sniff import InputKind, UnknownKindError, check_order, kind_of

__all__ = ["LABEL", "Input", "InputKind", "Survey", "find_inputs", "read_document", "survey"]

LABEL = "label.json"
"""The answer of a recording: an evaluation reads it, an import never does."""
NOT_INPUT = frozenset({LABEL, "README.md", "LICENSE"})
WHOLE_DOCUMENT_LIMIT = 256 << 20
SEVERAL = 4 << 20
"""Bytes that hold several entries of Cloud Logging, which splits large ones (https://cloud.google.com/logging/quotas)."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file, or standard input: its ``start`` was read to tell the kind, and its hash is that of no other run.

    Of a file its first ``size`` bytes are read: those of which ``file_hash`` is, in the file of that ``inode``. It
    ``grew_from`` another that was imported, by its hash, or from none (files.Identity). ``export`` is the form of an
    audit log's entries where they are no audit events.
    """

    path: str
    kind: InputKind
    file_hash: str
    start: bytes = b""
    size: int | None = None
    grew_from: str = ""
    inode: Inode | None = None
    export: Export | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """What some paths hold: the inputs in the order to read them, and in words each file that is passed over.

    ``unknown`` are files of a folder that are none of our kinds; ``damaged`` archives of which nothing can be read.
    """

    inputs: tuple[Input, ...]
    unknown: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


def find_inputs(paths: list[str]) -> list[Input]:
    """The inputs behind these paths, in the order to read them: survey() without what is passed over."""
    return list(survey(paths).inputs)


def survey(paths: list[str], known: Mapping[int, Collection[str]] = MappingProxyType({})) -> Survey:
    """Tell what is behind these paths, and which of it grew from a file that is ``known`` (store.positions.read_sizes).

    A file that is named must be one of our kinds; in a folder, others may lie beside. Raises UnreadableError, naming
    the path, also where no input is left.
    """
    inputs: list[Input] = []
    unknown: list[str] = []
    damaged: list[str] = []
    for path, is_named in dict(_files(paths)).items():
        try:
            inputs.append(_input(path, known))
        except DamagedError as error:
            damaged.append(f"{path}, line 1: {error}")
        except UnknownKindError as error:
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
        if folder.name == LABEL:
            raise UnreadableError(f"{path}: is the answer of a recording; only `foreshock evaluate` reads it")
        if path == "-" or not folder.is_dir():
            continue
        inside = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
        inside = [f for f in inside if f.name not in NOT_INPUT]
        if not inside:
            raise UnreadableError(f"{path}: the folder has no file to import")
        yield from ((str(f), False) for f in inside)
    yield from ((path, True) for path in paths if path == "-" or not Path(path).is_dir())


def _input(path: str, known: Mapping[int, Collection[str]]) -> Input:
    if path == "-":
        return _standard_input()
    with open_stream(path) as stream:
        head = _head(stream)
    try:
        told = kind_of(head)
    except UnknownKindError as error:
        if not error.cut:
            raise
        told = kind_of(read_document(path))
    if told is Export.CLOUD_LOGGING:
        with open_stream(path) as stream:
            check_order(_head(stream, SEVERAL))
    found, (kind, export) = identity(path, known), _told(told)
    one = Input(
        path, kind, found.file_hash, size=found.size, grew_from=found.grew_from, inode=found.inode, export=export
    )
    if kind is InputKind.AUDIT and export is not Export.CLOUD_LOGGING and not found.grew_from:
        _check_not_newest_first(one, head)
    return one


def _standard_input() -> Input:
    start = read_start()
    head = _head_of(start)
    kind, export = _told(kind_of(head))
    if export is Export.CLOUD_LOGGING:
        check_order(head)
    elif kind is InputKind.AUDIT and is_undecided(found := first_events(head, export)):
        start = read_start(start, size=SEVERAL)
        if is_evident(found := first_events(_head_of(start, SEVERAL), export)):
            raise newest_first("-", found)
    return Input("-", kind, f"stdin {uuid4()}", start, export=export)


def _check_not_newest_first(one: Input, head: bytes) -> None:
    """Raises UnknownKindError on a log that begins with its newest event, as far as its first SEVERAL bytes tell."""
    if not is_undecided(first_events(head, one.export)):
        return
    with open_stream(one.path, size=one.size, inode=one.inode) as stream:
        found = first_events(_head(stream, SEVERAL), one.export)
    if is_evident(found):
        raise newest_first(one.path, found)


def _head_of(start: bytes, size: int = START) -> bytes:
    """The first bytes of what begins with ``start``, which may be compressed."""
    with unpacked(BufferedReader(BytesIO(start))) as stream:
        return _head(stream, size)


def _told(found: InputKind | Export) -> tuple[InputKind, Export | None]:
    return (InputKind.AUDIT, found) if isinstance(found, Export) else (found, None)


def _head(stream: Stream, size: int = START) -> bytes:
    """The first bytes of a file, or as many as can be decompressed. Raises DamagedError where there is none."""
    head = b""
    try:
        while len(head) < size and (more := stream.read(size - len(head))):
            head += more
    except DamagedError:
        if not head:
            raise
    if not head.strip():
        raise UnknownKindError("is empty")
    return head


def read_document(path: str, start: bytes = b"", *, size: int | None = None, inode: Inode | None = None) -> bytes:
    """A whole JSON document; ``start``, ``size`` and ``inode`` as in open_stream.

    Raises ReplacedError, UnreadableError past WHOLE_DOCUMENT_LIMIT, DamagedError.
    """
    parts, length = [], 0
    with open_stream(path, start, size=size, inode=inode) as stream:
        while part := stream.read(CHUNK):
            parts.append(part)
            length += len(part)
            if length > WHOLE_DOCUMENT_LIMIT:
                raise UnreadableError(f"{path}: is larger than {WHOLE_DOCUMENT_LIMIT >> 20} MiB decompressed")
    return b"".join(parts)
