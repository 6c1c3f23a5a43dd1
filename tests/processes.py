"""Whether a process of a test's still runs."""

from __future__ import annotations

import os
from pathlib import Path


def runs(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        if not Path("/proc").exists():
            return True
        # State comes after the name, which is in brackets and may hold some itself: proc_pid_stat(5).
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # The second also where it ended between opening and reading.
        return False
