"""Asks a Prometheus who calls whom, as service meshes count it.

Kept with every series, the names of both sides would multiply them: so that is a question of its own, seldom asked,
whose answer is names alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from app.collect.prometheus import MOST_WARNINGS, Prometheus, labels_of
from app.core.edges.mesh_calls import COUNTERS, called
from app.core.model import CallEdge
from app.core.objects.dependencies import Named
from app.core.objects.redact import Redactor

CALLS_EVERY = timedelta(minutes=10)
LOOKS_BACK = timedelta(minutes=15)
"""So far: nothing that was scraped between two questions is missed."""


async def ask(
    source: Prometheus, counters: Iterable[str], redactor: Redactor, now: datetime
) -> tuple[list[CallEdge], tuple[str, ...]]:
    """Who calls whom by these of COUNTERS, seen now, and what the answers warn of. Raises OutboundError."""
    found: set[tuple[Named, str, Named]] = set()
    warnings: dict[str, None] = {}
    for name in counters:
        told, warned = await labels_of(source, query(name, source.matchers_of_apps), now)
        warnings |= dict.fromkeys(warned)
        for labels in told:
            harmless = {label: redactor.label(label, value) for label, value in labels.items()}
            found.update(called(name, harmless))
    edges = [CallEdge(caller, kind, callee, now, now) for caller, kind, callee in sorted(found)]
    return edges, tuple(warnings)[:MOST_WARNINGS]


def query(name: str, matchers: str) -> str:
    """What asks for the names alone. A counter is there from the first call on for as long as its proxy runs."""
    labels, told = COUNTERS[name]
    chosen = f"{told},{matchers}" if matchers.strip() else told
    return f"group by ({','.join(labels)}) (last_over_time({name}{{{chosen}}}[{LOOKS_BACK.total_seconds():.0f}s]))"
