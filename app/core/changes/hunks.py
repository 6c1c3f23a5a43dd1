"""Field diffs in lines, for pages, Markdown and chat: of a long text only what differs, and what stands beside it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import chain, dropwhile, takewhile

import orjson

from app.core.model import FieldDiff, Json
from app.core.phrases import straight

LINES = 120
"""Lines of a hunk that are shown; the rest is counted."""
BESIDE = 2
"""Lines that are the same, shown on each side of one that differs."""
COMPARED = 4_000_000
"""Pairs of lines that are compared with each other, between lines that each side has once: some tenths of a second.
What would take more is shown one after the other."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: ``sign`` is ``-``, ``+`` or a space where both sides have it; ``@`` counts lines that are skipped."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class Hunk:
    """One field of a diff, in lines. ``left_out`` counts lines that are not shown for their number."""

    path: str
    lines: tuple[Line, ...]
    left_out: int


def in_lines(value: Json) -> list[str]:
    """A value in the lines of a diff: objects and lists one item a line, indented."""
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return straight(text).splitlines() or [""]


def hunks(diffs: Sequence[FieldDiff]) -> tuple[Hunk, ...]:
    """Field diffs in lines. A side that is not there has none: an added field has no old lines."""
    return tuple(_hunk(found) for found in diffs)


def first_difference(old: str, new: str) -> tuple[str, str]:
    """The first line of each text where they part, "" where one has none: what a long text's change begins with."""
    first = takewhile(_differs, dropwhile(lambda line: not _differs(line), _lines(old.splitlines(), new.splitlines())))
    run = {line.sign: line.text.strip() for line in reversed(list(first))}
    return run.get("-", ""), run.get("+", "")


def _differs(line: Line) -> bool:
    return line.sign in {"-", "+"}


def _hunk(found: FieldDiff) -> Hunk:
    old = [] if found.op == "add" else in_lines(found.old)
    new = [] if found.op == "remove" else in_lines(found.new)
    lines = list(_lines(old, new))
    return Hunk(found.path_text or "the whole object", tuple(lines[:LINES]), max(len(lines) - LINES, 0))


def _lines(old: list[str], new: list[str]) -> Iterator[Line]:
    if not old or not new:
        yield from _replaced(old, new)
        return
    if old == new:
        yield Line("@", "the same lines: only how they end differs")
        return
    # Of a long text most is the same at both ends.
    first = max(0, _same(old, new) - BESIDE)
    rest = max(0, _same(old[:first:-1], new[:first:-1]) - BESIDE)
    old, new = old[first : len(old) - rest], new[first : len(new) - rest]
    yield from _skipped(first)
    shown_to = 0
    for group in _Matcher(old, new).get_grouped_opcodes(BESIDE):
        yield from _skipped(group[0][1] - shown_to)
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                yield from (Line(" ", text) for text in old[start:end])
            else:
                yield from _replaced(old[start:end], new[new_start:new_end])
        shown_to = group[-1][2]
    yield from _skipped(len(old) - shown_to + rest)


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines are the same before the first that differs."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(old, new, strict=False)))


class _Matcher(SequenceMatcher[str]):
    """Compares what lies between the lines that each side has once, as Bram Cohen's patience diff does
    (https://bramcohen.livejournal.com/73318.html): all at once takes the square of the time."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new)
        self._old, self._new = old, new

    def get_matching_blocks(self) -> list[Match]:
        """As difflib's: none beside the next, and an empty one in the end."""
        old, new, blocks = self._old, self._new, [Match(0, 0, 0)]
        old_at = new_at = compared = 0
        for old_to, new_to in [*_once(old, new), (len(old), len(new))]:
            pairs = (old_to - old_at) * (new_to - new_at)
            if pairs and compared + pairs <= COMPARED:
                compared += pairs
                for one in SequenceMatcher(None, old[old_at:old_to], new[new_at:new_to]).get_matching_blocks():
                    _add(blocks, Match(old_at + one.a, new_at + one.b, one.size))
            _add(blocks, Match(old_to, new_to, int(old_to < len(old))))
            old_at, new_at = old_to + 1, new_to + 1
        return [*blocks, Match(len(old), len(new), 0)]


def _add(blocks: list[Match], block: Match) -> None:
    last = blocks[-1]
    if (last.a + last.size, last.b + last.size) == (block.a, block.b):
        blocks[-1] = Match(last.a, last.b, last.size + block.size)
    elif block.size:
        blocks.append(block)


def _once(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """The places of lines that each side has once: of those that stand in the same order on both as many as can be."""
    places = {line: place for place, line in enumerate(new)}
    counts, new_counts = Counter(old), Counter(new)
    both = [(at, places[line]) for at, line in enumerate(old) if counts[line] == 1 == new_counts[line]]
    # The longest increasing subsequence: the lowest end of one of each length, and what stands before each end.
    lowest: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(both):
        length = bisect_left(lowest, place)
        before.append(ends[length - 1] if length else -1)
        lowest[length : length + 1], ends[length : length + 1] = [place], [number]
    found = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(both[at])
        at = before[at]
    return found[::-1]


def _replaced(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    return chain((Line("-", text) for text in old), (Line("+", text) for text in new))


def _skipped(count: int) -> Iterator[Line]:
    if count > 0:
        yield Line("@", f"{count:,} line{'' if count == 1 else 's'} the same")
