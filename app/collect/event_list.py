"""The body that the audit webhook sends, an EventList -> its events, each with where it stood.

An item that is no event never stops the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import msgspec

from app.collect.entries import UNUSABLE
from app.collect.files import Line
from app.collect.intake import Intake
from app.collect.refusals import explain
from app.core.changes import audit

SOURCE = "audit webhook"
"""What quarantine names as the source; the line is the number of the item."""
EXPECTED = "audit event (audit.k8s.io/v1)"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)
_ITEMS = re.compile(rb'"items"\s*:\s*\[')


class RawEventList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw]


class Told(msgspec.Struct, gc=False):
    """One event, and its item as it stood in the body."""

    event: audit.RawAuditEvent
    line: Line


_list = msgspec.json.Decoder(RawEventList)


def events(intake: Intake, body: bytes, at: datetime) -> list[Told]:
    """The events of a body that came ``at``; what is none is refused."""
    intake.move_to(at)
    found = []
    for number, item in enumerate(_items(intake, body), start=1):
        intake.tally.lines += 1
        line = Line(number, item, 0)
        try:
            event = audit.decode(item)
            problem, column = intake.check_times(event), 1
        except UNUSABLE as error:
            problem, column = explain(error, item, expected=EXPECTED)
        if problem:
            intake.reject(SOURCE, line, problem, column=column)
        else:
            found.append(Told(event, line))
    return found


def tell(intake: Intake, told: Told) -> None:
    """Count one event and keep what it wrote, or refuse it where that cannot be read."""
    try:
        intake.audit_event(told.event)
        intake.tally.used += 1
    except UNUSABLE as error:
        body = bytes(told.event.responseObject)
        reason, column = explain(error, body, expected="object")
        at = max(0, told.line.data.find(body))
        intake.reject(SOURCE, told.line, f"the object in it cannot be read: {reason}", column=column + at)


def _items(intake: Intake, body: bytes) -> Iterator[bytes]:
    try:
        yield from map(bytes, _list.decode(body).items)
    except UNUSABLE as error:
        begins = _ITEMS.search(body)
        if begins is None:
            reason, column = explain(error, body, expected="EventList (audit.k8s.io/v1)")
            intake.reject(SOURCE, Line(1, body, 0), reason, column=column)
            return
        yield from _split(body, begins.end())


def _split(body: bytes, at: int) -> Iterator[bytes]:
    """The items of a list that cannot be read as a whole: one of them is nested too deep, or the end is missing."""
    depth, begins = 0, at
    for token in _TOKEN.finditer(body, at):
        bracket = token[0]
        if bracket in (b"{", b"["):
            begins = token.start() if not depth else begins
            depth += 1
        elif bracket in (b"}", b"]"):
            depth -= 1
            if depth < 0:
                return
            if not depth:
                yield body[begins : token.end()]
    if depth:
        yield body[begins:]
