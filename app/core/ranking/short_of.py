"""What complains that there is too little, of what a change leaves less or uses up bit by bit; and how long it takes
until that, and other things that come later as a rule, shows."""

from __future__ import annotations

import re
from datetime import timedelta

from app.core.edges.amounts import KILLED, left_of
from app.core.edges.burdens import clears_no_more
from app.core.edges.causes import RIGHTS
from app.core.edges.leads import POLICIES, tunes_kernel
from app.core.edges.mechanism import BEFORE_RUNNING
from app.core.edges.program_causes import DISK, EXHAUSTED, TRACKED
from app.core.edges.references import is_custom
from app.core.edges.said import NO_CONNECTION
from app.core.edges.settings import differing
from app.core.entities import ACCESS, WORKLOADS, workload
from app.core.model import Change, FieldDiff, Verb
from app.core.ranking.ways import FULL_STORE, SCARCE
from app.core.signals.signal import Signal, SignalKind

HALF = 0.5
"""What is left of it at most."""
AT_MOST = frozenset({"TooManyReplicas"})
"""An autoscaler says so that would make more pods than it may."""
_HOLDS = re.compile(r"heap|-Xmx|RAMPercentage|max-old-space|cache|buffer|prefetch|batch|in.?flight", re.IGNORECASE)
"""Settings of how much a program keeps in its memory."""
_KEEPS = re.compile(
    rf"{_HOLDS.pattern}|(?<![a-z])log(?:s|ging)?(?![a-z])|log.?level|verbos|debug|trace|retain|retention|evict"
    r"|maxmemory|max.?(?:bytes|age|size)",
    re.IGNORECASE,
)
"""The same, or of how much is written down, and kept for how long."""
FULL = re.compile(
    r"connection is not available|pool (?:is )?(?:exhausted|timed out)|pool ?(?:limit|timeout)|get a connection after"
    r"|obtain jdbc connection|tim(?:ed|e) ?out.{0,40}acquir|acquir.{0,40}tim(?:ed|e) ?out"
    rf"|local (?:ephemeral )?storage (?:usage|limit)|usage of EmptyDir|{FULL_STORE.pattern}|{NO_CONNECTION.pattern}",
    re.IGNORECASE,
)
"""How it is said that something is used up which is taken bit by bit."""
_NEXT = BEFORE_RUNNING | {"FailedCreatePodSandBox"}
"""What pods complain of that are made."""
LATER, INTERVALS = timedelta(hours=1), timedelta(days=1)
"""In the next hour in which more is asked; the next time that it is gone by, or as what a day brings fills it."""
_AT_INTERVALS = re.compile(
    r"SecretStore\Z|Issuer\Z|\AVault(?:Auth|Connection)\Z|AuthEngine\w+\Z|\AVerticalPodAutoscaler\Z"
)
"""Kinds that are gone by as the next secret is fetched, certificate signed or recommendation made: each hour, or day
(https://external-secrets.io/latest/api/externalsecret/#update-behavior)."""


def is_short(change: Change, signal: Signal) -> bool:
    """Whether a change leaves half, or less, of what a signal may say there is too little of."""
    left = left_of(change) if signal.kind is SignalKind.SYMPTOM else None
    if left is None or left[0] > HALF:
        return False
    return _of_memory(signal) if left[1].path[-1] == "memory" else _of_anything(signal)


def shows_within(change: Change, signal: Signal) -> timedelta | None:
    """How long after a change it shows as a rule, where that is not soon: as more is asked of what it left less, as
    what its new program takes, and does not give back, is used up, with the next one that is made by it, as a right
    that it took away is needed, or as connections are made anew; None where it is soon."""
    if _AT_INTERVALS.search(change.resource.kind) or (clears_no_more(change) and is_full(signal)):
        return INTERVALS
    ways = (is_short, _fills, _fills_by_setting, _waits_for_the_next, _is_asked_for_later, _lets_go_on)
    return LATER if any(way(change, signal) for way in ways) else None


def _fills(change: Change, signal: Signal) -> bool:
    home = workload(change.resource.namespace, change.resource.name)
    if change.resource.kind not in WORKLOADS or (home not in signal.about and not NO_CONNECTION.search(signal.text)):
        return False
    is_new = change.verb is Verb.UPDATE and any(map(_is_program, change.diffs))
    return is_new and (is_full(signal) or signal.cause is EXHAUSTED or _of_memory(signal))


def _fills_by_setting(change: Change, signal: Signal) -> bool:
    """Whether configuration says how much is written down or kept, and what is full is that."""
    is_said = any(_KEEPS.search(f"{diff.path} {part}") for diff in change.diffs for part in differing(diff))
    return (change.resource.kind == "ConfigMap" or is_custom(change.resource)) and is_said and is_full(signal)


def is_full(signal: Signal) -> bool:
    """Whether it says that something has no more room, or no more connections."""
    return signal.cause is DISK or FULL.search(signal.text) is not None


def _is_program(diff: FieldDiff) -> bool:
    """Whether it is another program, or how much that may hold."""
    return diff.path[-1:] == ("image",) or _HOLDS.search(f"{diff.path} {diff.new}") is not None


def _waits_for_the_next(change: Change, signal: Signal) -> bool:
    """Whether it says how the next pods are made, placed or given what they need, and these are what fails; what a
    kernel lets them have is met by those that begin to ask for it, too."""
    is_met = change.resource.kind not in WORKLOADS and signal.facts.get("reason") in _NEXT
    return is_met or (tunes_kernel(change) and signal.cause in (EXHAUSTED, TRACKED))


def _is_asked_for_later(change: Change, signal: Signal) -> bool:
    """Whether it is of who may do what, and somebody is refused: that shows as he asks for it the next time."""
    return change.resource.kind in ACCESS and (signal.cause is RIGHTS or signal.facts.get("code") == "403")


def _lets_go_on(change: Change, signal: Signal) -> bool:
    """Whether it is of who may call whom, and somebody who called already fails: what is open stays open with most
    that go by such policies
    (https://kubernetes.io/docs/concepts/services-networking/network-policies/#networkpolicy-and-pod-lifecycle)."""
    return POLICIES(change) and signal.kind is SignalKind.SYMPTOM


def _of_memory(signal: Signal) -> bool:
    return signal.facts.get("reason") == "OOMKilled" or KILLED.search(signal.text) is not None


def _of_anything(signal: Signal) -> bool:
    return signal.facts.get("reason") in AT_MOST or SCARCE.search(signal.text) is not None
