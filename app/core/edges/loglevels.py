"""Levels of logs: that a program is told to log more, or less, and nothing else.

More logs fill disks and what collects them, and take time; a program neither ends nor runs out of memory by its level.
"""

from __future__ import annotations

import re

from app.core.model import Change, FieldDiff

_LEVELS = ("fatal", "critical", "error", "warning", "warn", "notice", "info", "debug", "trace", "all")
"""How much is logged, least first."""
_LEVEL = re.compile(r"log.{0,8}level|level.{0,8}log|verbosity|\Alevel\Z", re.IGNORECASE)


def only_levels(change: Change) -> bool:
    """Whether it changes levels of logs, and nothing else."""
    return bool(change.diffs) and None not in map(_more, change.diffs)


def only_quieter(change: Change) -> bool:
    """Whether less is logged by it, and nothing else changed."""
    return bool(change.diffs) and all((_more(diff) or 0) < 0 for diff in change.diffs)


def _more(diff: FieldDiff) -> int | None:
    """By how many levels more is logged, negative for less; None where it is no such level."""
    old, new = str(diff.old).lower(), str(diff.new).lower()
    is_level = diff.path and _LEVEL.search(str(diff.path[-1])) and old in _LEVELS and new in _LEVELS
    return _LEVELS.index(new) - _LEVELS.index(old) if is_level else None
