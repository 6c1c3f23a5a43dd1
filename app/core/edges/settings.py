"""The settings of one text, as a ConfigMap's file has them: which of them differ."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.core.model import FieldDiff

PARTS = re.compile(r"[\n,;&{}]")
"""What stands between the settings of one text: of lines, JSON, a query."""


def parts(diff: FieldDiff) -> set[str]:
    """What differs of a whole text of several settings: lines, parts of JSON, of a query."""
    old, new = (set(PARTS.split(value)) if isinstance(value, str) else set[str]() for value in (diff.old, diff.new))
    return old ^ new if len(old) > 1 or len(new) > 1 or any("=" in part for part in old | new) else set()


def differing(diff: FieldDiff) -> set[str]:
    """What differs of a value: of a text of several lines each with those under which it is indented, of another text
    of several settings its parts, and else all of it, the old and the new."""
    texts = [value for value in (diff.old, diff.new) if isinstance(value, str)]
    if any("\n" in text for text in texts):
        old, new = (set(_lines(value)) if isinstance(value, str) else set[str]() for value in (diff.old, diff.new))
        return old ^ new
    return parts(diff) or {str(value) for value in (diff.old, diff.new) if value is not None}


def _lines(text: str) -> Iterator[str]:
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        told = line.strip()
        depth = len(line) - len(line.lstrip())
        while above and above[-1][0] >= depth:
            above.pop()
        yield " ".join((*(one for _, one in above), told))
        above.append((depth, told))
