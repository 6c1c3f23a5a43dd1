"""What a process holds of the system's memory after large blocks were freed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from app.allocation import LARGE

_PEAK_OVER = """
import sys
from pathlib import Path
from app.allocation import give_back
if sys.argv[1] == "gives back":
    give_back()
large, small = int(sys.argv[2]), int(sys.argv[3])
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
del [bytearray(large)][:]
before, kept = resident(), []
blocks = [(bytearray(large), kept.append(bytearray(small))) for _ in range(100)]
del blocks
print(resident() - before)
"""


def held(how: str) -> int:
    """Bytes more than before, once 100 blocks of a megabyte are freed between which small ones are kept."""
    command = [sys.executable, "-c", _PEAK_OVER, how, str(1 << 20), str(LARGE // 4)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_blocks_that_were_freed_go_back_to_the_system() -> None:
    kept = 100 * LARGE // 4
    assert held("as it is") > kept + (50 << 20)  # else there would be nothing to do
    assert held("gives back") < kept + (10 << 20)


_PAGES_FREE = """
import sys
from pathlib import Path
from app.allocation import trim
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before = resident()
blocks = [bytearray(8 << 10) for _ in range(10_000)]
kept = [*blocks[::100], blocks[-1]]
del blocks
free = resident() - before
trim()
print(free, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_pages_that_are_free_amid_what_is_kept_go_back_when_the_heap_is_trimmed() -> None:
    done = subprocess.run([sys.executable, "-c", _PAGES_FREE], capture_output=True, text=True, check=True)
    as_it_is, trimmed = map(int, done.stdout.split())
    assert as_it_is > 60 << 20  # else there would be nothing to do
    assert trimmed < 20 << 20
