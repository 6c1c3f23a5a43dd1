"""An answer of REST as an assistant is given it: of bounded length, without what cannot be seen, and what was left out
is said.

Names, values and messages were written by whoever may write to a cluster: nothing here takes them for more than text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unicodedata import category

from app.failures import Exit, Expected

MOST = 100_000
"""Characters of an answer."""
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
    """The answer in at most MOST characters of JSON, and in words what was left out of it.

    Of a page, which has a ``next``, no item is left out: the next page begins behind its last. Raises TooMuchError.
    """
    for many, longest in _SIZES:
        cut = _Cut(many, longest, page="next" in answer)
        found = cut.mapping(answer, "", 0)
        if len(json.dumps(found, ensure_ascii=False)) <= MOST:
            more = [f"and {len(cut.said) - _SAID} more"] if len(cut.said) > _SAID else []
            return found, [*cut.said[:_SAID], *more]
    raise TooMuchError(
        f"the answer has more than {MOST} characters: ask for fewer (limit), a shorter time, or one namespace"
    )


def visible(text: str) -> str:
    """``text`` without what steers a terminal, turns text around or cannot be seen; lines stay lines."""
    return "".join(one if one in "\n\t" or category(one)[0] != "C" else "\ufffd" for one in text)


@dataclass(slots=True)
class _Cut:
    many: int
    longest: int
    page: bool
    said: list[str] = field(default_factory=list)

    def mapping(self, value: Mapping[str, Any], at: str, deep: int) -> dict[str, Any]:
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
