"""--strict: everything is decoded first, and nothing written where a line cannot be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

from app.collect.documents import split
from app.collect.dumps import dated, keep_objects
from app.collect.entries import Reading
from app.collect.files import UnreadableError
from app.collect.inputs import Input, InputKind
from app.collect.intake import Intake
from app.collect.logs import Job, Log, pieces
from app.collect.pieces import blocks, document, series, symptoms
from app.collect.resume import reading
from app.core.model import Position, Reject
from app.core.objects.redact import Redactor
from app.failures import Expected

SHOWN_PROBLEMS = 20
_ANY_KEY = b"\0" * 32
"""Nothing that is redacted with it is kept."""


class InvalidInputError(Expected):
    """--strict found lines that could not be used; nothing was written. ``problems`` say file, line, column, what."""

    def __init__(self, problems: list[str]) -> None:
        shown = "\n  ".join(problems[:SHOWN_PROBLEMS])
        more = f"\n  and {len(problems) - SHOWN_PROBLEMS:,} more" if len(problems) > SHOWN_PROBLEMS else ""
        super().__init__(f"{len(problems):,} lines cannot be used; nothing was written\n  {shown}{more}")
        self.problems = problems


def told(reject: Reject) -> str:
    """Where a piece of input stands and what is wrong with it, in one line."""
    return f"{reject.source}, line {reject.line}, column {reject.column}: {reject.reason}"


def check(
    inputs: Iterable[Input],
    *,
    now: datetime,
    damaged: Iterable[str] = (),
    known: Mapping[str, Position] = MappingProxyType({}),
) -> None:
    """--strict: read all that an import would, and raise InvalidInputError before anything is written.

    ``damaged`` names the archives that nothing could be read of (inputs.Survey); what lies before the positions that
    are ``known``, by the hash of their file, was imported before. Raises UnreadableError for standard
    input, which cannot be read twice.
    """
    reads = [read for read in (reading(one, known) for one in inputs) if not read.done]
    if any(read.input.path == "-" for read in reads):
        raise UnreadableError(
            "-: --strict reads everything twice, and standard input only comes once: save it in a file"
        )
    problems = [*damaged]
    logs = [
        Log(read.input, read.offset, read.lines)
        for read in reads
        if read.input.kind in (InputKind.AUDIT, InputKind.WATCH)
    ]
    for piece in pieces(Job("", _ANY_KEY, now, logs)):
        problems += map(told, piece.rejects)
    intake = Intake("", Redactor(_ANY_KEY), now=now)
    for read in reads:
        for _ in _others(intake, read):
            problems += map(told, intake.take({}).rejects)
    problems += map(told, intake.take({}).rejects)
    if problems:
        raise InvalidInputError(problems)


def _others(intake: Intake, read: Reading) -> Iterator[object]:
    """Read metrics, alerts and dumps; yields now and then."""
    kind = read.input.kind
    if kind is InputKind.METRICS:
        for block in blocks(intake, read):
            yield from series(intake, read, block)
    elif kind is InputKind.ALERTS:
        for payload in split(document(intake, read)):
            yield symptoms(intake, read, payload)
    elif kind is InputKind.DUMP:
        body = document(intake, read)
        problem, at = dated(intake, read, body)
        yield from () if problem else keep_objects(intake, read, body, at=at)
