"""Whether an audit log tells the newest event first, as many tools print one: of each object the last state would be
learned first, and none of its changes.

That must be evident. No log is in order to the microsecond, and several of them may stand in one file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from io import BytesIO
from itertools import pairwise
from typing import Annotated

import msgspec

from app.collect.documents import Documents
from app.collect.exports import EVENT_IN, Export
from app.collect.files import Line, lines
from app.collect.sniff import UnknownKindError

STEPS = 20
"""From one event to the next, at the least: fewer go back by chance."""
BACK = 0.9
"""The share of the steps that go back at the least."""
UNUSABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What is no event tells no time; it is refused when it is read."""
UNPACK = {".gz": "zcat", ".zst": "zstdcat"}
"""What prints a file whose name ends so."""
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class _Times(msgspec.Struct, gc=False):
    requestReceivedTimestamp: _Time  # noqa: N815 - the wire's name
    stageTimestamp: _Time  # noqa: N815


class Told(msgspec.Struct, frozen=True, gc=False):
    """When an event was written (``at``) and its request ``received``, and the number of its line, which it may have to
    itself.
    """

    at: datetime
    received: datetime
    line: int
    is_line: bool


_times = msgspec.json.Decoder(_Times)


def is_newest_first(times: Sequence[datetime]) -> bool:
    """Whether times go back: in nine of ten steps, and from the first to the last.

    Where an order is lost for a moment, whatever the moment, every other step goes back; where logs in order stand one
    behind the other, one for each of them. Where a buffer was told from its end, most do, but not at large: what is
    nowhere further from its place than half of the log does not go back from first to last. Equal times are no step.
    """
    steps = [after < before for before, after in pairwise(times) if after != before]
    return len(steps) >= STEPS and times[-1] < times[0] and sum(steps) >= BACK * len(steps)


def is_evident(found: Sequence[Told]) -> bool:
    """Whether these events stand newest first: by when they were written, or, as some tools sort, by their requests."""
    written = [told.at for told in found]
    received = [told.received for told in found]
    return is_newest_first(written) or (is_newest_first(received) and written[-1] < written[0])


def is_undecided(found: Sequence[Told]) -> bool:
    """Whether more of a log than these events is to be looked at, where there is more."""
    return len({told.at for told in found}) <= STEPS or is_evident(found)


def first_events(head: bytes, export: Export | None) -> list[Told]:
    """The events that stand in the beginning of a log; what is none, or is cut, is passed over."""
    documents = Documents(lines(BytesIO(head)))
    found = list[Told]()
    for line in documents:
        try:
            found.append(_told(line, export, is_line=True))
        except UNUSABLE:
            found += _within(documents.within(line), export)
    return found


def _within(pieces: Iterator[Line], export: Export | None) -> Iterator[Told]:
    for piece in pieces:
        try:
            yield _told(piece, export, is_line=False)
        except UNUSABLE:
            continue


def _told(line: Line, export: Export | None, *, is_line: bool) -> Told:
    """Raises UNUSABLE."""
    times = _times.decode(EVENT_IN[export](line.data) if export else line.data)
    return Told(times.stageTimestamp, times.requestReceivedTimestamp, line.number, is_line)


def newest_first(path: str, found: Sequence[Told]) -> UnknownKindError:
    """Why a log with these first events is not imported, and what to do."""
    first, last = found[0], found[-1]
    return UnknownKindError(
        f"tells the newest event first (line {first.line:,} is of {_time(first.at)}, line {last.line:,} of"
        f" {_time(last.at)}), so no change could be told from it: {_advice(path, found)}"
    )


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _advice(path: str, found: Sequence[Told]) -> str:
    if not all(told.is_line for told in found):
        return "turn it around with jq's reverse, as docs/import.md shows"
    if path == "-":
        return "turn it around with tac before it comes here"
    file = shlex.quote(path)
    unpack = next((program for ending, program in UNPACK.items() if path.endswith(ending)), "")
    turned = f"{unpack} {file} | tac" if unpack else f"tac {file}"
    return f"turn it around, with {turned} | foreshock import -"
