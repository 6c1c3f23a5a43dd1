"""What worked before a complaint: calls that had passed, pods that had come up, a program before its rollout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from app.core.entities import Entity, of_resource
from app.core.model import Outcome, Rollout
from app.core.objects.actors import service_account
from app.core.signals.complaints import MAKES_PODS
from app.core.signals.signal import Signal, SignalKind

Runs = Mapping[tuple[str, str], Collection[tuple[str, str]]]
"""By account, the workloads that run as it."""
NOBODY_RUNS: Runs = MappingProxyType({})
JUST_BEFORE = timedelta(minutes=15)
"""A rollout of whoever calls or writes has to do with it up to this time after."""


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


def with_rolled_out(found: list[Signal], rollouts: Iterable[Rollout]) -> list[Signal]:
    """Calls and write fights of one program, complaints of one workload: with when that was last rolled out before."""
    rolled = sorted(rollouts, key=lambda rollout: rollout.started_at)
    return [_with_rolled_out(signal, rolled) for signal in found]


def _with_rolled_out(signal: Signal, rollouts: list[Rollout]) -> Signal:
    if signal.kind is SignalKind.SYMPTOM:
        homes = [one for one in signal.about if one[0] == "workload"]
        own = [one.started_at for one in rollouts if of_resource(one.resource)[0] in homes]
        before = [at for at in own if signal.low - JUST_BEFORE <= at <= signal.high]
        return replace(signal, rolled_out=before[-1]) if len(homes) == 1 and before else signal
    if signal.kind not in (SignalKind.LOAD, SignalKind.FIGHT) or len(signal.users) != 1:
        return signal
    last = last_rollout(signal.users, rollouts, by=signal.high)
    return replace(signal, rolled_out=last.started_at) if last else signal


def last_rollout(
    users: tuple[str, ...],
    rollouts: Iterable[Rollout],
    *,
    by: datetime,
    within: timedelta = JUST_BEFORE,
    runs: Runs = NOBODY_RUNS,
) -> Rollout | None:
    """The last rollout of these users' programs in the time ``within`` before another: by convention a program is named
    like its account; else it is the only one that is known to run as that."""
    accounts = {account for user in users if (account := service_account(user))}
    accounts |= {home for account in accounts if len(homes := runs.get(account, ())) == 1 for home in homes}
    told = [
        rollout
        for rollout in rollouts
        if by - within <= rollout.started_at <= by
        and ((rollout.resource.namespace or "", rollout.resource.name) in accounts or rollout.resource.name in users)
    ]
    return max(told, key=lambda rollout: rollout.started_at, default=None)
