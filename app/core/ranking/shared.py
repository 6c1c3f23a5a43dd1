"""Which signals a candidate has anything in common with: of thousands of candidates, most have nothing with most.

It leaves out no more than what explain.explain would find no match for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from app.core.entities import Entity
from app.core.phrases import names
from app.core.ranking.candidates import Candidate
from app.core.ranking.consequences import is_consequence, lacks_room
from app.core.ranking.nearness import alike, said
from app.core.ranking.ways import ways, widely
from app.core.signals.signal import Signal


def shared(found: Sequence[Candidate], signals: Sequence[Signal]) -> list[list[Signal]]:
    """Of each candidate, the signals that are about something it reaches, that name it or that moving its pods makes;
    in their order."""
    reached: dict[str, list[Entity]] = defaultdict(list)
    for entity in set[Entity]().union(*(candidate.reach for candidate in found)):
        reached[entity[0]].append(entity)
    about: dict[Entity, set[int]] = defaultdict(set)
    for number, signal in enumerate(signals):
        for entity in _entities(signal, reached):
            about[entity].add(number)
    moved = {number for number, signal in enumerate(signals) if is_consequence(signal) or lacks_room(signal)}
    met = []
    for candidate in found:
        numbers = set(moved) if candidate.pods or candidate.added else set()
        numbers.update(*(about[entity] for entity in candidate.reach.keys() & about.keys()))
        met.append([signals[number] for number in sorted(numbers)])
    return met


def _entities(signal: Signal, reached: dict[str, list[Entity]]) -> Iterator[Entity]:
    """What of it, or like it, a change that explains a signal reaches; of names those of ``reached`` only."""
    for entity in (*signal.about, *signal.spread):
        for way in ways(entity, signal):
            yield way
            yield from alike(reached[way[0]], way)
    for home in signal.spread:
        yield from widely(home)
    text = said(signal)
    yield from (entity for entity in reached["named"] if names(text, entity[1]))
