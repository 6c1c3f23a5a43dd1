"""Call counts -> callers that began to open watch after watch, as one that polls by watching and closes none.

The log counts a watch when it starts and never when it ends: how many are open at once is a metric of the API server
(families.py).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from app.core.counted import Calls
from app.core.entities import only_reacts
from app.core.model import SLOT_SECONDS
from app.core.onset import count_steps
from app.core.phrases import many, percent, rise
from app.core.signals.calls import Slots, caller_name, grouped, program
from app.core.signals.signal import Signal, SignalKind, moment

LEAST = 20
"""So many watches more than before are no reconnecting."""


def watch_signals(calls: Calls, slots: Slots) -> list[Signal]:
    """One signal for each caller whose watches are opened ever faster; its strength is the share of the extra ones."""
    calls = calls.where(lambda key: key.verb == "watch" and key.code < 400)
    series = grouped(calls, slots, lambda key: key.user)
    steps = count_steps(series)
    extra = {user: (step.after - step.before) * (slots.size - step.index) for user, step in steps.items()}
    total = sum(extra.values())
    found = []
    for user, step in steps.items():
        if only_reacts(user) or extra[user] < LEAST:
            continue
        low, share = slots.epoch(step.index), extra[user] / total
        opened = _opened(calls, user, since=low)
        about = {("user", user): 1.0, **program(user)}
        about |= {
            ("api", group, resource, "watch"): 0.5 * n / opened.total() for (group, resource), n in opened.items()
        }
        most = opened.most_common(1)[0][0][1]
        more = f" and {many(len(opened) - 1, 'other resource')}" if len(opened) > 1 else ""
        found.append(
            Signal(
                kind=SignalKind.LOAD,
                low=moment(low),
                high=moment(low + SLOT_SECONDS),
                strength=share * float(min(1.0, np.log1p(extra[user]) / np.log(200))),
                about=about,
                sentence=f"{caller_name(user)} opened {many(opened.total(), 'watch', 'watches')} of {most}{more}"
                f" ({percent(share)} of the extra watches): it went"
                f" {rise(step.before / SLOT_SECONDS, step.after / SLOT_SECONDS)}",
                users=(user,),
                rate_before=step.before / SLOT_SECONDS,
                rate_after=step.after / SLOT_SECONDS,
            )
        )
    return sorted(found, key=lambda signal: -signal.strength)


def _opened(calls: Calls, user: str, *, since: int) -> Counter[tuple[str, str]]:
    """How many watches a caller opened of each (API group, resource)."""
    found: Counter[tuple[str, str]] = Counter()
    for key, count in calls.during(since).sums():
        if key.user == user:
            found[key.api_group, key.resource] += count
    return found
