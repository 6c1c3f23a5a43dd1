"""What each page shows, as one frozen value made by a pure function: templates compute nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from app.core.findings import Incident, Ranking
from app.core.incidents.bundles import worst_first
from app.core.model import Change, Gap, Rollout, Symptom
from app.core.phrases import onset_text
from app.core.screen.axis import Axis
from app.core.screen.timeline import Moment, Picture, picture
from app.store.seen import Seen
from app.store.surroundings import Surroundings
from app.web import drawing, live
from app.web.cards import SuspectCard, suspect_card

LEAST_ZOOM = timedelta(seconds=2)
CARDS = 3
"""Suspects that get a card; the others get a line, which opens."""
MOST_ALERTS = 20
"""Of an incident, that are told with what they say, the worst and the first before the rest; REST has all."""
UNRANKED_BEFORE = timedelta(minutes=15)
UNRANKED_AFTER = timedelta(minutes=5)


NARROWEST = 300
"""Pixels of the drawing on a phone of 360."""


@dataclass(frozen=True, slots=True)
class Flag:
    """The label of a moment's line: to the left or right of it, in the first or second row."""

    key: str
    x: float
    text: str
    left: bool
    row: int

    @property
    def width(self) -> int:
        """Pixels of its box: 7 for each letter of 11 px, and room."""
        return len(self.text) * 7 + 11


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change in a table. ``x`` is its place on the page's axis, None where there is none; ``rank`` 0: no suspect.

    ``rollout`` is what it began, where that is told."""

    change: Change
    t_minus: timedelta | None
    x: float | None
    rank: int
    rollout: Rollout | None = None


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """The incident screen. ``onset`` is its time as told, "" where none is known; ``none_leads``: "none of these" is
    likelier than any suspect, so that it is the answer that is read first; ``onset_latest``: where the rows end, if the
    onset may be later than it is said to be; ``gaps``: the longest first; ``unseen``: those of one reason once, and of
    how many more that is so. ``alerts`` are those whose words are shown.
    """

    incident: Incident
    ranking: Ranking | None
    alerts: tuple[Symptom, ...]
    onset: str
    onset_latest: datetime | None
    picture: Picture
    drawn: tuple[drawing.Drawn, ...]
    flags: tuple[Flag, ...]
    gaps: tuple[Gap, ...]
    unseen: tuple[tuple[Gap, int], ...]
    seen: Seen
    none_leads: bool
    suspects: tuple[SuspectCard, ...]
    others: tuple[SuspectCard, ...]
    rows: tuple[ChangeRow, ...]
    next: str | None
    asked: dict[str, Any]
    zoom: Zoom
    follow: Follow


@dataclass(frozen=True, slots=True)
class Opened:
    """What a reader has before them: the suspects' order when the page was opened, and whose reasons they read.

    ``first`` is the incident's first ranking, if there was one before the newest."""

    order: tuple[str, ...]
    first: Ranking | None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Follow:
    """How the page stays current. ``since`` None: nothing new will come, it need not ask.

    ``opened`` is the suspects' order when it was opened, as the address says it; ``moved`` says of a change where
    it stood then, ``at_first`` where it stood in the first ranking; ``kept`` are suspects that keep their card wherever
    they stand now.
    """

    since: str | None
    opened: str
    moved: dict[str, str]
    at_first: dict[str, str]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Zoom:
    """Windows that the buttons lead to. ``everything`` is the ranking's; None: nothing wider is known."""

    out: tuple[datetime, datetime]
    closer: tuple[datetime, datetime]
    everything: tuple[datetime, datetime] | None
    fits: bool


def default_window(incident: Incident, ranking: Ranking | None) -> tuple[datetime, datetime]:
    """From before the first suspect to after the first alert, with room; within what was ranked."""
    started = incident.started_at
    if ranking is None:
        return started - UNRANKED_BEFORE, (incident.resolved_at or started) + UNRANKED_AFTER
    times = [ranking.onset.at, started, *(suspect.change.at for suspect in ranking.suspects[:1])]
    room = max((max(times) - min(times)) * 0.4, timedelta(seconds=30))
    known_until = max(ranking.window[1], max(times) + LEAST_ZOOM)  # nothing is known of what comes after
    return min(times) - room, min(max(times) + room * 0.75, known_until)


def window(
    incident: Incident, ranking: Ranking | None, *, from_at: datetime | None, to_at: datetime | None
) -> tuple[datetime, datetime]:
    """The window that is asked for; what is left out comes from the default."""
    usual = default_window(incident, ranking)
    start, end = from_at or usual[0], to_at or usual[1]
    return (start, end) if end - start >= LEAST_ZOOM else (start, start + LEAST_ZOOM)


def zoom(start: datetime, end: datetime, ranking: Ranking | None, *, fits: bool) -> Zoom:
    """Twice and half the window around its middle."""
    length = end - start
    middle = start + length / 2
    half = max(length / 4, LEAST_ZOOM / 2)
    return Zoom(
        out=(middle - length, middle + length),
        closer=(middle - half, middle + half),
        everything=ranking.window if ranking else None,
        fits=fits,
    )


def follow(incident: Incident, ranking: Ranking | None, opened: Opened, *, now: datetime) -> Follow:
    """How a page opened like this goes on from ``now``."""
    return Follow(
        since=None if live.is_over(incident, now) else live.version(incident, now),
        opened=",".join(opened.order),
        moved=live.moved(ranking, opened.order),
        at_first=live.since_first(ranking, opened.first),
        kept=opened.kept,
    )


def rows_until(ranking: Ranking | None, *, end: datetime, rows: str) -> datetime:
    """Where the rows end: at the onset's latest moment, or with ``rows`` "all" at the window's end."""
    return end if ranking is None or rows == "all" else min(ranking.onset.high, end)


def incident_page(
    incident: Incident,
    ranking: Ranking | None,
    *,
    axis: Axis,
    around: Surroundings,
    rows: tuple[ChangeRow, ...],
    next_cursor: str | None,
    asked: dict[str, Any],
    follow: Follow,
) -> IncidentPage:
    """The incident screen from what was read."""
    cards = [suspect_card(suspect, ranking) for suspect in ranking.suspects] if ranking else []
    carded = {one.suspect.rank for one in cards if one.suspect.rank <= CARDS or one.suspect.change.id in follow.kept}
    drawn = picture(
        axis,
        incident,
        ranking,
        marks=around.marks,
        derived=around.derived,
        rollouts=around.rollouts,
        problems=around.problems,
        gaps=around.seen.gaps,
    )
    onset = ranking.onset if ranking else incident.onset
    gaps = tuple(sorted(around.seen.gaps, key=lambda gap: (gap.from_at - gap.to_at, gap.from_at)))
    return IncidentPage(
        incident=incident,
        ranking=ranking,
        alerts=tuple(worst_first(incident.alerts)[:MOST_ALERTS]),
        onset=onset_text(onset.at, onset.low, onset.high) if onset else "",
        onset_latest=ranking.onset.high if ranking and ranking.onset.high > ranking.onset.at else None,
        picture=drawn,
        drawn=drawing.rows(drawn),
        flags=flags(drawn.moments),
        gaps=gaps,
        unseen=_by_reason(gaps),
        seen=around.seen,
        none_leads=ranking.none_leads if ranking else False,
        suspects=tuple(one for one in cards if one.suspect.rank in carded),
        others=tuple(one for one in cards if one.suspect.rank not in carded),
        rows=rows,
        next=next_cursor,
        asked=asked,
        zoom=zoom(axis.from_at, axis.to_at, ranking, fits=not asked.get("from") and not asked.get("to")),
        follow=follow,
    )


def _by_reason(gaps: Sequence[Gap]) -> tuple[tuple[Gap, int], ...]:
    """The first of those whose reason is the same but for its numbers, and how many more there are: after a restart of
    the API server it is that of every kind."""
    found: dict[str, list[Gap]] = {}
    for gap in gaps:
        found.setdefault(re.sub(r"\d+", "", gap.why), []).append(gap)
    return tuple((alike[0], len(alike) - 1) for alike in found.values())


def change_rows(
    changes: Sequence[Change], *, axis: Axis, ranking: Ranking | None, rollouts: Sequence[Rollout] = ()
) -> tuple[ChangeRow, ...]:
    """The rows under the drawing, with their time to the onset, their rank, and what they began of ``rollouts``."""
    begun = {rollout.change_id: rollout for rollout in rollouts}
    ranks = {suspect.change.id: suspect.rank for suspect in (ranking.suspects if ranking else ())}
    onset = ranking.onset.at if ranking else None
    return tuple(
        ChangeRow(
            change,
            t_minus=onset - change.at if onset else None,
            x=axis.x(change.at),
            rank=ranks.get(change.id, 0),
            rollout=begun.get(change.id),
        )
        for change in changes
    )


def flags(moments: Sequence[Moment]) -> tuple[Flag, ...]:
    """Where the labels of the moments go so that they do not cover each other."""
    found: list[Flag] = []
    for moment in moments:
        left = (moment.key == "suspect" and moment.x > 40) or moment.x > 920
        flag = Flag(moment.key, moment.x, moment.text, left, 0)
        row = sum(1 for other in found if other.left == left and _cover(flag, other))
        found.append(replace(flag, row=min(row, 1)))
    return tuple(found)


def _cover(one: Flag, other: Flag) -> bool:
    """Whether the boxes of two labels on the same side of their lines cover each other, be it on a phone."""
    first, second = sorted((one, other), key=lambda flag: flag.x)
    return (second.x - first.x) * NARROWEST / 1000 < (second if one.left else first).width
