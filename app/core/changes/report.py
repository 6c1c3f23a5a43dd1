"""What changed, as a table for a terminal: at most 20 lines of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from unicodedata import category

from app.core.model import Change, Gap
from app.core.objects.actors import short
from app.core.unseen import newest as newest_gaps

LINES = 20
COUNTED = 1000
"""How far the changes of a table are counted, and how many its JSON holds: at 03:00 an order of magnitude is enough."""
WIDTH = 80
NOT_SEEN = 2
"""What was not seen, in so many lines and one that counts the others."""
VAGUE = "~"
"""Behind a time that is only the last at which a change can have been made."""
_ONE = {"NAMESPACE": 16, "CHANGE": 37, "WHO": 16}
_REMEMBERED = {"NAMESPACE": 16, "CHANGE": 60, "WHO": 20, "FOUND IN": 40}
_SEVERAL = {"CLUSTER": 10, "NAMESPACE": 12, "CHANGE": 34, "WHO": 12}
"""Columns behind the time, and how wide they are: of one cluster, of several; and of a cluster's memory."""


def tame(text: str) -> str:
    """``text`` without what steers a terminal, turns it around or ends its line."""
    return "".join("\ufffd" if category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else c for c in text)


def plain(text: str, width: int) -> str:
    """``text`` in one line of exactly ``width`` columns; nothing that steers a terminal or turns it around."""
    line = tame(text)
    return line.ljust(width) if len(line) <= width else line[: width - 1] + "…"


def what_changed(
    changes: Sequence[Change],
    *,
    from_at: datetime,
    to_at: datetime,
    gaps: Sequence[Gap],
    total: int,
    recorded: Mapping[str, datetime],
) -> str:
    """``changes`` newest first, LINES of them are enough; ``total`` is how many there are, counted up to COUNTED.

    ``recorded`` says of each cluster up to when its changes are recorded. The clusters are named where there are
    several, and the days where not all is of the last.
    """
    over = "" if from_at.date() == to_at.date() else f"{to_at:%Y-%m-%d} "
    head = f"{from_at:%Y-%m-%d %H:%M:%S} to {over}{to_at:%H:%M:%S} UTC: "
    blind = newest_gaps(gaps, names=len(recorded) > 1, most=NOT_SEEN)
    if not changes:
        return as_text([*_nothing(head, from_at, max(recorded.values(), default=None)), *blind])
    vague = any(change.since for change in changes[: LINES - 2])
    room = LINES - 2 - len(blind) - vague
    shown = changes[:room]
    counted = f"{total} change{'' if total == 1 else 's'}{' or more' if total >= COUNTED else ''}"
    if len(shown) < total:
        counted += f", the newest {len(shown)}"
    columns = _ONE if len({change.resource.cluster for change in shown}) == 1 else _SEVERAL
    clock, wide = ("%H:%M:%S", 8)
    if any(change.at.date() != to_at.date() for change in shown):
        clock, wide = ("%m-%d %H:%M:%S", 14)
        columns = columns | {"CHANGE": columns["CHANGE"] + 8 - wide}
    title = " ".join([f"{'TIME':{wide}}", *(f"{name:{width}}" for name, width in columns.items())])
    notes = [f"{VAGUE} then at the latest: nobody saw when exactly"] if vague else []
    return as_text([head + counted, title, *(_line(change, columns, clock) for change in shown), *notes, *blind])


def remembered(changes: Sequence[Change], *, cluster: str, from_at: datetime, to_at: datetime, new: int) -> str:
    """What a cluster remembers of its past, the newest first, each with what it was found in; wider than WIDTH."""
    counted = f"{len(changes)} change{'' if len(changes) == 1 else 's'}, {new} of them new here"
    lines = [f"{from_at:%Y-%m-%d %H:%M:%S} to {to_at:%Y-%m-%d %H:%M:%S} UTC: {cluster} remembers {counted}"]
    if changes:
        lines.append(" ".join([f"{'TIME':20}", *(f"{name:{width}}" for name, width in _REMEMBERED.items())]))
    for one in changes:
        when = f"{one.at:%Y-%m-%d %H:%M:%S}{VAGUE if one.since else ' '}"
        cells = (one.resource.namespace or "-", one.summary, short(one.actor), one.found_in)
        texts = (plain(text, width) for text, width in zip(cells, _REMEMBERED.values(), strict=True))
        lines.append(" ".join([when, *texts]).rstrip())
    if any(one.since for one in changes):
        lines.append(f"{VAGUE} then at the latest: nobody saw when exactly")
    return "".join(line + "\n" for line in lines)


def _nothing(head: str, from_at: datetime, newest: datetime | None) -> list[str]:
    """That nothing changed, told from that nobody looked."""
    if newest is None:
        return [head + "no change is recorded yet"]
    if newest < from_at:
        return [head + "nothing was recorded", f"recorded up to {newest:%Y-%m-%d %H:%M:%S} UTC"]
    return [head + "no change was seen"]


def _line(change: Change, columns: Mapping[str, int], clock: str) -> str:
    resource = change.resource
    cells = {
        "CLUSTER": resource.cluster,
        "NAMESPACE": resource.namespace or "-",
        "CHANGE": change.summary or f"{change.verb} {resource.kind} {resource.name}",
        "WHO": short(change.actor),
    }
    when = f"{change.at:{clock}}{VAGUE if change.since else ' '}"
    return when + " ".join(plain(cells[name], width) for name, width in columns.items())


def as_text(lines: Iterable[str]) -> str:
    """Lines of at most WIDTH columns, each ended."""
    return "".join(plain(line, WIDTH).rstrip() + "\n" for line in lines)
