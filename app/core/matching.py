"""Which labels a line must have, as people write it: ``verb=LIST|GET, code=4*, subresource=``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

MOST = 10
"""Conditions of one question."""
_QUOTED = re.compile(r"[\"']")
_OF_PROMQL = "=~\"' "
_TERM = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(!?=)\s*(.*?)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Match:
    """A label and what its value is, or with ``wanted`` False is not: any of ``values``, in which ``*`` stands for any
    characters. A label that is not there is "".
    """

    name: str
    values: tuple[str, ...]
    wanted: bool = True

    def fits(self, value: str) -> bool:
        return any(fnmatchcase(value, pattern) for pattern in self.values) is self.wanted

    def __str__(self) -> str:
        return f"{self.name}{'=' if self.wanted else '!='}{'|'.join(self.values)}"


def parse(text: str) -> tuple[Match, ...]:
    """Conditions with commas between them. Raises ValueError, in words."""
    found = []
    for term in filter(str.strip, text.split(",")):
        match = _TERM.fullmatch(term)
        if match is None:
            raise ValueError(
                f"{term.strip()!r} is no condition: write label=value, label=a|b, label=4* or label!=value"
            )
        name, sign, values = match.groups()
        if values[:1] in ("=", "~") or _QUOTED.search(values):
            here = f"{name}{sign}{values.strip(_OF_PROMQL) or 'value'}"
            raise ValueError(
                f"{term.strip()!r} is a condition of PromQL: here it is {here}, without quotes; a|b and 4* stand for"
                " regular expressions"
            )
        found.append(Match(name, tuple(value.strip() for value in values.split("|")), sign == "="))
    if len(found) > MOST:
        raise ValueError(f"at most {MOST} conditions")
    return tuple(found)


def written(matches: Iterable[Match]) -> str:
    """The inverse of parse."""
    return ",".join(map(str, matches))
