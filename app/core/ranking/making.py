"""Pods that a program makes by itself: no workload owns them and they are no changes, yet they take room.

So do those that run builds, tests or tasks: GitLab Runner's Kubernetes executor, Airflow's, Spark's driver. What tells
such a program to make more is seen by what the audit log counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import zip_longest

from msgspec.structs import replace

from app.core.counted import Calls
from app.core.entities import only_reacts
from app.core.model import SLOT_SECONDS, CallKey
from app.core.ranking.candidates import Candidate
from app.core.signals.calls import program

FOLLOWS = 120
"""Seconds: what a program makes so long after it was rolled out or told something may be because of that."""


def with_pods_made(found: Iterable[Candidate], calls: Calls) -> list[Candidate]:
    """The candidates, with the pods that a program on which they act has made since, until it was next changed, more
    than it had made before."""
    ordered = sorted(found, key=lambda one: one.change.at)
    creating = calls.where(_makes_pods)
    more = [0] * len(ordered)
    for user in {key.user for key in creating.keys}:
        made = creating.where(partial(_is_of, user))
        home = next(iter(program(user)), None)
        acting = [n for n, one in enumerate(ordered) if one.reach.get(home, 1.0) < 1.0] if home else []
        for n, after in zip_longest(acting, acting[1:]):
            until = ordered[after].change.at.timestamp() if after is not None else math.inf
            more[n] += _more(ordered[n].change.at.timestamp(), made, first=int(calls.slot.min()), until=until)
    return [
        replace(one, pods=one.pods + pods, added=one.added + pods) if pods else one
        for one, pods in zip(ordered, more, strict=True)
    ]


def _is_of(user: str, key: CallKey) -> bool:
    return key.user == user


def _makes_pods(key: CallKey) -> bool:
    is_made = (key.verb, key.api_group, key.resource) == ("create", "", "pods") and key.code < 300
    return is_made and not only_reacts(key.user)


def _more(at: float, made: Calls, *, first: int, until: float) -> int:
    """How many pods more were made since a change, up to the next, than as many seconds before would have made; 0 where
    nothing is known of before. ``first`` is where the record begins."""
    if at <= first:
        return 0
    end = min(until, at + FOLLOWS)
    before, since = made.during(end=_slot(at)), made.during(_slot(at), _slot(end))
    return max(0, round(float(since.count.sum() - before.count.sum() / (at - first) * (end - at))))


def _slot(at: float) -> float:
    """What was made in the slot of a change was made after it."""
    return at - SLOT_SECONDS
