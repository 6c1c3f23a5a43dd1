"""Everything in a window, placed on one axis: lanes of spots, the density of changes, callers' heat, moments.

Nothing here draws: app/web/drawing.py does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.core import kinds
from app.core.axis import WIDTH, Axis, Tick, ticks
from app.core.model import CallerRow, Gap, Incident, Outcome, Ranking, Rollout, Spark, WriteFight
from app.core.phrases import measure, number, short_actor

BAR_ROWS = 6
"""Rows of bars in the rollout lane; what does not fit shares the last one."""
HEAT_LEVELS = 5


@dataclass(frozen=True, slots=True)
class Mark:
    """Changes of one kind that fall on one place of the axis; ``change_id`` and ``name`` are those of the first."""

    api_group: str
    kind: str
    at: datetime
    count: int
    change_id: str
    name: str
    derived: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """Symptoms of one object with one reason within a window; its workload stands for a pod where it is known."""

    reason: str
    kind: str
    namespace: str | None
    name: str
    first_at: datetime
    last_at: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Spot:
    """One thing in a lane, from ``x`` to ``until`` (equal for a point) in ``row``; ``tone`` says how it stands out."""

    x: float
    until: float
    row: int
    tone: str  # plain, suspect, failed, running
    change_id: str
    label: str


@dataclass(frozen=True, slots=True)
class Lane:
    """``shape`` is bar, circle, diamond or square; ``rows`` how many rows its spots take."""

    key: str
    title: str
    subtitle: str
    shape: str
    rows: int
    spots: tuple[Spot, ...]


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
    """One caller's row: cells (x, until, level 1 to HEAT_LEVELS). ``loud`` when it rose against its own before."""

    title: str
    detail: str
    cells: tuple[tuple[float, float, int], ...]
    loud: bool


@dataclass(frozen=True, slots=True)
class Braid:
    """A write fight from ``x`` to ``until``."""

    title: str
    subtitle: str
    x: float
    until: float
    writers: tuple[str, ...]


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


LANES: dict[kinds.Lane, tuple[str, str]] = {
    kinds.Lane.CONFIG: ("Config", "circle"),
    kinds.Lane.ACCESS: ("Access & network", "diamond"),
    kinds.Lane.CUSTOM: ("Custom", "square"),
    kinds.Lane.CAPACITY: ("Capacity", "circle"),
}
"""Title and shape of the lanes of points, in their order."""


def picture(
    axis: Axis,
    incident: Incident,
    ranking: Ranking | None,
    *,
    marks: Sequence[Mark],
    rollouts: Sequence[Rollout],
    problems: Sequence[Problem],
    gaps: Sequence[Gap],
) -> Picture:
    """The drawing of a window of an incident. ``ranking`` None: not ranked yet, so without its lines and callers."""
    culprit = ranking.suspects[0].change if ranking and ranking.suspects else None
    chosen = culprit.id if culprit else ""
    told = [mark for mark in marks if not mark.derived]
    return Picture(
        axis=axis,
        ticks=ticks(axis),
        moments=moments(axis, incident, ranking),
        blind=tuple(Blind(axis.x(g.from_at), max(axis.x(g.to_at), axis.x(g.from_at) + 4), g.why) for g in gaps),
        lines=tuple(line(axis, spark) for spark in (ranking.sparks if ranking else ())),
        density=density(axis, told),
        shown=sum(mark.count for mark in told),
        derived=sum(mark.count for mark in marks if mark.derived),
        lanes=lanes(axis, told, rollouts, problems=problems, chosen=chosen),
        heats=tuple(heats(axis, ranking.callers if ranking else ())),
        braids=tuple(
            braid(axis, fight) for fight in (ranking.fights if ranking else ()) if fight.ended_at >= axis.from_at
        ),
    )


def moments(axis: Axis, incident: Incident, ranking: Ranking | None) -> tuple[Moment, ...]:
    """#1, onset and first alert, those of them that the window holds."""
    onset = ranking.onset if ranking else incident.onset
    found = [
        ("suspect", ranking.suspects[0].change.at if ranking and ranking.suspects else None, "#1"),
        ("onset", onset.at if onset else None, "onset"),
        ("alert", incident.started_at, "alert"),
    ]
    return tuple(Moment(key, axis.x(at), text) for key, at, text in found if at is not None and axis.holds(at))


def density(axis: Axis, marks: Iterable[Mark], *, columns: int = 100) -> tuple[int, ...]:
    """How many changes fall into each of ``columns`` equal parts of the window."""
    counts = [0] * columns
    for mark in marks:
        if axis.holds(mark.at):
            counts[min(int(axis.x(mark.at) / WIDTH * columns), columns - 1)] += mark.count
    return tuple(counts)


def lanes(
    axis: Axis, marks: Sequence[Mark], rollouts: Sequence[Rollout], *, problems: Sequence[Problem], chosen: str
) -> tuple[Lane, ...]:
    """Rollouts, the lanes of points that hold anything, problems. ``chosen`` is the change id of the first suspect."""
    drawn = {rollout.change_id for rollout in rollouts}
    found = [_rollouts(axis, rollouts, [m for m in marks if _lane(m) is kinds.Lane.ROLLOUTS], drawn, chosen=chosen)]
    for lane, (title, shape) in LANES.items():
        mine = [mark for mark in marks if _lane(mark) is lane]
        if mine:
            found.append(_points(axis, mine, title=title, shape=shape, chosen=chosen))
    if problems:
        found.append(_problems(axis, problems))
    return tuple(found)


def _lane(mark: Mark) -> kinds.Lane:
    return kinds.lane(mark.api_group, mark.kind)


def _rollouts(
    axis: Axis, rollouts: Sequence[Rollout], marks: Sequence[Mark], drawn: set[str | None], *, chosen: str
) -> Lane:
    pieces: list[tuple[float, float, str, str, str]] = []
    running = 0
    for rollout in rollouts:
        running += rollout.outcome is Outcome.RUNNING
        until = axis.to_at if rollout.ended_at is None else rollout.ended_at
        if until < axis.from_at or rollout.started_at > axis.to_at:
            continue
        tone = "suspect" if chosen and rollout.change_id == chosen else _TONES.get(rollout.outcome, "plain")
        x = axis.x(rollout.started_at)
        pieces.append(
            (x, max(axis.x(until), x + 6), tone, rollout.change_id or "", f"{rollout.resource.name}: {rollout.outcome}")
        )
    for mark in marks:
        if mark.change_id not in drawn and axis.holds(mark.at):
            x = axis.x(mark.at)
            tone = "suspect" if mark.change_id == chosen else "plain"
            pieces.append((x, x, tone, mark.change_id, _label(mark)))
    spots, rows = pack(sorted(pieces))
    subtitle = f"{len(rollouts)} · {running} running" if running else str(len(rollouts))
    return Lane("rollouts", "Rollouts", subtitle, "bar", max(rows, 1), spots)


_TONES = {Outcome.FAILED: "failed", Outcome.ROLLED_BACK: "failed", Outcome.RUNNING: "running"}


def pack(pieces: Iterable[tuple[float, float, str, str, str]], *, most: int = BAR_ROWS) -> tuple[tuple[Spot, ...], int]:
    """Places (x, until, tone, change id, label), sorted by x, into rows where they do not touch; (spots, rows used)."""
    ends: list[float] = []
    spots = []
    for x, until, tone, change_id, label in pieces:
        row = next((row for row, end in enumerate(ends) if end + 8 < x), len(ends))
        if row == len(ends) and row < most:
            ends.append(until)
        row = min(row, most - 1)
        ends[row] = max(ends[row], until)
        spots.append(Spot(x, until, row, tone, change_id, label))
    return tuple(spots), len(ends)


def _points(axis: Axis, marks: Sequence[Mark], *, title: str, shape: str, chosen: str) -> Lane:
    """Points, those that would cover each other put into a second and third row."""
    found = sorted({mark.kind for mark in marks})
    names = ", ".join(found[:2]) + (f" + {len(found) - 2}" if len(found) > 2 else "")
    spots, rows = pack(
        (
            (x, x, "suspect" if mark.change_id == chosen else "plain", mark.change_id, _label(mark))
            for mark in marks
            if axis.holds(mark.at)
            for x in (axis.x(mark.at),)
        ),
        most=3,
    )
    return Lane(title.split(maxsplit=1)[0].lower(), title, names, shape, max(rows, 1), spots)


def _problems(axis: Axis, problems: Sequence[Problem]) -> Lane:
    pieces = []
    for problem in sorted(problems, key=lambda problem: problem.first_at):
        x = axis.x(problem.first_at)
        label = f"{problem.reason} × {problem.count}: {problem.kind} {problem.name}"
        pieces.append((x, max(axis.x(problem.last_at), x), "failed", "", label))
    spots, rows = pack(pieces, most=4)
    reasons = list(dict.fromkeys(problem.reason for problem in problems))
    subtitle = ", ".join(reasons[:2]) + (f" + {len(reasons) - 2}" if len(reasons) > 2 else "")
    return Lane("problems", "Problems", subtitle, "bar", max(rows, 1), spots)


def _label(mark: Mark) -> str:
    return f"{mark.kind} {mark.name}" + (f" and {mark.count - 1} more" if mark.count > 1 else "")


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
    """The callers' rows, all on one scale of calls per second; a cell without calls is left out."""
    shown = callers[:most]
    peak = max((count / caller.step for caller in shown for count in caller.counts), default=0.0)
    for caller in shown:
        cells = []
        for slot, count in enumerate(caller.counts):
            begins = datetime.fromtimestamp(caller.start + slot * caller.step, UTC)
            ends = begins + timedelta(seconds=caller.step)
            if count and ends > axis.from_at and begins < axis.to_at:
                level = 1 + min(int(count / caller.step / peak * HEAT_LEVELS), HEAT_LEVELS - 1)
                cells.append((axis.x(begins), axis.x(ends), level))
        before, after = caller.before_per_second, caller.after_per_second
        rates = f"{number(before)}/s → {number(after)}/s"
        yield Heat(
            short_actor(caller.user),
            f"{caller.resource}: {caller.verb} {rates}",
            tuple(cells),
            loud=after > 2 * before and after - before > peak / 20,
        )


def braid(axis: Axis, fight: WriteFight) -> Braid:
    """A write fight's place and names."""
    field = fight.path_text.removesuffix('"]').rpartition('["')[2].rpartition("/")[2].rpartition(".")[2]
    subtitle = f"{field} × {len(fight.objects)} {fight.kind}" if fight.objects else field
    return Braid(
        "Write fight", subtitle, axis.x(fight.began_at), axis.x(fight.ended_at), fight.values[:2] or fight.writers[:2]
    )
