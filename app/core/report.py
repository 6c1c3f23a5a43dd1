"""What changed, as a table for a terminal: at most 20 lines of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from unicodedata import category

from app.core.actors import short
from app.core.model import Change, Gap

LINES = 20
COUNTED = 1000
"""How far the changes of a table are counted, and how many its JSON holds: at 03:00 an order of magnitude is enough."""
WIDTH = 80
_WHERE, _WHO = 16, 16
_WHAT = WIDTH - len("00:00:00") - _WHERE - _WHO - 3


def plain(text: str, width: int) -> str:
    """``text`` in one line of exactly ``width`` columns; nothing that steers a terminal or turns it around."""
    line = "".join("\ufffd" if category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else c for c in text)
    return line.ljust(width) if len(line) <= width else line[: width - 1] + "…"


def what_changed(
    changes: Sequence[Change],
    *,
    from_at: datetime,
    to_at: datetime,
    gaps: Sequence[Gap],
    total: int,
) -> str:
    """``changes`` newest first, LINES of them are enough; ``total`` is how many there are, counted up to COUNTED."""
    over = "" if from_at.date() == to_at.date() else f"{to_at:%Y-%m-%d} "
    head = f"{from_at:%Y-%m-%d %H:%M:%S} to {over}{to_at:%H:%M:%S} UTC: "
    blind = [f"not seen {gap.from_at:%H:%M:%S} to {gap.to_at:%H:%M:%S}: {gap.why}" for gap in gaps[:2]]
    if len(gaps) > 2:
        blind[1] = f"and {len(gaps) - 1} more intervals were not seen in full"
    if not changes:
        return _text([head + "no change was seen", *blind])
    room = LINES - 2 - len(blind)
    shown = changes[:room]
    counted = f"{total} change{'' if total == 1 else 's'}{' or more' if total >= COUNTED else ''}"
    if len(shown) < total:
        counted += f", the newest {len(shown)}"
    title = f"{'TIME':8} {'NAMESPACE':{_WHERE}} {'CHANGE':{_WHAT}} {'WHO':{_WHO}}"
    return _text([head + counted, title, *(_line(change) for change in shown), *blind])


def _line(change: Change) -> str:
    where = change.resource.namespace or "-"
    what = change.summary or f"{change.verb} {change.resource.kind} {change.resource.name}"
    who = short(change.actor)
    return f"{change.at:%H:%M:%S} {plain(where, _WHERE)} {plain(what, _WHAT)} {plain(who, _WHO)}"


def _text(lines: list[str]) -> str:
    return "".join(plain(line, WIDTH).rstrip() + "\n" for line in lines)
