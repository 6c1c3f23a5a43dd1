"""What refuses waits until somebody makes what it refuses: it is dated by the first refusal that names it.

A policy that is enforced from now on leaves alone what runs; it may be hours until pods are made that it does not let
in (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from app.core.edges.mechanism import ADMITS
from app.core.edges.references import is_custom
from app.core.model import Verb
from app.core.objects.grants import accepts_more
from app.core.ranking.candidates import Candidate
from app.core.ranking.nearness import mentioned
from app.core.signals.signal import Signal

DENIED = re.compile(r"denied (?:the )?request|violates PodSecurity")
"""As the API server says it of webhooks, of its own policies, and of pod security."""
REFUSED = "It first refused something"
_REFUSES = ADMITS | {"ResourceQuota"}


def with_refusals(found: Iterable[Candidate], signals: Iterable[Signal]) -> Iterator[Candidate]:
    """The candidates; each that refuses something with when it was first said that it did, since it was edited."""
    refusals = sorted((one for one in signals if _is_refusal(one)), key=lambda one: one.low)
    for candidate in found:
        first = _first(candidate, refusals) if refusals and candidate.acts_at is None and _refuses(candidate) else None
        yield replace(candidate, acts_at=first.low, acts_as=REFUSED) if first is not None else candidate


def _first(candidate: Candidate, refusals: list[Signal]) -> Signal | None:
    naming = (one for one in refusals if mentioned(candidate, one))
    first = next(naming, None)
    return first if first is not None and first.low > candidate.change.at else None


def _is_refusal(signal: Signal) -> bool:
    return bool(signal.facts.get("refused")) or DENIED.search(signal.text) is not None


def _refuses(candidate: Candidate) -> bool:
    """Whether a change makes or alters what may be asked about what others make."""
    change = candidate.change
    is_so = change.resource.kind in _REFUSES or is_custom(change.resource)
    is_harmless = change.verb is Verb.DELETE or accepts_more(change)
    return is_so and not (is_harmless or candidate.inert or candidate.cosmetic)
