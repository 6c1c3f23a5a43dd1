"""What an evidence rule may look at, and how it speaks: the case, one candidate's facts, a weight with a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from app.core.findings import Evidence, Incident, Onset
from app.core.ranking.candidates import Candidate
from app.core.ranking.explain import Match
from app.core.signals.signal import Signal

CAP = 3.0
"""No single piece of evidence weighs more, for or against: of families that nobody tuned for, what looks certain is not
(docs/decisions/0027-weights-are-held-against-the-rules-of-before.md)."""


@dataclass(frozen=True, slots=True)
class Case:
    """What every rule may look at: the incident, its onset, what turned bad, and how busy the window was."""

    incident: Incident
    onset: Onset
    signals: tuple[Signal, ...]
    salience: dict[int, float]
    """By id(signal): relevance × strength, 1 for the most salient signal of the incident."""
    quality: float
    """0 to 1: how strong the most salient signal is in itself."""
    typical_pods: float
    audited: bool
    now: datetime
    alert_messages: str
    """Of all alerts, a line each."""
    alert_labels: frozenset[str]
    """The values of their labels."""
    alert_words: frozenset[str]
    """What of both may quote a change (brought.py)."""
    grown: float
    """How many times as many requests came; 1 where nothing says so (overrun.py)."""


class Facts(Struct, frozen=True, gc=False):
    """One candidate with what it explains and how many others came between it and the onset.

    ``explained`` is how much of the most salient signal it leads to, 0 to 1. ``keeps`` is what is left of the evidence
    of time and place where the change was only the occasion (explain.py); ``scope`` whether it touches what the alert
    names (scoped.py).
    """

    candidate: Candidate
    matches: tuple[Match, ...]
    between: int
    explained: float = 0.0
    keeps: float = 1.0
    scope: Evidence | None = None


class Rule(Protocol):
    """One piece of evidence; ``__name__`` is what an ablation calls it."""

    __name__: str

    def __call__(self, case: Case, facts: Facts, /) -> Evidence | None: ...


def say(rule: str, weight: float, sentence: str) -> Evidence:
    return Evidence(rule, round(max(-CAP, min(CAP, weight)), 3), sentence)


def seconds(span: timedelta) -> str:
    """A duration as a person says it during an incident: 0.4 s, 4 s, 2 min, 3 h, 5 d."""
    value = span.total_seconds()
    if value < 1:
        return f"{value:.1f} s"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if value < limit:
            return f"{value / size:.0f} {unit}"
    return f"{value / 86400:.0f} d"
