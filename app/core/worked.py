"""What worked before a complaint: calls that had passed, pods that had come up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from app.core.complaints import MAKES_PODS
from app.core.entities import Entity, of_resource
from app.core.model import Outcome, Rollout
from app.core.signals import Signal, SignalKind


def with_passed(found: list[Signal]) -> list[Signal]:
    """Pods that cannot be made: with how many could be before, as the calls tell that failed for it."""
    calls = [s for s in found if s.kind is SignalKind.ERROR and s.passed and MAKES_PODS in s.about]
    told = max(calls, key=lambda signal: signal.strength, default=None)
    if told is None:
        return found
    return [replace(s, passed=told.passed) if s.facts.get("reason") == "FailedCreate" else s for s in found]


def with_came_up(found: list[Signal], rollouts: Iterable[Rollout]) -> list[Signal]:
    """Complaints of one workload: with when its pods were last all well."""
    went: dict[Entity, list[tuple[datetime, datetime]]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.outcome is Outcome.COMPLETE and rollout.ended_at is not None:
            went[of_resource(rollout.resource)[0]].append((rollout.started_at, rollout.ended_at))
    told = []
    for signal in found:
        homes = [one for one in signal.about if one[0] == "workload"]
        well = [span for home in homes for span in went[home] if span[1] < signal.low]
        is_one = signal.kind is SignalKind.SYMPTOM and len(homes) == 1
        told.append(replace(signal, came_up=max(well, key=lambda span: span[1])) if is_one and well else signal)
    return told
