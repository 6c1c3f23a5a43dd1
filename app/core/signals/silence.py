"""Programs that fell silent: what called the API all the time and then no more, as a controller that is gone."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from app.core.counted import Calls
from app.core.entities import only_reacts, workload
from app.core.model import SLOT_SECONDS
from app.core.objects.actors import service_account
from app.core.phrases import rate
from app.core.signals.calls import Slots, caller_name, grouped
from app.core.signals.signal import Signal, SignalKind, moment

LEAST_PER_SECOND = 0.2
"""Who calls less often is not missed so soon."""
LEAST_SLOTS = 3
LONGER = 3
"""A silence is one when it lasts this many times the longest pause before it."""
STRENGTH = 0.5


def silence_signals(calls: Calls, slots: Slots) -> list[Signal]:
    """One signal for each ServiceAccount that called steadily and has not called since, while others have."""
    found = []
    heard = _last_heard(calls, slots)
    recent = max(heard.values(), default=0) - LEAST_SLOTS * SLOT_SECONDS
    end = slots.index(max(heard.values(), default=0))
    quiet = {
        user: account
        for user, last in heard.items()
        if last <= recent and not only_reacts(user) and (account := service_account(user))
    }
    for user, counts in grouped(calls, slots, lambda key: key.user if key.user in quiet else None).items():
        account, spoke = quiet[user], np.flatnonzero(counts)
        last, first = int(spoke[-1]), int(spoke[0])
        pause = int(np.diff(spoke).max(initial=1)) - 1
        if end - last < LONGER * pause or last - first < 2 * LEAST_SLOTS:
            continue
        often = float(counts[first : last + 1].mean()) / SLOT_SECONDS
        if often < LEAST_PER_SECOND:
            continue
        low = moment(slots.epoch(last))
        found.append(
            Signal(
                kind=SignalKind.LOAD,
                low=low,
                high=low + timedelta(seconds=SLOT_SECONDS * (pause + 2)),  # it was due again only after a pause
                strength=STRENGTH,
                about={("user", user): 1.0, workload(*account): 0.9, ("ns", account[0]): 0.3},
                sentence=f"{caller_name(user)} fell silent: {rate(often, 'calls')} before, none since",
                users=(user,),
                rate_before=often,
            )
        )
    return found


def _last_heard(calls: Calls, slots: Slots) -> dict[str, int]:
    """By user, the last slot in which it called."""
    last = np.zeros(len(calls.keys), dtype=np.int64)
    within = (calls.slot >= slots.start) & (calls.slot < slots.epoch(slots.size))
    rows = np.flatnonzero(within & (calls.count > 0))
    rows = rows[np.argsort(calls.slot[rows], kind="stable")]
    last[calls.key[rows]] = calls.slot[rows]  # of several values for one place, the last one stays
    found: dict[str, int] = {}
    for key, slot in zip(calls.keys, last.tolist(), strict=True):
        if slot:
            found[key.user] = max(slot, found.get(key.user, 0))
    return found
