"""Call counts -> relist storms: bursts of LISTs from clients that lost their watches, or their place in a list."""

from __future__ import annotations

from collections.abc import Callable

from app.core.calls import MIN_EXTRA_PER_SECOND, Slots, grouped
from app.core.counted import Calls
from app.core.model import SLOT_SECONDS, CallKey, ListClass
from app.core.onset import Burst, count_bursts
from app.core.phrases import duration, many, rise
from app.core.signals import Signal, SignalKind, moment

FLEET = 3
"""From this many clients of one kind on, what they do at once is not their own doing."""
AROUND = 3
"""Slots before a burst in which what set it off was answered, and after it in which new watches are opened."""
STORM = 0.7
ALONE = 0.3
"""Strength of what fewer than FLEET clients do."""

Fleet = tuple[str, str, str]
"""One kind of client (user agent family) and what it lists or watches (API group, resource)."""
Clients = set[tuple[str, str]]
"""By user and pod: each kubelet is a user, the pods of an agent share one."""


def relist_signals(calls: Calls, slots: Slots) -> list[Signal]:
    """Bursts of LISTs by one kind of client, after 410 Gone or each followed by a new watch.

    410 Gone says outright that a version or a place in a list is too old, but it mostly comes as an event inside a
    watch that answered 200, which no audit log holds; a fleet that lists and watches anew at once shows it as well,
    where it is not new itself, as the pods of a rollout are.
    A LIST that timed out (504) is told beside it, and is no sign of it.
    """
    found = []
    told = calls.where(lambda key: key.verb in ("list", "watch"))
    listed = grouped(told, slots, lambda key: _fleet(key) if _fine(key, "list") else None)
    for fleet, burst in count_bursts(listed).items():
        if (burst.during - burst.before) / SLOT_SECONDS < MIN_EXTRA_PER_SECOND:
            continue
        known = _clients(calls.during(end=slots.epoch(burst.start)), lambda _key: True)
        if signal := _signal(fleet, burst, told, slots, known=known):
            found.append(signal)
    return found


def _signal(fleet: Fleet, burst: Burst, told: Calls, slots: Slots, *, known: Clients) -> Signal | None:
    """``known`` are the clients that called before the burst, whatever it was."""
    agent, group, resource = fleet
    low, end = slots.epoch(burst.start), slots.epoch(burst.end)
    calls = told.where(lambda key: _fleet(key) == fleet)
    around = calls.during(low - AROUND * SLOT_SECONDS, end + AROUND * SLOT_SECONDS)
    clients = _clients(around.during(low, end), lambda key: _fine(key, "list"))
    is_storm = len(clients) >= FLEET
    anew = around.during(low)
    watched = _count(calls.during(end=low), lambda key: _fine(key, "watch"))
    usual = watched * (burst.end - burst.start + AROUND) / max(1, burst.start)
    tokens = _count(around, lambda key: key.code == 410 and key.list_class is ListClass.CONTINUE)
    gone = _count(around, lambda key: key.code == 410 and key.list_class is not ListClass.CONTINUE)
    late = _count(around, lambda key: key.code == 504 and key.verb == "list")
    watching = clients & known & _clients(anew, lambda key: _fine(key, "watch"))
    opened = _count(anew, lambda key: _fine(key, "watch"))
    lost = is_storm and len(watching) >= len(clients) / 2 and opened >= 2 * usual
    if not (gone or tokens or lost):
        return None
    why = [f"{many(gone, 'watch', 'watches')} expired (410 Gone)"] if gone else []
    why += [f"{many(tokens, 'LIST token')} expired (410 Gone)"] if tokens else []
    why = why or ["each with a new watch: they had lost theirs"]
    why += [f"{many(late, 'LIST')} timed out (504)"] if late else []
    rates = rise(burst.before / SLOT_SECONDS, burst.during / SLOT_SECONDS, f"LIST {resource}")
    lasted = f" for {duration(end - low)}" if burst.end < slots.size else ""
    return Signal(
        kind=SignalKind.LOAD,
        low=moment(low),
        high=moment(low + SLOT_SECONDS),
        strength=STORM if is_storm else ALONE,
        about={("relist",): 1.0, ("api", group, resource, "list"): 0.5},
        sentence=f"{'relist storm' if is_storm else 'lists anew'}: {many(len(clients), f'{agent} client')} went"
        f" {rates}{lasted}, {', '.join(why)}",
        users=tuple(sorted({user for user, _ in clients})),
        rate_before=burst.before / SLOT_SECONDS,
        rate_after=burst.during / SLOT_SECONDS,
        facts={"relist": resource},
    )


def _fleet(key: CallKey) -> Fleet:
    return key.user_agent, key.api_group, key.resource


def _fine(key: CallKey, verb: str) -> bool:
    return key.verb == verb and key.code < 400


def _clients(calls: Calls, wanted: Callable[[CallKey], bool]) -> Clients:
    return {(key.user, key.pod) for key, _ in calls.sums() if wanted(key)}


def _count(calls: Calls, wanted: Callable[[CallKey], bool]) -> int:
    return sum(count for key, count in calls.sums() if wanted(key))
