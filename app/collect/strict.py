"""--strict: everything is decoded first, and nothing written where a line cannot be used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime

from app.collect.entries import Reading, decoded
from app.collect.files import Line
from app.collect.inputs import Input, InputKind
from app.collect.intake import Intake
from app.collect.pieces import blocks, document, documents, series, symptoms
from app.core.model import Reject
from app.core.redact import Redactor
from app.failures import Expected

SHOWN_PROBLEMS = 20


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


def check(inputs: Iterable[Input], *, now: datetime, damaged: Iterable[str] = ()) -> None:
    """--strict: decode everything first and raise InvalidInputError before anything is written.

    ``damaged`` names the archives that nothing could be read of (inputs.Survey).
    """
    intake = Intake("", Redactor(b"\0" * 32), now=now)
    for one in inputs:
        if one.path != "-":
            _try(intake, Reading(one))
    problems = [*damaged, *(told(reject) for reject in intake.take({}).rejects)]
    if problems:
        raise InvalidInputError(problems)


def _try(intake: Intake, read: Reading) -> None:
    """Decode a file and keep nothing but what is refused of it."""
    kind = read.input.kind
    if kind in (InputKind.AUDIT, InputKind.WATCH):
        deque(decoded(read, intake, 0), maxlen=0)
    elif kind is InputKind.METRICS:
        for block in blocks(intake, read):
            deque(series(intake, read, block), maxlen=0)
    else:
        for number, payload in enumerate(documents(document(intake, read)), start=1):
            if kind is InputKind.ALERTS:
                symptoms(intake, read, Line(number, payload, 0))
