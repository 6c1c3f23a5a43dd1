"""Whether more clients call, or each client calls more: by a caller's pods, which the audit log names
(``authentication.kubernetes.io/pod-name``).

What n clients do at r calls a second each grows by N·Δr + R·Δn, with N and R the means of before and after: Δn is what
was scaled, Δr what the program, or its configuration, does otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from app.core.counted import Calls
from app.core.edges.mechanism import UNLIKELY, only_bounds, only_scales
from app.core.model import SLOT_SECONDS, Change
from app.core.objects.actors import service_account
from app.core.objects.dependencies import Named
from app.core.phrases import many, number
from app.core.signals.signal import Signal, SignalKind

WINDOW = 60
"""Seconds in which every client of a program has called once."""
AS_OFTEN = 1.25
"""Up to this many times as often a client calls as often as before: counts are small."""


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
    old_rates = _rates(mine.during(boundary - WINDOW, boundary))
    extra = {pod: max(0.0, rate - old_rates.get(pod, 0.0)) for pod, rate in rates.items()}
    total = sum(extra.values())
    if account is None or not total:
        return None
    by_pod = {(account[0], pod): rate / total for pod, rate in extra.items() if rate}
    clients, old_clients = len(rates), len(old_rates)
    each, old_each = sum(rates.values()) / clients, sum(old_rates.values()) / max(1, old_clients)
    rise = clients * each - old_clients * old_each
    if not old_clients or rise <= 0:
        return Growth(None, "", by_pod)
    by_clients = min(1.0, max(0.0, (each + old_each) / 2 * (clients - old_clients) / rise))
    pods = many(clients, "pod") if clients == old_clients else f"{many(clients, 'pod')}, {old_clients} before"
    more = each / old_each
    how = "as often as before" if 1 / AS_OFTEN < more < AS_OFTEN else f"{number(more)} times as often"
    return Growth(by_clients, f"{pods}, each {how}", by_pod)


def _rates(calls: Calls) -> dict[str, float]:
    """Calls a second of each pod, from the first of all these calls to the last."""
    found: dict[str, float] = defaultdict(float)
    seconds = float(calls.slot.max() + SLOT_SECONDS - calls.slot.min()) if len(calls) else 0.0
    for key, count in calls.sums():
        found[key.pod] += count / seconds
    return found


def agrees(change: Change, pods: int, signal: Signal) -> float:
    """Less than 1 where a change does not go with how calls grew: it only scales, and each client calls more; or they
    are more, and it makes no pod. ``pods`` is how many it makes or replaces."""
    by_clients = signal.facts.get("by_clients")
    if signal.kind is not SignalKind.LOAD or by_clients is None:
        return 1.0
    if only_scales(change) or only_bounds(change):
        return max(UNLIKELY, float(by_clients))
    return 1.0 if pods else 1.0 - float(by_clients) / 2
