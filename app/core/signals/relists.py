"""Call counts -> relist storms: LISTs of clients that had lost the watches by which they kept up.

What a client has seen is too old for its watch to go on: 410 Gone is told inside of a watch that answered 200, so no
audit log holds it. What it holds is what an informer does next: it LISTs what it had watched, and watches again.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from app.core.counted import Calls
from app.core.model import SLOT_SECONDS, CallKey, ListClass
from app.core.onset import Burst, count_bursts
from app.core.phrases import duration, many, rise
from app.core.signals.calls import MIN_EXTRA_PER_SECOND, Slots, grouped
from app.core.signals.signal import Signal, SignalKind, moment

FLEET = 3
"""From this many clients of one kind on, what they do at once is not their own doing."""
AROUND = 3
"""Slots before a burst in which what set it off was answered, and after it in which new watches are opened."""
FOLLOWED = 0.5
"""So many new watches a LIST has at least: one for each, less those tried again before they came to a watch. Who polls
what it watches, too, opens one in minutes (client-go: 5 to 10), and LISTs in seconds."""
KEPT = 30
"""Seconds for which a client had kept its watch before it first listed anew. Who fails and begins again, over and over,
waits no longer in between (client-go's back-off), and lost nothing."""
STORM = 0.7

Fleet = tuple[str, str, str]
"""One kind of client (user agent family) and what it lists or watches (API group, resource)."""
_NEVER = np.iinfo(np.int64).max


def relist_signals(calls: Calls, slots: Slots) -> list[Signal]:
    """Bursts of LISTs by at least FLEET clients of one kind of what they had watched before, with new watches.

    Clients are told apart by user and pod: each kubelet is a user, the pods of an agent share one; those of a rollout
    are new, and had watched nothing.
    """
    told = calls.where(lambda key: key.verb in ("list", "watch"))
    anew = _anew(told)
    found = []
    for fleet, burst in count_bursts(grouped(anew, slots, _fleet)).items():
        if (burst.during - burst.before) / SLOT_SECONDS < MIN_EXTRA_PER_SECOND:
            continue
        if signal := _signal(fleet, burst, anew, told, slots):
            found.append(signal)
    return found


def _anew(told: Calls) -> Calls:
    """The LISTs of what their clients had watched, and not listed, for KEPT seconds and more."""
    watched = _first(told, lambda key: key.verb == "watch")
    since = np.array([watched.get(_client(key), _NEVER) if _begins(key) else _NEVER for key in told.keys])
    lists = told.at(told.slot > since[told.key])
    listed = _first(lists, _begins)
    return lists.where(lambda key: _begins(key) and listed[_client(key)] - watched.get(_client(key), _NEVER) >= KEPT)


def _first(calls: Calls, wanted: Callable[[CallKey], bool]) -> dict[tuple[str, ...], int]:
    """By client, the slot in which it first made such a call."""
    first = np.full(len(calls.keys), _NEVER)
    np.minimum.at(first, calls.key, calls.slot)
    found: dict[tuple[str, ...], int] = {}
    for key, slot in zip(calls.keys, first.tolist(), strict=True):
        if wanted(key):
            found[_client(key)] = min(slot, found.get(_client(key), _NEVER))
    return found


def _begins(key: CallKey) -> bool:
    """Whether it is the first page of a LIST that went well, by a client that was there before: client-go begins with
    one from the cache, and asks for the newest, or for what is no older than it has seen, having lost its place. A
    stream of all there is, is as good as a LIST."""
    if key.verb == "watch":
        return key.code < 400 and key.list_class is ListClass.STREAM
    return key.verb == "list" and key.code < 400 and key.list_class not in (ListClass.CACHE, ListClass.CONTINUE)


def _client(key: CallKey) -> tuple[str, ...]:
    return key.user, key.pod, *_fleet(key)


def _fleet(key: CallKey) -> Fleet:
    return key.user_agent, key.api_group, key.resource


def _signal(fleet: Fleet, burst: Burst, anew: Calls, told: Calls, slots: Slots) -> Signal | None:
    """``told`` are all LISTs and watches, ``anew`` the LISTs that begin anew."""
    agent, group, resource = fleet
    low, end = slots.epoch(burst.start), slots.epoch(burst.end)
    told, anew = (calls.where(lambda key: _fleet(key) == fleet) for calls in (told, anew))
    lists = anew.during(low, end).sums()
    clients = {_client(key) for key, _ in lists}
    opened = _count(told.during(low, end + AROUND * SLOT_SECONDS), lambda key: key.verb == "watch" and key.code < 400)
    if len(clients) < FLEET or opened < FOLLOWED * sum(count for _, count in lists):
        return None
    around = told.during(low - AROUND * SLOT_SECONDS, end + AROUND * SLOT_SECONDS)
    verb = "LIST" if any(key.verb == "list" for key, _ in lists) else "WATCH of all"
    rates = rise(burst.before / SLOT_SECONDS, burst.during / SLOT_SECONDS, f"{verb} {resource}")
    lasted = f" for {duration(end - low)}" if burst.end < slots.size else ""
    return Signal(
        kind=SignalKind.LOAD,
        low=moment(low),
        high=moment(low + SLOT_SECONDS),
        strength=STORM,
        about={("api", group, resource, "list"): 0.5},
        sentence=f"relist storm of {many(len(clients), f'{agent} client')}: {rates}{lasted}, {_why(around)}",
        users=tuple(sorted({key.user for key, _ in lists})),
        rate_before=burst.before / SLOT_SECONDS,
        rate_after=burst.during / SLOT_SECONDS,
        facts={"relist": resource},
    )


def _why(around: Calls) -> str:
    """What the audit log says of why a fleet lists anew; where it says nothing, what that shows."""
    tokens = _count(around, lambda key: key.code == 410 and key.list_class is ListClass.CONTINUE)
    gone = _count(around, lambda key: key.code == 410 and key.list_class is not ListClass.CONTINUE)
    late = _count(around, lambda key: key.code == 504 and key.verb == "list")
    why = [f"{many(gone, 'watch', 'watches')} expired (410 Gone)"] if gone else []
    why += [f"{many(tokens, 'LIST token')} expired (410 Gone)"] if tokens else []
    why = why or ["each with a new watch: they had lost theirs"]
    return ", ".join([*why, f"{many(late, 'LIST')} timed out (504)"] if late else why)


def _count(calls: Calls, wanted: Callable[[CallKey], bool]) -> int:
    return sum(count for key, count in calls.sums() if wanted(key))
