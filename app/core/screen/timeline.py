"""Everything in a window, placed on one axis: lanes of spots, the density of changes, callers' heat, moments.

Nothing here draws: app/web/drawing.py does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.core.findings import CallerRow, Incident, Ranking, Spark, WriteFight
from app.core.model import Gap, Rollout
from app.core.phrases import measure, number, short_actor
from app.core.screen.axis import WIDTH, Axis, Tick, ticks
from app.core.screen.lanes import Lane, Mark, Problem, lanes

HEAT_LEVELS = 5


@dataclass(frozen=True, slots=True)
class Moment:
    """A time worth a line through everything: suspect, onset or alert."""

    key: str
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Blind:
    """An interval in which something was not seen."""

    x: float
    until: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A sparkline: points (x, 0 to 1 of the peak); None breaks it. ``bad`` when the series turned bad."""

    title: str
    subtitle: str
    points: tuple[tuple[float, float] | None, ...]
    bad: bool


@dataclass(frozen=True, slots=True)
class Heat:
    """One caller's row: cells (x, until, level 1 to HEAT_LEVELS). ``loud`` when it rose against its own before.

    ``most`` is what it asks for most: verb, resource.
    """

    title: str
    most: str
    detail: str
    cells: tuple[tuple[float, float, int], ...]
    loud: bool


@dataclass(frozen=True, slots=True)
class Braid:
    """A write fight from ``x`` to ``until``; ``sides`` says who or what takes turns."""

    title: str
    subtitle: str
    x: float
    until: float
    sides: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All that the incident's drawing shows."""

    axis: Axis
    ticks: tuple[Tick, ...]
    moments: tuple[Moment, ...]
    blind: tuple[Blind, ...]
    lines: tuple[Line, ...]
    density: tuple[int, ...]
    shown: int
    derived: int
    lanes: tuple[Lane, ...]
    heats: tuple[Heat, ...]
    braids: tuple[Braid, ...]


def picture(
    axis: Axis,
    incident: Incident,
    ranking: Ranking | None,
    *,
    marks: Sequence[Mark],
    derived: int,
    rollouts: Sequence[Rollout],
    problems: Sequence[Problem],
    gaps: Sequence[Gap],
) -> Picture:
    """The drawing of a window of an incident. ``ranking`` None: not ranked yet, so without its lines and callers.

    ``derived`` is how many changes controllers made because of another.
    """
    culprit = ranking.suspects[0].change if ranking and ranking.suspects else None
    chosen = culprit.id if culprit else ""
    return Picture(
        axis=axis,
        ticks=ticks(axis),
        moments=moments(axis, incident, ranking),
        blind=tuple(Blind(axis.x(g.from_at), max(axis.x(g.to_at), axis.x(g.from_at) + 4), g.why) for g in gaps),
        lines=tuple(line(axis, spark) for spark in (ranking.sparks if ranking else ())),
        density=density(axis, marks),
        shown=sum(mark.count for mark in marks),
        derived=derived,
        lanes=lanes(axis, marks, rollouts, problems=problems, chosen=chosen),
        heats=tuple(heats(axis, ranking.callers if ranking else ())),
        braids=tuple(
            braid(axis, fight) for fight in (ranking.fights if ranking else ()) if fight.ended_at >= axis.from_at
        ),
    )


def moments(axis: Axis, incident: Incident, ranking: Ranking | None) -> tuple[Moment, ...]:
    """#1, onset and first alert, those of them that the window holds. An onset that is the alert's start was not
    measured: it is no moment of its own."""
    onset = ranking.onset if ranking else incident.onset
    began = onset.at if onset and onset.at != incident.started_at else None
    found = [
        ("suspect", ranking.suspects[0].change.at if ranking and ranking.suspects else None, "#1"),
        ("onset", began, "onset"),
        ("alert", incident.started_at, "alert" if incident.alerts else "began"),
    ]
    return tuple(Moment(key, axis.x(at), text) for key, at, text in found if at is not None and axis.holds(at))


def density(axis: Axis, marks: Iterable[Mark], *, columns: int = 100) -> tuple[int, ...]:
    """How many changes fall into each of ``columns`` equal parts of the window."""
    counts = [0] * columns
    for mark in marks:
        if axis.holds(mark.at):
            counts[min(int(axis.x(mark.at) / WIDTH * columns), columns - 1)] += mark.count
    return tuple(counts)


def line(axis: Axis, spark: Spark) -> Line:
    """A sparkline scaled to its own peak within the window; samples outside the window are left out."""
    inside: list[tuple[float, float | None]] = []
    for slot, value in enumerate(spark.values):
        at = datetime.fromtimestamp(spark.start + slot * spark.step, UTC)
        if axis.holds(at):
            inside.append((axis.x(at), value))
    measured = [value for _, value in inside if value is not None]
    peak = max(measured, default=0.0)
    points = tuple(None if value is None else (x, value / peak if peak > 0 else 0.0) for x, value in inside)
    subtitle = f"peak {measure(peak, spark.unit)}" if measured else "not measured here"
    return Line(spark.title, subtitle, points, spark.bad_from is not None)


def heats(axis: Axis, callers: Sequence[CallerRow], *, most: int = 5) -> Iterable[Heat]:
    """The callers' rows, all on one scale of calls per second; a cell without calls is left out.

    The rows of one user are added up: who is loud comes before what is asked.
    """
    users: dict[str, list[CallerRow]] = {}
    for caller in callers:
        users.setdefault(caller.user, []).append(caller)
    shown = list(users.items())[:most]
    rates = {user: _rates(rows) for user, rows in shown}
    peak = max((rate for of_user in rates.values() for rate in of_user.values()), default=0.0)
    for user, rows in shown:
        cells = []
        for (start, step), rate in rates[user].items():
            begins = datetime.fromtimestamp(start, UTC)
            ends = begins + timedelta(seconds=step)
            if rate and ends > axis.from_at and begins < axis.to_at:
                level = 1 + min(int(rate / peak * HEAT_LEVELS), HEAT_LEVELS - 1)
                cells.append((axis.x(begins), axis.x(ends), level))
        before, after = sum(row.before_per_second for row in rows), sum(row.after_per_second for row in rows)
        detail = "; ".join(
            f"{row.verb} {row.resource} {number(row.before_per_second)}/s → {number(row.after_per_second)}/s"
            for row in rows
        )
        loud = after > 2 * before and after - before > peak / 20
        asked = max(rows, key=lambda row: row.after_per_second)
        yield Heat(short_actor(user), f"{asked.verb} {asked.resource}", detail, tuple(cells), loud)


def _rates(rows: Iterable[CallerRow]) -> dict[tuple[float, float], float]:
    """(start, length) of each slot → calls per second."""
    found: dict[tuple[float, float], float] = {}
    for row in rows:
        for slot, count in enumerate(row.counts):
            place = (row.start + slot * row.step, row.step)
            found[place] = found.get(place, 0.0) + count / row.step
    return found


def braid(axis: Axis, fight: WriteFight) -> Braid:
    """A write fight's place and names."""
    field = fight.path_text.removesuffix('"]').rpartition('["')[2].rpartition("/")[2].rpartition(".")[2]
    names = [one.name for one in fight.objects]
    of = f" of {names[0]}" if len(names) == 1 else f" × {len(names)} {fight.kind}" if names else ""
    return Braid("Write fight", f"{field}{of}", axis.x(fight.began_at), axis.x(fight.ended_at), sides(fight))


def sides(fight: WriteFight) -> str:
    """The writers that take turns; of a single one, between how many values it goes."""
    writers = [short_actor(writer) or "someone unknown" for writer in fight.writers]
    if len(writers) == 1 and fight.values:
        return f"{len(fight.values)} values by {writers[0]}"
    return " ⇄ ".join(writers[:2]) + (f" + {len(writers) - 2}" if len(writers) > 2 else "")
