"""What a process leaves of itself when it crashes: nothing. In its memory are secrets that stand nowhere else."""

from __future__ import annotations

import resource


def leave_none() -> None:
    """No core file, of this process and those that it starts. What the system pipes dumps to (``core_pattern``) is the
    system's own affair: core(5)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
