"""Whether more clients call, or each client calls more: by a caller's pods, which the audit log names
(``authentication.kubernetes.io/pod-name``), or, where it does not, by when a rollout replaced them.

What n clients do at r calls a second each grows by N·Δr + R·Δn, with N and R the means of before and after: Δn is what
was scaled, Δr what the program, or its configuration, does otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from app.core.counted import Calls
from app.core.edges.mechanism import UNLIKELY, only_bounds, only_scales
from app.core.model import SLOT_SECONDS, Change, Rollout
from app.core.objects.actors import service_account
from app.core.objects.dependencies import Named
from app.core.phrases import many, number
from app.core.phrases import rate as often
from app.core.signals.signal import Signal, SignalKind

WINDOW = 60
"""Seconds in which every client of a program has called once."""
COMING = 2 * SLOT_SECONDS
"""Seconds before a rise in which some of its clients may call already: pods of one scaling start within 5 s
(https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md), in two slots."""
AS_OFTEN = 1.25
"""Up to this many times as often a client calls as often as before: counts are small."""


class Clients(NamedTuple):
    """How many pods call, and how often they do together, a second."""

    pods: int
    rate: float

    @property
    def each(self) -> float:
        return self.rate / self.pods


class Growth(NamedTuple):
    """``by_clients`` is the share of the rise that more clients explain, None where none had called before;
    ``by_pod`` the shares of the rise by (namespace, name) of the pod."""

    by_clients: float | None
    said: str
    by_pod: dict[Named, float]


def growth(mine: Calls, user: str, *, boundary: float) -> Growth | None:
    """How calls of one sort by one caller grew at ``boundary``; None where no pod of it is known to call since.

    What is called within the slot of the rise by pods that only end then is not counted.
    """
    account, settled = service_account(user), mine.during(boundary + SLOT_SECONDS)
    rates = _rates(settled if len(settled) else mine.during(boundary))
    old_rates = _rates(mine.during(boundary - COMING - WINDOW, boundary - COMING))
    extra = {pod: max(0.0, rate - old_rates.get(pod, 0.0)) for pod, rate in rates.items()}
    total = sum(extra.values())
    if account is None or not total:
        return None
    by_pod = {(account[0], pod): rate / total for pod, rate in extra.items() if rate}
    if not old_rates:
        return Growth(None, "", by_pod)
    before, now = (Clients(len(told), sum(told.values())) for told in (old_rates, rates))
    by_clients = _by_clients(before, now)
    said = f"{_pods(before.pods, now.pods)}, each {_as_often(now.each, before.each)}" if by_clients is not None else ""
    return Growth(by_clients, said, by_pod)


def replaced(mine: Calls, rollout: Rollout | None, *, boundary: float) -> Growth | None:
    """As growth, where no pod is named: by how many a rollout had replaced by then, if the old ones call as before.

    None where the rise came before the rollout, or before any new pod.
    """
    settled = mine.during(boundary + SLOT_SECONDS)
    if rollout is None or not rollout.progress or not len(settled):
        return None
    if boundary + SLOT_SECONDS <= rollout.started_at.timestamp():
        return None
    before = Clients(max(1, rollout.progress[0].available), _per_second(mine.during(boundary - WINDOW, boundary)))
    new, there = (float(np.mean(told)) for told in zip(*(_told(rollout, at) for at in _slots(settled)), strict=True))
    now = Clients(round(there), _per_second(settled))
    by_clients = _by_clients(before, now)
    if by_clients is None or not new:
        return None
    old = min(before.pods, there - new)  # of those that are wanted some may not be there yet
    each = (now.rate - before.each * old) / new
    some = "the new one" if round(new) <= 1 else f"each of {round(new)} new ones"
    whose = "each" if round(new) == now.pods else some
    said = f"{_pods(before.pods, now.pods)}, {whose} {_as_often(each, before.each)}, by when they were replaced"
    return Growth(by_clients, said, {})


def _told(rollout: Rollout, at: float) -> tuple[int, int]:
    """How many pods are new at a time, and how many there are."""
    known = [one for one in rollout.progress if one.at.timestamp() <= at]
    if not known:
        return 0, rollout.progress[0].available
    return known[-1].updated, max(known[-1].desired, known[-1].updated)


def _by_clients(before: Clients, now: Clients) -> float | None:
    """The share of a rise that more clients explain; None where there is no rise."""
    rise = now.rate - before.rate
    if rise <= 0:
        return None
    return min(1.0, max(0.0, (now.each + before.each) / 2 * (now.pods - before.pods) / rise))


def _pods(before: int, now: int) -> str:
    return many(now, "pod") if now == before else f"{many(now, 'pod')}, {before} before"


def _as_often(each: float, before: float) -> str:
    if not before:
        return f"calls {often(each)}, none before"
    more = each / before
    return "as often as before" if 1 / AS_OFTEN < more < AS_OFTEN else f"{number(more)} times as often"


def _slots(calls: Calls) -> list[float]:
    return [float(slot) for slot in sorted(set(calls.slot.tolist()))]


def _seconds(calls: Calls) -> float:
    """From the first of these calls to the last."""
    return float(calls.slot.max() + SLOT_SECONDS - calls.slot.min()) if len(calls) else 0.0


def _per_second(calls: Calls) -> float:
    return float(calls.count.sum()) / _seconds(calls) if len(calls) else 0.0


def _rates(calls: Calls) -> dict[str, float]:
    """Calls a second of each pod, from the first of all these calls to the last."""
    found: dict[str, float] = defaultdict(float)
    seconds = _seconds(calls)
    for key, count in calls.sums():
        found[key.pod] += count / seconds
    return found


def agrees(change: Change, added: int, signal: Signal) -> float:
    """Less than 1 where a change does not go with how calls grew: it only scales, and each client calls more; or they
    are more, and it adds no pod. ``added`` is how many more there are by it."""
    by_clients = signal.facts.get("by_clients")
    if signal.kind is not SignalKind.LOAD or by_clients is None:
        return 1.0
    if only_scales(change) or only_bounds(change):
        return max(UNLIKELY, float(by_clients))
    return 1.0 if added else 1.0 - float(by_clients) / 2
