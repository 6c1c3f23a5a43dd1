"""Dicts that hold so many at most: an OrderedDict takes 60 bytes more of each."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_AT_ONCE = 256
"""One in so many is forgotten at a time: a dict looks for its first among the places of all that left before it."""


def put(held: dict[K, V], key: K, value: V, *, limit: int) -> None:
    """Put a value in; those that were put in first go where there are too many."""
    held[key] = value
    if len(held) > limit:
        for first, _ in first_of(held, limit):
            del held[first]


def first_of(held: dict[K, V], limit: int) -> list[tuple[K, V]]:
    """Those that are to go where there are more than ``limit``."""
    return list(islice(held.items(), 1 + limit // _AT_ONCE))
