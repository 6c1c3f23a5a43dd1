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
    by_user = grouped(calls, slots, lambda key: key.user)
    end = max((int(np.flatnonzero(counts).max(initial=0)) for counts in by_user.values()), default=0)
    for user, counts in by_user.items():
        account, spoke = service_account(user), np.flatnonzero(counts)
        if account is None or only_reacts(user) or not spoke.size:
            continue
        last, first = int(spoke[-1]), int(spoke[0])
        pause = int(np.diff(spoke).max(initial=1)) - 1
        silent = end - last
        often = float(counts[first : last + 1].mean()) / SLOT_SECONDS
        if silent < max(LEAST_SLOTS, LONGER * pause) or last - first < 2 * LEAST_SLOTS or often < LEAST_PER_SECOND:
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
