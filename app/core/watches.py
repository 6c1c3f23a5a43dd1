"""Call counts -> callers that began to open watch after watch, as one that polls by watching and closes none.

The log counts a watch when it starts and never when it ends: how many are open at once is a metric of the API server
(families.py).
"""

from __future__ import annotations

import numpy as np

from app.core.actors import service_account
from app.core.calls import Slots, caller_name, grouped
from app.core.entities import Entity, only_reacts, workload
from app.core.model import SLOT_SECONDS, CallCount, CallKey
from app.core.onset import count_step
from app.core.phrases import many, percent, rise
from app.core.signals import Signal, SignalKind, moment

LEAST = 20
"""So many watches more than before are no reconnecting."""

Opened = tuple[str, str, str]  # user, API group, resource


def _opened(key: CallKey) -> Opened | None:
    return (key.user, key.api_group, key.resource) if key.verb == "watch" and key.code < 400 else None


def watch_signals(calls: list[CallCount], slots: Slots) -> list[Signal]:
    """One signal for each caller and resource whose watches are opened ever faster; strength: share of the extra."""
    series = grouped(calls, slots, _opened)
    steps = {key: step for key, counts in series.items() if (step := count_step(counts))}
    extra = {key: (step.after - step.before) * (slots.size - step.index) for key, step in steps.items()}
    total = sum(extra.values())
    found = []
    for key, step in steps.items():
        user, group, resource = key
        if only_reacts(user) or extra[key] < LEAST:
            continue
        account = service_account(user)
        low, share = slots.epoch(step.index), extra[key] / total
        about: dict[Entity, float] = {("user", user): 1.0, ("api", group, resource, "watch"): 0.5}
        if account:
            about[workload(*account)] = 0.8  # by convention a workload is named like its account
        opened = series[key][step.index :].sum()
        found.append(
            Signal(
                kind=SignalKind.LOAD,
                low=moment(low),
                high=moment(low + SLOT_SECONDS),
                strength=share * float(min(1.0, np.log1p(extra[key]) / np.log(200))),
                about=about,
                sentence=f"{caller_name(user)} opened {many(round(opened), 'watch', 'watches')} of {resource}"
                f" ({percent(share)} of the extra watches): it went"
                f" {rise(step.before / SLOT_SECONDS, step.after / SLOT_SECONDS)}",
                users=(user,),
                rate_before=step.before / SLOT_SECONDS,
                rate_after=step.after / SLOT_SECONDS,
            )
        )
    return sorted(found, key=lambda signal: -signal.strength)
