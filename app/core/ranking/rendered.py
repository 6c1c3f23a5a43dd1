"""What a program writes with the words of an edit in it: it renders what others wrote.

Flux puts the variables of a ConfigMap into manifests, Argo CD the values of an Application, an operator what a custom
resource says. What they then write has a host, a path or a name in it that was brought there; or it lost one, where a
variable goes by another name now, or by none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from app.core.edges.references import is_custom
from app.core.model import Change, Json, Path, Verb
from app.core.objects.brought import MOST, words

LONG = 8
"""Characters from which on two texts are hardly alike by chance."""
MOST_PARTS = 12
"""Of a word of more parts, the runs of the first so many are looked at."""
_BREAK = re.compile(r"[/._-]")
_Words = tuple[set[str], set[str]]
"""Those that a change brought to a field, and those that it took from one, be it to another."""
_APART = (("metadata",), ("status",))
RENDERED = timedelta(minutes=5)
"""How long after an edit a program's write with its words in it is put down to that: it asks by an interval."""


@dataclass(slots=True)
class Sources:
    """The edits of configuration so far, with the words that they brought."""

    _told: list[tuple[Change, _Words]] = field(default_factory=list)
    _values: dict[tuple[str, Path, str], Change] = field(default_factory=dict)
    """By kind, field and what was written there: the first edit that wrote it."""

    def give(self, change: Change) -> None:
        """Remember an edit of a ConfigMap or a custom resource that brought words, and what it wrote."""
        for whole in _wholes(change):
            self._values.setdefault(whole, change)
        if change.verb is Verb.UPDATE and (change.resource.kind == "ConfigMap" or is_custom(change.resource)):
            brought, taken = _edited(change)
            if 0 < len(brought | taken) <= MOST:
                self._told.append((change, (brought, taken)))

    def behind(self, change: Change) -> Change | None:
        """The last edit, by another and of another object, of which a write has a new word in what it wrote, which took
        away what the write no longer has, or which it copies to an object of the same name, as trust-manager does in
        each namespace."""
        if (copied := self._copied(change)) is not None:
            return copied
        written: _Words | None = None
        for source, (brought, taken) in reversed(self._told):
            if change.at - source.at > RENDERED:
                break
            if source.actor.name == change.actor.name or source.resource == change.resource:
                continue
            if written is None:
                written = _written(change)
            new, gone = written
            if not (new.isdisjoint(brought) and gone.isdisjoint(taken)):
                return source
        return None

    def _copied(self, change: Change) -> Change | None:
        found = [self._values[whole] for whole in _wholes(change) if whole in self._values]
        fits = (
            one
            for one in found
            if change.at - one.at <= RENDERED
            and one.resource.name == change.resource.name
            and one.actor.name != change.actor.name
            and one.resource != change.resource
        )
        return next(fits, None)


def _wholes(change: Change) -> Iterator[tuple[str, Path, str]]:
    """The texts that an update of a ConfigMap or a Secret wrote, each as a whole; of what is hidden, its digest."""
    if change.verb is Verb.UPDATE and change.resource.kind in ("ConfigMap", "Secret"):
        yield from (
            (change.resource.kind, diff.path, diff.new)
            for diff in change.diffs
            if isinstance(diff.new, str) and len(diff.new) >= LONG
        )


def _edited(change: Change) -> _Words:
    return _moved((set(words(d.old)), set(words(d.new))) for d in change.diffs if d.path[:1] not in _APART)


def _written(change: Change) -> _Words:
    """With what the words are made of: orders.db.example has db.example in it. Of what was made, all of them."""
    return _moved((_parts(diff.old), _parts(diff.new)) for diff in change.diffs)


def _moved(fields: Iterable[tuple[set[str], set[str]]]) -> _Words:
    brought, taken = set[str](), set[str]()
    for old, new in fields:
        brought |= new - old
        taken |= old - new
    return brought, taken


def _parts(value: Json) -> set[str]:
    return {part for word in words(value) for part in _within(word)}


def _within(word: str) -> Iterator[str]:
    """A word, and each run of its parts."""
    breaks = [match.start() for match in _BREAK.finditer(word)][:MOST_PARTS]
    for start in (0, *(place + 1 for place in breaks)):
        yield from (word[start:end] for end in (*breaks, len(word)) if end > start)
