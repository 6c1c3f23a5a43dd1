"""Lines over time as a table for a terminal, made of REST's JSON: how each went, its last value and its highest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from textwrap import wrap

from app.core.changes.report import WIDTH
from app.core.phrases import duration, measure
from app.core.screen.tables import SERVICE_ACCOUNT, Column, Item, Table

MARKS = "▁▂▃▄▅▆▇█"
OVER_TIME = 12
"""Columns in which a line is drawn: each is the highest value of so much of its time, blank where nothing was
measured."""
_FIGURE, _MOMENT = 10, len("11-20 14:03")
_NAME = WIDTH - OVER_TIME - 2 * _FIGURE - _MOMENT - 4
_UNDER = "     "


def drawn(values: Sequence[float | None]) -> str:
    """A line in at most OVER_TIME marks, between 0 and its highest value; below 0 from its lowest."""
    size = min(OVER_TIME, len(values))
    ends = [number * len(values) // size for number in range(size + 1)] if size else [0]
    bins = [[value for value in values[low:high] if value is not None] for low, high in pairwise(ends)]
    tops = [max(known) if known else None for known in bins]
    known = [top for top in tops if top is not None]
    low, high = min(0.0, *known, 0.0), max(0.0, *known, 0.0)
    span = high / 2 - low / 2 or 1.0  # halves: what a Prometheus answers may be as large as a float can be
    return "".join(" " if top is None else MARKS[round((top / 2 - low / 2) / span * (len(MARKS) - 1))] for top in tops)


def _rows(answer: Item) -> list[Item]:
    """The lines, each with what the whole answer says: the unit, and when a value was."""
    said = {name: answer[name] for name in ("unit", "start", "step_seconds")}
    return [{**line, **said} for line in answer["items"]]


def _name(line: Item) -> str:
    if line["others"]:
        return f"{line['others']} others"
    told = (str(value).removeprefix(SERVICE_ACCOUNT) for value in line["of"].values())
    return " ".join(filter(None, told)) or ("none" if line["of"] else "all")


def _whole_name(line: Item) -> list[str]:
    """The name where its column has no room for it."""
    name = _name(line)
    return wrap(name, WIDTH, initial_indent=_UNDER, subsequent_indent=_UNDER) if len(name) > _NAME else []


def _known(line: Item) -> list[tuple[float, int]]:
    return [(value, place) for place, value in enumerate(line["values"]) if value is not None]


def _figure(value: float, unit: str) -> str:
    """It is written shorter where it has more digits than there is room for: one that is cut off is another one."""
    told = measure(value, unit)
    return told if len(told) <= _FIGURE else f"{value:.2e}"


def _last(line: Item) -> str:
    known = _known(line)
    return _figure(known[-1][0], line["unit"]) if known else "-"


def _highest(line: Item) -> tuple[float, int] | None:
    return max(_known(line), key=lambda one: one[0], default=None)


def _at(answer: Item, place: int) -> datetime:
    start = datetime.fromisoformat(answer["start"]).timestamp()
    return datetime.fromtimestamp(start + place * answer["step_seconds"], UTC)


def _highest_value(line: Item) -> str:
    found = _highest(line)
    return _figure(found[0], line["unit"]) if found else "-"


def _highest_at(line: Item) -> str:
    found = _highest(line)
    if found is None:
        return ""
    day = line["step_seconds"] * len(line["values"]) > 86_400
    return f"{_at(line, found[1]):{'%m-%d %H:%M' if day else '%H:%M:%S'}}"


def _how(answer: Item) -> list[str]:
    """How it was measured and of which time; up to when anything was; and what a Prometheus warned of."""
    items = answer["items"]
    warned = [line for one in answer.get("warnings", ()) for line in wrap(f"Prometheus warns: {one}", WIDTH)]
    places = [known[-1][1] for line in items if (known := _known(line))]
    if not places:
        return ["nothing was measured of it then", *warned]
    by = next((f" by {', '.join(line['of'])}" for line in items if line["of"]), "")
    begin, end = (_at(answer, place) for place in (0, len(items[0]["values"]) - 1))
    until = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    step = duration(answer["step_seconds"])
    told = f"{answer['measure']}{by}, {begin:%Y-%m-%d %H:%M:%S} to {until} UTC, a value each {step}"
    newest = f"measured up to {_at(answer, max(places)):%Y-%m-%d %H:%M:%S} UTC; blank: nothing was measured"
    return [*wrap(told, WIDTH), newest, *warned]


LINES = Table(
    "line",
    "",
    (
        Column("LINE", _NAME, _name),
        Column("OVER TIME", OVER_TIME, lambda line: drawn(line["values"])),
        Column("LAST", _FIGURE, _last, right=True),
        Column("HIGHEST", _FIGURE, _highest_value, right=True),
        Column("AT", _MOMENT, _highest_at),
    ),
    rows=_rows,
    beneath=_whole_name,
    after=_how,
)
