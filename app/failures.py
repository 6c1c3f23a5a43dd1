"""What is expected to go wrong: an error says in words what is the matter, and with which code a command ends."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """How a command ended; docs/configuration.md explains each. 65 to 78 are named by sysexits.h, 128 + n is what a
    shell says of signal n (SIGINT, SIGPIPE)."""

    DONE = 0
    BUG = 1
    WRONG_USE = 2
    UNUSABLE = 65
    NOT_WRITTEN = 74
    NOT_NOW = 75
    DENIED = 77
    BLIND = 78
    WARNED = 79
    INTERRUPTED = 130
    NOT_READ = 141


class Expected(Exception):  # noqa: N818 - the base of the errors that are no bugs
    """Base of all that may go wrong without a bug. The message says why and what to do; ``code`` ends a command."""

    code: ClassVar[Exit] = Exit.WRONG_USE


_WRITTEN = re.compile(r"\b(alias|anchor|handle|tag) ['\"].*")
"""What PyYAML repeats of what is named by & and *, or of what stands behind an !: a password may begin so."""


def told(error: Exception) -> str:
    """Why a file cannot be read, in one line. Of YAML that is none the place is told, and none of what stands there: it
    may be a credential, and PyYAML's own words show the line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    problem = _WRITTEN.sub(r"\1", str(getattr(error, "problem", None)))
    return f"no YAML: {problem} (line {mark.line + 1}, column {mark.column + 1})"
