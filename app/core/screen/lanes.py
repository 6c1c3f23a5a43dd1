"""Lanes of the timeline: rollouts as bars, other changes as points, problems, each spot in a row of its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.core.model import Outcome, Rollout
from app.core.objects import kinds
from app.core.screen.axis import Axis

BAR_ROWS = 6
"""Rows of bars in the rollout lane; what does not fit shares the last one."""
POINT_ROWS = 3
"""Rows of points in a lane; one that finds no room is counted with the last one drawn."""
APART = 8
"""Units of the axis between two things of one row."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Changes of one kind that fall on one place of the axis; ``change_id`` and ``name`` are those of the first.

    What controllers wrote because of another change is not among them.
    """

    api_group: str
    kind: str
    at: datetime
    count: int
    change_id: str
    name: str


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


LANES: dict[kinds.Lane, tuple[str, str]] = {
    kinds.Lane.CONFIG: ("Config", "circle"),
    kinds.Lane.ACCESS: ("Access & network", "diamond"),
    kinds.Lane.CUSTOM: ("Custom", "square"),
    kinds.Lane.CAPACITY: ("Capacity", "circle"),
    kinds.Lane.EXTERNAL: ("External", "square"),
}
"""Title and shape of the lanes of points, in their order."""


def lanes(
    axis: Axis, marks: Sequence[Mark], rollouts: Sequence[Rollout], *, problems: Sequence[Problem], chosen: str
) -> tuple[Lane, ...]:
    """Rollouts, the lanes of points that hold anything, problems. ``chosen`` is the change id of the first suspect."""
    drawn = {rollout.change_id for rollout in rollouts}
    lane_of = {key: kinds.lane(*key) for key in {(mark.api_group, mark.kind) for mark in marks}}
    of: dict[kinds.Lane, list[Mark]] = defaultdict(list)
    for mark in marks:
        of[lane_of[mark.api_group, mark.kind]].append(mark)
    found = [_rollouts(axis, rollouts, of[kinds.Lane.ROLLOUTS], drawn, chosen=chosen)]
    for lane, (title, shape) in LANES.items():
        if of[lane]:
            found.append(_points(axis, of[lane], title=title, shape=shape, chosen=chosen))
    if problems:
        found.append(_problems(axis, problems))
    return tuple(found)


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
        far = f" {rollout.percent} %" if rollout.outcome in (Outcome.RUNNING, Outcome.FAILED) else ""
        label = f"{rollout.resource.name}: {rollout.outcome}{far}"
        pieces.append((x, max(axis.x(until), x + 6), tone, rollout.change_id or "", label))
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
        row = next((row for row, end in enumerate(ends) if end + APART < x), len(ends))
        if row == len(ends) and row < most:
            ends.append(until)
        row = min(row, most - 1)
        ends[row] = max(ends[row], until)
        spots.append(Spot(x, until, row, tone, change_id, label))
    return tuple(spots), len(ends)


def _points(axis: Axis, marks: Sequence[Mark], *, title: str, shape: str, chosen: str) -> Lane:
    """Points, those that would cover each other put into a second and third row, the others counted with them."""
    found = sorted({mark.kind for mark in marks})
    names = ", ".join(found[:2]) + (f" + {len(found) - 2}" if len(found) > 2 else "")
    placed: list[tuple[float, int, Mark]] = []
    unplaced: Counter[int] = Counter()
    ends: list[float] = []
    for mark in marks:
        if not axis.holds(mark.at):
            continue
        x = axis.x(mark.at)
        row = next((row for row, end in enumerate(ends) if end + APART < x), len(ends))
        if row < POINT_ROWS or mark.change_id == chosen:
            row = min(row, POINT_ROWS - 1)
            ends[row : row + 1] = [x]
            placed.append((x, row, mark))
        else:
            unplaced[len(placed) - 1] += mark.count
    spots = tuple(
        Spot(x, x, row, "suspect" if mark.change_id == chosen else "plain", mark.change_id, _label(mark, unplaced[n]))
        for n, (x, row, mark) in enumerate(placed)
    )
    return Lane(title.split(maxsplit=1)[0].lower(), title, names, shape, max(len(ends), 1), spots)


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


def _label(mark: Mark, beside: int = 0) -> str:
    more, told_by = mark.count - 1 + beside, kinds.told_by(mark.api_group)
    return f"{mark.kind} {mark.name}" + (f" in {told_by}" if told_by else "") + (f" and {more} more" if more else "")
