"""What is given out for a time hurts when that ends.

Tokens, certificates, leases and records of names go on by the old ones until these end: a change of who gives them out,
or for how long, may do nothing for just as long as one lasts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from app.core.edges.settings import settings_in
from app.core.edges.topology import Topology
from app.core.findings import Onset
from app.core.model import Verb
from app.core.objects.untyped import fields, items
from app.core.objects.values import NUMBER
from app.core.phrases import duration
from app.core.ranking.candidates import Candidate

LEAST = timedelta(minutes=10)
"""What lasts less is told by time as it is."""
EXACT = 0.05
"""How far, of how long it lasts, the onset may be from when the first one ended: it is given out a little later."""
_LASTS = re.compile(r"ttl|expir|life_?time|valid|\bduration\b|max_?age|lease", re.IGNORECASE)
_FINISHED = "ttlSecondsAfterFinished"
"""For how long a Job that has ended is kept: nobody goes by it."""
_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_UNIT_OF_NAME = (
    (re.compile(r"(?:ms|millis\w*)\Z", re.IGNORECASE), "ms"),
    (re.compile(r"min(?:ute)?s?\Z", re.IGNORECASE), "m"),
    (re.compile(r"h(?:ou)?rs?\Z", re.IGNORECASE), "h"),
    (re.compile(r"days?\Z", re.IGNORECASE), "d"),
)


def with_lasting(found: Iterable[Candidate], onset: Onset, top: Topology) -> Iterator[Candidate]:
    """The candidates; each of which the object names a time after which, counted from the change, the onset came, with
    when that was over."""
    for candidate in found:
        since = onset.at - candidate.change.at
        ended = _ended(candidate, since, top) if candidate.acts_at is None and since >= LEAST * (1 - EXACT) else None
        if ended is None:
            yield candidate
        else:
            name, span = ended
            acts_as = f"What lasts {duration(span.total_seconds())} ({name}) ended"
            yield replace(candidate, acts_at=min(candidate.change.at + span, onset.at), acts_as=acts_as)


def _ended(candidate: Candidate, since: timedelta, top: Topology) -> tuple[str, timedelta] | None:
    """What its object says that lasts for as long as the onset came after it: the name of that, and how long."""
    if candidate.change.verb is Verb.DELETE:
        return None
    told = (
        (name, span)
        for name, value in _said(top.states.get(candidate.change.resource), "")
        if _LASTS.search(name) and name != _FINISHED and (span := _span(name, value)) is not None
    )
    fits = [(name, span) for name, span in told if span >= LEAST and abs(span - since) <= EXACT * span]
    return min(fits, key=lambda fit: abs(fit[1] - since), default=None)


def _said(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """What an object says, by the name of each setting: of a file of settings each of these."""
    for key, one in fields(value).items():
        is_variable = key == "value" and isinstance(value.get("name"), str)
        yield from _said(one, value["name"] if is_variable else key)
    for one in items(value):
        yield from _said(one, name)
    if isinstance(value, str):
        yield name, value
        yield from settings_in(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, str(value)


def _span(name: str, value: str) -> timedelta | None:
    """How long a setting says: with a unit of its own, by the end of its name, or else in seconds."""
    told = NUMBER.fullmatch(value)
    if told is None:
        return None
    unit = told["unit"].strip() or next((unit for ends, unit in _UNIT_OF_NAME if ends.search(name)), "s")
    seconds = float(told["number"]) * _UNITS[unit] if unit in _UNITS else None
    return timedelta(seconds=seconds) if seconds is not None and 0 < seconds < 10**9 else None
