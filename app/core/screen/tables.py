"""Lists as tables for a terminal, of 80 columns or as wide as they need, made of REST's JSON: what was not seen stands
at the end. The server makes the narrow ones, the `foreshock` command the wide ones, of the same columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from textwrap import wrap
from typing import Any

from app.core.changes.report import VAGUE, WIDTH, plain, tame
from app.core.model import Actor, ActorSource
from app.core.objects.actors import short
from app.core.phrases import duration, no_ranking, percent
from app.core.unseen import not_seen

Item = Mapping[str, Any]
SERVICE_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Column:
    """``width`` 0 is what the others leave; numbers stand ``right``."""

    title: str
    width: int
    cell: Callable[[Item], str]
    right: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """``time`` is the field that the first column shows, "" where there is none. ``rows`` are an answer's items, with
    what their columns need of the rest of it. ``beneath`` is said of an item below its row, ``after`` of the whole
    answer below all rows. ``more`` are columns that 80 have no room for."""

    noun: str
    time: str
    columns: tuple[Column, ...]
    rows: Callable[[Item], Sequence[Item]] = lambda answer: answer["items"]
    beneath: Callable[[Item], Sequence[str]] = lambda _: ()
    after: Callable[[Item], Sequence[str]] = lambda _: ()
    more: tuple[Column, ...] = ()


def as_text(answer: Item, of: Table) -> str:
    """A table of an answer's items in WIDTH columns. Times are UTC, and without their date where all are of one day."""
    return "".join(plain(line, WIDTH).rstrip() + "\n" for line in _lines(answer, of, _columns(answer["items"], of)))


def as_wide_text(answer: Item, of: Table) -> str:
    """The same with more columns, each as wide as what stands in it; nothing is cut off."""
    items = of.rows(answer)
    columns = [
        replace(column, width=max(len(text) for text in (column.title, *(tame(column.cell(item)) for item in items))))
        for column in (*_columns(items, of), *of.more)
    ]
    return "".join(tame(line).rstrip() + "\n" for line in _lines(answer, of, columns))


def as_title(of: Table, *, clusters: bool) -> str:
    """The titles above rows of ``as_row``."""
    columns = (_OF_CLUSTER, *of.columns) if clusters else of.columns
    return _row("TIME".ljust(_DATED), columns, _widths(columns, _DATED), lambda column: column.title)


def as_row(item: Item, of: Table, *, clusters: bool) -> str:
    """One item that comes by itself, in WIDTH columns, with the date of its time; ``clusters``: with its cluster."""
    columns = (_OF_CLUSTER, *of.columns) if clusters else of.columns
    when = _when(_time(item[of.time]), one_day=False) + _vague(item)
    return _row(when, columns, _widths(columns, _DATED), lambda column: column.cell(item))


def _lines(answer: Item, of: Table, columns: Sequence[Column]) -> Iterator[str]:
    items = of.rows(answer)
    times = [_time(one[of.time]) for one in items] if of.time else []
    one_day = len({at.date() for at in times}) == 1
    before = len(_when(times[0], one_day=one_day)) + len(VAGUE) if times else 0
    widths = _widths(columns, before)
    yield _head(len(items), of.noun, times)
    if items:
        yield _row("TIME".ljust(before)[:before], columns, widths, lambda column: column.title)
    for number, item in enumerate(items):
        when = _when(times[number], one_day=one_day) + _vague(item) if times else ""
        yield _row(when, columns, widths, lambda column, item=item: column.cell(item))  # type: ignore[misc]
        yield from of.beneath(item)
    if any(item.get("since") for item in items):
        yield f"{VAGUE} then at the latest: nobody saw when exactly"
    yield from of.after(answer)
    if answer.get("next"):
        yield f"there is more: after={answer['next']}"
    yield from _recorded(answer["freshness"])
    if of.noun != _GAPS.noun:
        yield from not_seen(answer["gaps"], names=len(answer["freshness"]) > 1)


def _widths(columns: Sequence[Column], before: int) -> list[int]:
    """How wide each column is, behind ``before`` columns of time."""
    room = WIDTH - before - sum(column.width for column in columns) - (len(columns) - 1)
    return [column.width or room for column in columns]


def _row(when: str, columns: Sequence[Column], widths: Sequence[int], text: Callable[[Column], str]) -> str:
    cells = (_aligned(text(one), width, right=one.right) for one, width in zip(columns, widths, strict=True))
    return when + " ".join(cells)


def _vague(item: Item) -> str:
    return VAGUE if item.get("since") else " "


def seen(answer: Item) -> list[str]:
    """Up to when the record of an answer reaches, and its newest gaps, in lines."""
    return [*_recorded(answer["freshness"]), *not_seen(answer["gaps"], names=len(answer["freshness"]) > 1)]


def _head(count: int, noun: str, times: Sequence[datetime]) -> str:
    if not count:
        return f"no {noun}s"
    head = f"{count} {noun}{'' if count == 1 else 's'}"
    if not times:
        return head
    first, last = min(times), max(times)
    if first == last:
        return f"{head}, {first:%Y-%m-%d %H:%M:%S} UTC"
    until = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"{head}, {first:%Y-%m-%d %H:%M:%S} to {until} UTC"


def _columns(items: Sequence[Item], of: Table) -> tuple[Column, ...]:
    """With the cluster where the items are of several."""
    if len({_cluster(one) for one in items}) > 1 and of.noun != _CLUSTERS.noun:
        return (_OF_CLUSTER, *of.columns)
    return of.columns


def _aligned(text: str, width: int, *, right: bool) -> str:
    return plain(text, width).strip().rjust(width) if right else plain(text, width)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _when(at: datetime, *, one_day: bool) -> str:
    return f"{at:%H:%M:%S}" if one_day else f"{at:%m-%d %H:%M:%S}"


def _cluster(item: Item) -> str:
    if "change" in item:
        return _cluster(item["change"])
    return str(item["resource"]["cluster"] if isinstance(item.get("resource"), Mapping) else item.get("cluster", ""))


def _recorded(freshness: Sequence[Item]) -> list[str]:
    """Up to when there is a record; of several clusters, the one that is furthest behind."""
    if not freshness:
        return ["nothing is recorded yet"]
    last = min(freshness, key=lambda one: one["at"] or "")
    whose = f": {last['cluster']}, the furthest behind of {len(freshness)}" if len(freshness) > 1 else ""
    if last["at"] is None:
        return [f"nothing is recorded yet{whose}"]
    return [f"recorded up to {_time(last['at']):%Y-%m-%d %H:%M:%S} UTC{whose}"]


def _who(change: Item) -> str:
    source = ActorSource(change["actor_source"])
    return short(Actor(change["actor"], source, change["user_agent"], change["pod"], change["impersonator"]))


def _what(change: Item) -> str:
    """The summary without who: that has a column."""
    resource = change["resource"]
    named = change["summary"].removesuffix(f", by {_who(change)}")
    return named or f"{change['verb']} {resource['kind']} {resource['name']}"


def _namespace(item: Item) -> str:
    return item["resource"]["namespace"] or "-"


def _length(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _moved(rollout: Item) -> str:
    """Why it is where it is, where that is known; else what it brings."""
    images = ", ".join(image.rpartition("/")[2] for image in rollout["images"])
    return rollout["reason"] or images


def _first(incident: Item) -> str:
    first, none = incident["first_suspect"], incident["none_of_these"]
    if first is None or (none is not None and none > first["probability"]):
        return "" if none is None else f"{_share(none)} none of these"
    return f"{_share(first['probability'])} {first['name']}"


def _share(share: float) -> str:
    """As pages say it, in the room that a column has."""
    return percent(share).replace(" ", "")


def _before(suspect: Item) -> str:
    """How long before the onset, as T-minus."""
    ahead = suspect["t_minus_seconds"]
    return f"T{'-' if ahead >= 0 else '+'}{_length(abs(ahead))}"


_SUMMARY, _UNDER = 33, "       "


def _evidence(suspect: Item) -> list[str]:
    """The change where its row has no room for it; for (+), against (-), and what could not be measured (?)."""
    what = _what(suspect["change"])
    lines = wrap(what, WIDTH, initial_indent=_UNDER, subsequent_indent=_UNDER) if len(what) > _SUMMARY else []
    for one in suspect["evidence"]:
        sign = "?" if not one["measured"] else "+" if one["weight"] > 0 else "-"
        lines += wrap(one["sentence"], WIDTH, initial_indent=f"     {sign} ", subsequent_indent=_UNDER)
    return [*lines, *flip(suspect)]


def flip(suspect: Item) -> list[str]:
    """What its place hangs on, where a single piece of evidence decides."""
    rule = suspect["would_flip"]
    said = f"without the evidence “{rule}” what is behind it would come before it" if rule else ""
    return wrap(said, WIDTH, initial_indent=_UNDER, subsequent_indent=_UNDER)


NO_CHANGE = "no change was seen before it"
"""Where there was none to choose from, there is no share of none of them."""


def _left(suspects: Item) -> list[str]:
    if suspects["none_of_these"] is None:
        ranked_at = suspects["ranked_at"]
        return [no_ranking(None if ranked_at is None else _time(ranked_at))]
    missed = suspects["not_measured"]
    return [
        f"{_share(suspects['none_of_these'])} that it was none of these" if suspects["candidates"] else NO_CHANGE,
        *(["what turned bad:"] if suspects["findings"] else []),
        *(
            line
            for one in suspects["findings"]
            for line in wrap(one["sentence"], WIDTH, initial_indent="     * ", subsequent_indent=_UNDER)
        ),
        *wrap(f"not measured: {' '.join(missed)}" if missed else "", WIDTH),
    ]


def _call(call: Item) -> str:
    """What tells it apart, the shortest things first: the end is cut off."""
    order = ("verb", "resource", "code", "list_class", "waited_for", "namespace", "user", "pod", "user_agent")
    told = [str(call[name]).removeprefix(SERVICE_ACCOUNT) for name in order if call[name] not in (None, "")]
    return " ".join(told) or "all calls"


FEW = 0.1


def _rate(name: str) -> Callable[[Item], str]:
    """Of what is rare so many digits that once in an hour is not never."""
    return lambda call: f"{call[name]:.4f}" if 0 < call[name] < FEW else f"{call[name]:.1f}"


def _unseen(cluster: Item) -> str:
    told = [*(gap["why"] for gap in cluster["unseen"]), *cluster["remarks"]]
    return "; ".join(told)


def _done(entry: Item) -> str:
    return str(entry["action"]) if entry["times"] == 1 else f"{entry['times']}x {entry['action']}"


def _stretches(calls: Item) -> list[str]:
    """Which two stretches of time are told beside each other; where nothing is, what it would take."""
    begin, end = _time(calls["now_from"]), _time(calls["to"])
    length = duration((end - begin).total_seconds())
    lines = [] if calls["items"] else ["no such call is known of then; what is called is known from an audit log"]
    return [*lines, f"now is the {length} to {end:%Y-%m-%d %H:%M:%S} UTC, before the {length} before that"]


_OF_CLUSTER = Column("CLUSTER", 10, _cluster)
_DATED = len("11-20 14:03:44") + len(VAGUE)
_CHANGES = Table(
    "change",
    "at",
    (Column("NAMESPACE", 16, _namespace), Column("CHANGE", 0, _what), Column("WHO", 16, _who)),
    more=(
        Column("KIND", 0, lambda change: change["resource"]["kind"]),
        Column("NAME", 0, lambda change: change["resource"]["name"]),
        Column("ID", 0, lambda change: change["id"]),
    ),
)
_GAPS = Table(
    "gap",
    "from_at",
    (
        Column("TO", 14, lambda gap: f"{_time(gap['to_at']):%m-%d %H:%M:%S}"),
        Column("KIND", 16, lambda gap: gap["kind"] or "every kind"),
        Column("WHY", 0, lambda gap: gap["why"]),
    ),
)
_CLUSTERS = Table(
    "cluster",
    "",
    (
        Column("CLUSTER", 20, lambda cluster: cluster["name"]),
        Column("FOLLOWED", 8, lambda cluster: "yes" if cluster["followed"] else "no"),
        Column("SERVER", 14, lambda cluster: cluster["server"]),
        Column("KINDS", 5, lambda cluster: str(cluster["kinds"]), right=True),
        Column("NOT SEEN NOW", 0, _unseen),
    ),
)
TABLES: Mapping[str, Table] = {
    "Changes": _CHANGES,
    "History": _CHANGES,
    "Rollouts": Table(
        "rollout",
        "started_at",
        (
            Column("NAMESPACE", 14, _namespace),
            Column("WORKLOAD", 20, lambda rollout: rollout["resource"]["name"]),
            Column("OUTCOME", 11, lambda rollout: rollout["outcome"]),
            Column("TOOK", 6, lambda rollout: _length(rollout["seconds"]), right=True),
            Column("WHAT", 0, _moved),
        ),
    ),
    "Incidents": Table(
        "incident",
        "started_at",
        (
            Column("ID", 12, lambda incident: incident["id"]),
            Column("STATUS", 9, lambda incident: incident["status"]),
            Column("TITLE", 0, lambda incident: incident["title"]),
            Column("FIRST SUSPECT", 20, _first),
        ),
        more=(
            Column("CLUSTER", 0, lambda incident: incident["cluster"]),
            Column("SEVERITY", 0, lambda incident: incident["severity"]),
            Column("NAMESPACES", 0, lambda incident: ",".join(incident["namespaces"])),
            Column("OPENED BY", 0, lambda incident: incident["opened_by"] or incident["origin"]),
        ),
    ),
    "Suspects": Table(
        "suspect",
        "",
        (
            Column("#", 2, lambda suspect: str(suspect["rank"]), right=True),
            Column("ODDS", 4, lambda suspect: _share(suspect["probability"]), right=True),
            Column("WHEN", 8, _before),
            Column("NAMESPACE", 14, lambda suspect: _namespace(suspect["change"])),
            Column("CHANGE", _SUMMARY, lambda suspect: _what(suspect["change"])),
            Column("WHO", 14, lambda suspect: _who(suspect["change"])),
        ),
        beneath=_evidence,
        after=_left,
        more=(Column("ID", 0, lambda suspect: suspect["change"]["id"]),),
    ),
    "Calls": Table(
        "caller",
        "",
        (
            Column("CALLS", 0, _call),
            Column("/S NOW", 8, _rate("per_second"), right=True),
            Column("BEFORE", 8, _rate("before_per_second"), right=True),
            Column("ERRORS/S", 8, _rate("errors_per_second"), right=True),
            Column("MEAN MS", 8, _rate("mean_latency_ms"), right=True),
        ),
        after=_stretches,
    ),
    "Gaps": _GAPS,
    "Clusters": _CLUSTERS,
    "AuditLog": Table(
        "record",
        "at",
        (
            Column("ACTION", 18, _done),
            Column("ABOUT", 0, lambda entry: entry["about"]),
            Column("WHO", 14, lambda entry: entry["who"] or "-"),
            Column("FROM", 15, lambda entry: entry["address"] or "-"),
        ),
    ),
}
"""By the name of the answer, as app/web/answers.py has it."""
