"""Recordings copied, each with a change made to the copy."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path


def copy_each(source: Path, target: Path, change: Callable[[Path], None], *, having: str) -> None:
    """Every recording under ``source`` that has the file ``having``; ``change`` is given the copy. Prints its name."""
    found = sorted(path.parent for path in source.glob("**/label.json") if (path.parent / having).exists())
    if not found:
        sys.exit(f"{source}: no recording with {having} in it")
    for recording in found:
        copy = target / recording.relative_to(source)
        shutil.copytree(recording, copy)
        change(copy)
        print(recording.relative_to(source))


def main(change: Callable[[Path], None], *, having: str) -> None:
    """The same, of the two folders that the command line names."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {Path(sys.argv[0]).name} FROM TO")
    copy_each(Path(sys.argv[1]), Path(sys.argv[2]), change, having=having)
