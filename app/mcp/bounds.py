"""An answer of REST as an assistant is given it: of bounded length, without what cannot be seen, and what was left out
is said.

Names, values and messages were written by whoever may write to a cluster: nothing here takes them for more than text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any
from unicodedata import category

from app.core.changes.hunks import hunks
from app.core.model import FieldDiff
from app.failures import Exit, Expected

MOST = 100_000
"""Characters of an answer."""
_BESIDE_IT = 6_000
"""Of these, kept for what stands beside what was asked for: that it is data, and what of it was left out."""
_BEFORE = 40
"""Characters that are the same, told before where two long lines part."""
LONGEST_COMMAND = 8_000
"""A command is told whole or not at all: half a command is another one."""
DEEPEST = 16
_SIZES = ((100, 1_000), (40, 400), (15, 200), (6, 120))
"""How many members of a list or object are told, and how many characters of a text; smaller where it is too much."""
_COMMANDS = frozenset({"command", "dry_run"})
_SAID = 20
"""How many places are named where something was left out."""


class TooMuchError(Expected):
    """More than an answer may hold, however short its texts; the message says what to ask instead."""

    code = Exit.UNUSABLE


def bounded(answer: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The answer in less than MOST characters of JSON, and in words what was left out of it.

    Of a page, which has a ``next``, no item is left out: the next page begins behind its last. Raises TooMuchError.
    """
    for many, longest in _SIZES:
        cut = _Cut(many, longest, page="next" in answer)
        found = cut.mapping(answer, "", 0)
        if len(json.dumps(found, ensure_ascii=False)) <= MOST - _BESIDE_IT:
            more = [f"and {len(cut.said) - _SAID} more"] if len(cut.said) > _SAID else []
            return found, [*cut.said[:_SAID], *more]
    raise TooMuchError(
        f"the answer has more than {MOST} characters: ask for fewer (limit), a shorter time, or one namespace"
    )


def visible(text: str) -> str:
    """``text`` without what steers a terminal, turns text around or cannot be seen; lines stay lines."""
    return "".join(one if one in "\n\t" or category(one)[0] != "C" else "\ufffd" for one in text)


def _apart(value: Mapping[str, Any], longest: int) -> Mapping[str, Any]:
    """A field that differs, of texts that are too long to be told whole: the lines that differ, and what stands beside
    them. Cut behind their beginning, both might be the same."""
    old, new = value.get("old"), value.get("new")
    if value.get("op") != "replace" or not (isinstance(old, str) and isinstance(new, str)):
        return value
    if max(len(old), len(new)) <= longest:
        return value
    (hunk,) = hunks([FieldDiff((), "replace", old, new)])
    signs, texts = [line.sign for line in hunk.lines], [line.text for line in hunk.lines]
    for n in range(len(texts) - 1):
        pair = texts[n : n + 2]
        same = sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(*pair, strict=False))) - _BEFORE
        if signs[n : n + 2] == ["-", "+"] and same > 0 and max(map(len, pair)) > longest - len("- "):
            texts[n : n + 2] = [f"…{text[same:]}" for text in pair]
    lines = [f"{sign} {text}" for sign, text in zip(signs, texts, strict=True)]
    rest = {name: one for name, one in value.items() if name not in ("old", "new")}
    return {**rest, "lines": lines, "lines_left_out": hunk.left_out}


@dataclass(slots=True)
class _Cut:
    many: int
    longest: int
    page: bool
    said: list[str] = field(default_factory=list)

    def mapping(self, value: Mapping[str, Any], at: str, deep: int) -> dict[str, Any]:
        value = _apart(value, self.longest)
        kept = list(value.items())[: self.many]
        self._note(at or "the answer", len(kept), len(value))
        return {
            self._text(key, at): self._command(one, f"{at}.{key}")
            if key in _COMMANDS and isinstance(one, str)
            else self._any(one, f"{at}.{key}" if at else key, deep + 1)
            for key, one in kept
        }

    def _any(self, value: Any, at: str, deep: int) -> Any:
        if isinstance(value, str):
            return self._text(value, at)
        if not isinstance(value, (list, Mapping)):
            return value
        if deep > DEEPEST:
            self.said.append(f"{self._place(at)}: what lies deeper")
            return None
        if isinstance(value, Mapping):
            return self.mapping(value, at, deep)
        kept = value if self.page and at == "items" else value[: self.many]
        self._note(at, len(kept), len(value))
        return [self._any(one, f"{at}[{number}]", deep + 1) for number, one in enumerate(kept)]

    def _text(self, text: str, at: str) -> str:
        if len(text) <= self.longest:
            return visible(text)
        self.said.append(f"{self._place(at)}: {len(text) - self.longest} of {len(text)} characters")
        return visible(text[: self.longest]) + "…"

    def _command(self, text: str, at: str) -> str:
        if len(text) <= LONGEST_COMMAND and visible(text) == text:
            return text
        self.said.append(f"{self._place(at)}: the command; `foreshock revert` prints it")
        return ""

    def _note(self, at: str, kept: int, there: int) -> None:
        if kept < there:
            self.said.append(f"{self._place(at)}: {there - kept} of {there}")

    @staticmethod
    def _place(at: str) -> str:
        return visible(at.removeprefix("."))[:100]
