"""Tables of what REST tells beside changes and incidents: problems, what moved, lines, marks, the installation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from html import unescape
from textwrap import wrap

from app.core.changes.report import WIDTH
from app.core.phrases import measure, of_unnamed
from app.core.screen.lines_table import LINES
from app.core.screen.tables import TABLES, Column, Item, Table


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _hurt(after: Item) -> list[str]:
    """In what it was looked for, and what hurt then."""
    looked = ", ".join(after["looked_at"])
    lines = [f"looked at: {looked}" if looked else "neither calls nor metrics were recorded around it"]
    for one in after["problems"]:
        named = [one["reason"], one["kind"], one["name"], f"x {one['count']}" if one["count"] > 1 else ""]
        lines.append(f"{_at(one['first_at']):%H:%M:%S} {' '.join(filter(None, named))}")
    return lines


def _marked(mark: Item) -> str:
    """What a mark says, which is HTML, as text: without the link at its end."""
    said = mark["text"].partition("<a ")[0].removesuffix(", ")
    return unescape(", ".join(filter(None, (mark["title"], said))))


def _until(mark: Item) -> str:
    """When it ended, by the day where that is another one."""
    if mark["time_end"] is None:
        return ""
    begin, end = _at(mark["time"]), _at(mark["time_end"])
    return f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%m-%d}"


def _where(mark: Item) -> str:
    return " ".join(mark["tags"].split(",")[1:3])


def _first_line(panel: Item) -> str:
    """Of a panel's lines the one that says most, and how many more there are."""
    first, *more = panel["lines"]
    named = " ".join(first["of"].values()) or "all"
    return f"{named} (+{len(more)})" if more else named


def _of_first(panel: Item, chosen: Callable[[list[float]], float]) -> str:
    known = [value for value in panel["lines"][0]["values"] if value is not None]
    return measure(chosen(known), panel["unit"]) if known else ""


def _late(place: Item) -> str:
    """That what a place is told is tried in vain."""
    return f"{place['messages']} to {place['channel']}, in vain since {_at(place['since']):%m-%d %H:%M}: {place['why']}"


def _share(found: Item) -> str:
    return f"{found['share']:.0%} ({found['low']:.0%} to {found['high']:.0%})"


def _right(accuracy: Item) -> list[str]:
    """How often the ranking was right, and whether its odds hold."""
    lines = [
        f"{one['when']}: {where} in {_share(found) if found['cases'] else '-'} of {found['cases']}"
        + (f", {found['left_out']} left out" if found["left_out"] else "")
        for one in accuracy["ranked"]
        for where, found in (("first", one["first"]), ("among three", one["among_three"]))
    ]
    lines += wrap(of_unnamed(accuracy["unnamed"]), WIDTH)
    lines += [f"said {one['said']:.0%} of {one['cases']}: right in {_share(one['right'])}" for one in accuracy["odds"]]
    none, led = accuracy["without_culprit"], accuracy["none_led"]
    return [*lines, f"no change began {none}: none of these led in {led}"] if none else lines


def _told_of(route: Item) -> str:
    """What a route tells, and of what."""
    lists = [(name, ", ".join(route[name])) for name in ("clusters", "namespaces", "kinds", "severities")]
    named = [f"{name} {patterns}" for name, patterns in lists if patterns]
    named += [f"{name}={value}" for name, value in route["labels"].items()]
    return f"{' and '.join(route['tells'])} of {'; '.join(named) or 'everything'}"


def _not_told(answer: Item) -> list[str]:
    """Where incidents are told; when, where and why nothing is told; and what is wrong with the file."""
    lines = [f"incidents are told in {answer['incidents']}"] if answer["incidents"] else []
    for one in answer["items"]:
        if quiet := one["quiet"]:
            lines.append(f"quiet in {one['place']}: {quiet['begins']} to {quiet['ends']} {quiet['zone']}")
        if one["off"]:
            lines += wrap(f"turned off: {one['place']}: {one['off']}", WIDTH)
        for remark in one["remarks"]:
            lines += wrap(f"{one['place']}: {remark}", WIDTH)
    for one in answer["muted"]:
        what = " ".join(filter(None, (one["kind"], one["name"] or "all changes", one["namespace"], one["cluster"])))
        lines.append(f"muted in {one['channel']}: {what}, until {_at(one['until']):%m-%d %H:%M}, by {one['said_by']}")
    wrong = answer["file_error"]
    return [*lines, *(wrap(f"the file of routes is not taken as it is now: {wrong}", WIDTH) if wrong else ())]


def _why(route: Item) -> str:
    if route["why_not"]:
        return str(route["why_not"])
    if route["muted_by"]:
        return f"muted by {route['muted_by']}"
    quiet = route["quiet_until"]
    return f"after the quiet hours, {_at(quiet):%m-%d %H:%M} UTC" if quiet else ""


ALL: Mapping[str, Table] = {
    **TABLES,
    "Problems": Table(
        "problem",
        "first_at",
        (
            Column("NAMESPACE", 16, lambda problem: problem["namespace"] or "-"),
            Column("WHAT", 0, lambda problem: f"{problem['kind']} {problem['name']}".strip() or "-"),
            Column("REASON", 20, lambda problem: problem["reason"]),
            Column("COUNT", 6, lambda problem: str(problem["count"]), right=True),
        ),
    ),
    "After": Table(
        "moved line",
        "at",
        (
            Column("LINE", 0, lambda line: line["title"]),
            Column("WHO", 24, lambda line: line["who"] or "the whole cluster"),
            Column("BEFORE", 8, lambda line: measure(line["before"], line["unit"]), right=True),
            Column("AFTER", 8, lambda line: measure(line["after"], line["unit"]), right=True),
        ),
        after=_hurt,
    ),
    "Metrics": Table("metric", "", (Column("METRIC", 0, lambda metric: metric["name"]),)),
    "Lines": LINES,
    "Evaluated": LINES,
    "Annotations": Table(
        "mark",
        "time",
        (
            Column("UNTIL", 8, _until),
            Column("OF", 8, lambda mark: mark["tags"].partition(",")[0]),
            Column("WHERE", 16, _where),
            Column("WHAT", 0, _marked),
        ),
    ),
    "ControlPlane": Table(
        "panel",
        "",
        (
            Column("PANEL", 30, lambda panel: panel["title"]),
            Column("FIRST LINE", 0, _first_line),
            Column("HIGHEST", 9, lambda panel: _of_first(panel, max), right=True),
            Column("LAST", 9, lambda panel: _of_first(panel, lambda values: values[-1]), right=True),
        ),
        after=lambda answer: (
            wrap(f"nothing is known of: {', '.join(answer['missing'])}", WIDTH) if answer["missing"] else []
        ),
    ),
    "Accuracy": Table(
        "verdict",
        "at",
        (
            Column("INCIDENT", 0, lambda said: said["title"]),
            Column("SUSPECT", 18, lambda said: said["name"]),
            Column("STOOD", 5, lambda said: "" if said["place"] is None else str(said["place"]), right=True),
            Column("WAS", 6, lambda said: said["opinion"]),
            Column("SAYS", 14, lambda said: said["by"]),
        ),
        after=_right,
    ),
    "Deliveries": Table(
        "undelivered message",
        "at",
        (
            Column("WHERE", 12, lambda one: one["channel"]),
            Column("WHAT", 22, lambda one: one["title"]),
            Column("WHY", 0, lambda one: one["error"]),
        ),
        after=lambda answer: [f"there: {answer['there']}, waiting: {answer['waiting']}", *map(_late, answer["late"])],
    ),
    "RoutesTold": Table(
        "route",
        "",
        (
            Column("WHERE", 14, lambda one: one["place"]),
            Column("OF", 20, lambda one: one["of"]),
            Column("TELLS", 0, _told_of),
        ),
        after=_not_told,
    ),
    "Routing": Table(
        "route",
        "",
        (
            Column("WHERE", 14, lambda one: one["place"]),
            Column("TELLS", 5, lambda one: "yes" if one["tells"] else "no"),
            Column("WHY", 0, _why),
        ),
        after=lambda answer: [answer["never"]] if answer["never"] else [],
    ),
    "Views": Table(
        "view",
        "",
        (Column("NAME", 34, lambda view: view["name"]), Column("QUESTION", 0, lambda view: view["query"])),
    ),
}
"""With those of tables.TABLES; by the name of the answer, as app/web/answers.py and app/web/shown.py have it."""
