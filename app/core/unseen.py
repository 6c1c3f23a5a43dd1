"""What was not seen, as it is said: of one reason at one time once, with all the kinds of which it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.core.model import Gap

NAMED = 3
"""Kinds that are said before it is said how many more there are."""
MOST_LINES = 3


@dataclass(frozen=True, slots=True)
class GapGroup:
    """Gaps of one cluster and one reason that overlap: a restart of its API server is a gap of every kind."""

    gaps: tuple[Gap, ...]

    @property
    def cluster(self) -> str:
        return self.gaps[0].cluster

    @property
    def why(self) -> str:
        return self.gaps[0].why

    @property
    def from_at(self) -> datetime:
        return min(gap.from_at for gap in self.gaps)

    @property
    def to_at(self) -> datetime:
        return max(gap.to_at for gap in self.gaps)

    @property
    def at_once(self) -> bool:
        """Whether all of them began and ended together."""
        return len({(gap.from_at, gap.to_at) for gap in self.gaps}) == 1

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted({gap.kind or "all kinds" for gap in self.gaps}))

    @property
    def kinds_text(self) -> str:
        """The kinds in words, one more rather than "and 1 more"."""
        if len(self.kinds) <= NAMED + 1:
            return ", ".join(self.kinds)
        return f"{', '.join(self.kinds[:NAMED])} and {len(self.kinds) - NAMED} more kinds"


def grouped(gaps: Iterable[Gap]) -> tuple[GapGroup, ...]:
    """Gaps, oldest or newest first, together where they are of one reason and overlap; in the order in which they
    began to be told."""
    groups: list[list[Gap]] = []
    last: dict[tuple[str, str], list[Gap]] = {}
    for gap in gaps:
        group = last.get((gap.cluster, gap.why))
        if group is None or not _overlaps(gap, GapGroup(tuple(group))):
            group = last[gap.cluster, gap.why] = []
            groups.append(group)
        group.append(gap)
    return tuple(GapGroup(tuple(sorted(group, key=lambda gap: gap.kind))) for group in groups)


def _overlaps(gap: Gap, group: GapGroup) -> bool:
    return gap.from_at <= group.to_at and gap.to_at >= group.from_at


def not_seen(items: Sequence[Mapping[str, Any]], *, names: bool) -> list[str]:
    """As ``newest``, of REST's gaps."""
    return newest(map(_gap_of, items), names=names)


def newest(gaps: Iterable[Gap], *, names: bool, most: int = MOST_LINES) -> list[str]:
    """The newest gaps in lines, and how many more there are; ``names``: with their cluster."""
    groups = grouped(gaps)
    lines = [_line(group, names=names) for group in groups[-most:]]
    if len(groups) > most:
        lines.append(f"and {len(groups) - most} more intervals were not seen in full")
    return lines


def all_not_seen(items: Sequence[Mapping[str, Any]], *, names: bool) -> list[str]:
    """REST's gaps in lines, however many there are."""
    return [_line(group, names=names) for group in grouped(map(_gap_of, items))]


def _gap_of(item: Mapping[str, Any]) -> Gap:
    begin, end = (datetime.fromisoformat(item[field]) for field in ("from_at", "to_at"))
    return Gap(item["cluster"], item["kind"], begin, end, item["why"])


def _line(group: GapGroup, *, names: bool) -> str:
    begin, end = group.from_at, group.to_at
    until = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%m-%d %H:%M:%S}"
    of = f" of {group.cluster}" if names else ""
    kinds = f" ({len(group.kinds)} kinds)" if len(group.kinds) > 1 else ""
    return f"not seen{of}{kinds} {begin:%m-%d %H:%M:%S} to {until}: {group.why}"
