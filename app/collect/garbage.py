"""What is read from clusters and logs lives for a batch and holds no cycles.

To look for them every 700 objects, as Python does, is a tenth of the work.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 100_000
"""Objects made, less those freed, between two looks for cycles."""


@contextmanager
def garbage_rarely() -> Iterator[None]:
    """Look for cycles of garbage every OBJECTS only."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def loaded_stays() -> Iterator[None]:
    """Look rarely, and never through what is loaded by now: modules stay for the life of the process, and to look
    through a quarter of a million objects stops every answer meanwhile."""
    gc.freeze()
    try:
        with garbage_rarely():
            yield
    finally:
        gc.unfreeze()
