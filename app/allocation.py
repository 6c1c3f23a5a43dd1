"""Memory that is free goes back to the system: what a large object took for a moment is not kept for good.

glibc keeps large blocks that were freed in pools, one for each thread and more, and takes the next ones from there.
With 200 objects of a megabyte each `serve` had 540 to 614 MiB at most; now 430 to 440 (docs/reliability.md).
"""

from __future__ import annotations

import ctypes
import platform

# mallopt(3), /usr/include/malloc.h
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE = 128 << 10
"""Bytes of a block that is mapped by itself: glibc's default, which it would raise to the largest block ever freed."""
POOLS = 2
"""One is contended for by threads that mostly hold the interpreter's lock anyway."""


def give_back() -> None:
    """From now on, and in this process. Where the C library is another one, there is nothing to do."""
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, LARGE)
    libc.mallopt(M_ARENA_MAX, POOLS)
