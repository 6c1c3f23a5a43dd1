"""One fault tried: somebody writes, it happens, it is over, and what was recorded is held against what was written."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psycopg

from tests.cluster import checker
from tests.cluster.checker import Stored, Verdict
from tests.cluster.oracle import there, writing
from tests.faults.stand import CLUSTER, Stand, sets

BEFORE_SECONDS = AFTER_SECONDS = 3.0
"""So long the oracle writes before a fault and after it."""
SETTLE_SECONDS = 4.0
"""After everything has come, for what should not come: more than a batch is held (app/collect/follow.HELD)."""
ASK_SECONDS = 0.5
FEW = 4
"""Kinds that are named."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one fault. ``caught_up`` is seconds from its end until all was recorded, AFTER_SECONDS of writes
    included; None where it never was. ``broken`` are promises of this fault alone that were not kept."""

    fault: str
    verdict: Verdict
    stored: Stored
    blind_seconds: float
    caught_up: float | None
    notes: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return self.verdict.is_right and self.caught_up is not None and not self.broken


@dataclass(slots=True)
class Found:
    """What a fault's recipe has to say: figures of its own, and promises that it saw broken."""

    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def promise(self, what: str, *, holds: bool) -> None:
        """Note a figure, and that it is not what was promised, where that is so."""
        (self.notes if holds else self.broken).append(what)


Recipe = Callable[[Stand, Found], None]


def tried(stand: Stand, fault: str, recipe: Recipe, *, patience: float, no_sets: bool, pause: float = 0.15) -> Result:
    """Try a fault; ``patience`` is how many seconds it may take after it until all is recorded.

    ``no_sets``: after this one nothing may be asked for from its beginning, where the API server could go on.
    ``pause`` as in oracle.Writer.run.
    """
    stand.wait_until_seen()
    namespace, found, began = stand.namespace(), Found(), datetime.now(UTC)
    mark = stand.mark()
    with writing(stand.plane, namespace, seed=len(fault), pause=pause) as oracle:
        time.sleep(BEFORE_SECONDS)
        recipe(stand, found)
        over = time.monotonic()
        time.sleep(AFTER_SECONDS)
    writes, is_there = oracle.writes(), there(stand.plane, namespace)

    def look() -> tuple[Verdict, Stored]:
        stored = checker.read(stand.dsn, CLUSTER, namespace)
        return checker.check(writes, is_there, stored), stored

    caught_up = None
    while caught_up is None and time.monotonic() < over + patience:
        time.sleep(ASK_SECONDS)
        with suppress(psycopg.OperationalError):  # PostgreSQL may still be starting
            if look()[0].is_complete:
                caught_up = time.monotonic() - over
    time.sleep(SETTLE_SECONDS)
    verdict, stored = look()
    asked = sets(stand.asked(mark))
    few = f" ({', '.join(asked)})" if 0 < len(asked) <= FEW else ""
    what = f"{asked.total()} kinds asked for from the beginning{few}"
    forgotten = stand.forgotten(mark)
    if no_sets and forgotten:
        what += f"; the API server could not go on with {', '.join(forgotten)}, which have no bookmarks"
    found.promise(what, holds=not (no_sets and asked - forgotten))
    blind = checker.blind_seconds(stored.gaps, since=began)
    return Result(
        fault,
        verdict,
        stored,
        max(blind.values(), default=0.0),
        caught_up,
        tuple(found.notes),
        tuple(found.broken),
    )
