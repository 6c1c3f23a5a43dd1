"""What is found out about a cluster before it is followed: in words, with what will not be seen and what to do."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

MOST_SHOWN = 8


class Level(StrEnum):
    """How much a finding matters: a problem keeps something from being seen that is seen elsewhere."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """What was looked at and found; ``unseen`` says what will not be seen because of it, ``fix`` what to do."""

    check: str
    level: Level
    said: str
    unseen: str = ""
    fix: str = ""


def ok(check: str, said: str) -> Finding:
    """Nothing is the matter."""
    return Finding(check, Level.OK, said)


def worst(findings: Collection[Finding]) -> Level:
    """The level of the gravest of them."""
    levels = {one.level for one in findings}
    return next((one for one in (Level.PROBLEM, Level.WARNING) if one in levels), Level.OK)


def some(names: Collection[str]) -> str:
    """The first of them, and how many more there are."""
    shown = ", ".join([*names][:MOST_SHOWN])
    return f"{shown} and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else shown
