"""The order in which churn takes a control plane down, link by link, which is evidence by itself.

Pods are moved faster than those who watch them can follow: watches end, or what they would go on from is too old; who
lost theirs list everything (relists.py); memory and latency of the API server rise, until it is restarted.
"""

from __future__ import annotations

import re

from app.core.findings import Evidence
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.consequences import is_consequence
from app.core.signals.signal import Signal, SignalKind

CHURN, ENDED, RELIST, BURDEN, RESTART = range(5)
MOST = 0.45
"""The match with a churn of what moved half of the pods (0.9 of its share), at once."""


def chain(case: Case, facts: Facts) -> Evidence | None:
    """The churn, one of the next two links and one of the last two, in order, put down to whoever moved most of the
    pods: what follows from the churn has no other cause to be looked for, so it needs no match of its own."""
    moved = (match for match in facts.matches if match.via[0] == "churn" and _link(match.signal) == CHURN)
    churn = max(moved, key=lambda match: match.score, default=None)
    if churn is None or churn.score < MOST:
        return None
    links = [churn.signal]
    # Memory before latency: it is what a restart comes of.
    later = sorted(case.signals, key=lambda signal: (signal.facts.get("family") != "Memory", signal.low))
    for stage in (ENDED, RELIST, BURDEN, RESTART):
        link = next((one for one in later if _link(one) == stage and one.high > links[-1].low), None)
        links += [link] if link else []
        if stage == RELIST and len(links) == 1:
            return None
    if _link(links[-1]) in (ENDED, RELIST):
        return None
    # When each began is known to an interval only: one that is told by its lower end seems to come before its cause.
    told = ", then ".join(
        f"{re.split(r'[,:] ', link.sentence)[0]} between {link.low:%H:%M:%S} and {link.high:%H:%M:%S}" for link in links
    )
    return say("chain", churn.score, f"In this order: {told}.")


def _link(signal: Signal) -> int | None:
    """Which link a signal may be; None for what is of no chain."""
    family = signal.facts.get("family", "")
    if family == "Watches ended":
        return ENDED
    if "relist" in signal.facts:
        return RELIST
    if family in ("Memory", "Latency", "In flight"):
        return BURDEN
    if family == "Restarts":
        return RESTART
    moves = signal.kind is SignalKind.LOAD or "resource" in signal.facts
    return CHURN if moves and is_consequence(signal) else None
