"""Who merely tries again: where an API server slows down or refuses, everybody's calls become more.

Whoever began first is another matter, also where it is refused itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from app.core.onset import Floats, Step

K = TypeVar("K", bound=Hashable)

MOSTLY = 0.5
"""From this share of a caller's calls on that are refused or fail, it is these that it tries again."""


def is_tried_again(code: int) -> bool:
    """Whether a client repeats a call that is answered so: too many requests, or the server's own fault (client-go's
    rest/with_retry.go, where Retry-After says when)."""
    return code == 429 or code >= 500


def retried(steps: Mapping[K, Step], failed: Mapping[K, Floats]) -> dict[K, float]:
    """Of calls that rose later than another caller's that are answered: the share of the rise that fails, where that is
    most of it. ``failed`` are counts per slot, as the steps are of all.
    """
    shares = {key: _share(step, failed[key]) if key in failed else 0.0 for key, step in steps.items()}
    first = min((step.index for key, step in steps.items() if shares[key] <= MOSTLY), default=None)
    return {
        key: share for key, share in shares.items() if first is not None and share > MOSTLY and steps[key].index > first
    }


def _share(step: Step, failed: Floats) -> float:
    before = float(failed[: step.index].mean()) if step.index else 0.0
    return min(1.0, max(0.0, float(failed[step.index :].mean()) - before) / (step.after - step.before))
