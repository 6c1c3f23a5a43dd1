"""Field diffs in lines, for pages, Markdown and chat: of a long text only what differs, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, dropwhile, takewhile

import orjson

from app.core.model import FieldDiff, Json

LINES = 120
"""Lines of a hunk that are shown; the rest is counted."""
BESIDE = 2
"""Lines that are the same, shown on each side of one that differs."""
COMPARED = 4000
"""Lines of both sides together that are compared with each other, besides what is the same at both ends; more are shown
one after the other."""


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
    return text.splitlines() or [""]


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
    # Of a long text most is the same at both ends, and is not to be compared with each other.
    first = max(0, _same(old, new) - BESIDE)
    rest = max(0, _same(old[:first:-1], new[:first:-1]) - BESIDE)
    old, new = old[first : len(old) - rest], new[first : len(new) - rest]
    yield from _skipped(first)
    if len(old) + len(new) > COMPARED:
        yield from _replaced(old, new)
        yield from _skipped(rest)
        return
    shown_to = 0
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(BESIDE):
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


def _replaced(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    return chain((Line("-", text) for text in old), (Line("+", text) for text in new))


def _skipped(count: int) -> Iterator[Line]:
    if count > 0:
        yield Line("@", f"{count:,} line{'' if count == 1 else 's'} the same")
