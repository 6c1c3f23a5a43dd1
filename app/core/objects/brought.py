"""What a change put in or took away, as errors quote it: a path, a host, the name of a variable.

An error that says "/otel/agent.jar" leads to the edit that wrote this path, wherever it stands. Only words that no
message says by accident count: those with a slash, a dot, a hyphen or an underscore in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from app.core.alerted import about
from app.core.entities import WORKLOADS
from app.core.model import Change, FieldDiff, Symptom, Verb

SHORTEST = 8
LONGEST = 50_000
"""Characters of one value that are read."""
MOST = 200
"""Of a value that brings more words than this, none tells anything."""
_WORD = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./-]*[A-Za-z0-9]")
_TELLING = re.compile(r"[/_.-]")
_NUMBER = re.compile(r"[\d./:_-]+|v?\d[\w.+-]*")
"""Amounts, dates, versions: many things have the same."""
_APART = (("metadata",), ("status",))


def quoted(change: Change) -> set[str]:
    """The words that an update put in or took away, and the names of the variables and keys that it took away."""
    if change.verb is not Verb.UPDATE:
        return set()
    found = {word for diff in change.diffs if _counts(diff, change.resource.kind) for word in _of(diff)}
    return found if len(found) <= MOST else set()


def _counts(diff: FieldDiff, kind: str) -> bool:
    """Not what is said of the object itself, and not a workload's image, which the kubelet quotes whatever is wrong."""
    return diff.path[:1] not in _APART and not (kind in WORKLOADS and diff.path[-1:] == ("image",))


def _of(diff: FieldDiff) -> Iterator[str]:
    old, new = set(words(diff.old)), set(words(diff.new))
    yield from old ^ new
    if diff.op == "remove" and diff.path:
        yield from (step for step in _names(diff.path[-1]) if _tells(step))


def _names(step: Any) -> Iterator[str]:
    """A key; of an item of a list, what it is merged by."""
    if isinstance(step, str):
        yield step
    elif isinstance(step, tuple):
        yield from (str(value) for _, value in step)


def said_by(alert: Symptom) -> Iterator[str]:
    """The words of an alert that may quote a change."""
    for text in (alert.message, *about(alert.labels).values()):
        yield from words(text)


def words(value: Any) -> Iterator[str]:
    """The words of a value that tell something, at any depth."""
    if isinstance(value, str):
        found = (word.removeprefix("//") for word in _WORD.findall(value[:LONGEST]))  # of a URL, the host
        yield from filter(_tells, found)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from words(inner)


def _tells(word: str) -> bool:
    return len(word) >= SHORTEST and bool(_TELLING.search(word)) and not _NUMBER.fullmatch(word)
