"""Paths that people write with a ~."""

from __future__ import annotations

from os.path import expanduser
from pathlib import Path


def at_home(path: str) -> Path:
    """With what ~ stands for. A ~ of nobody stays as it is, and is then a file that is not there: pathlib raises."""
    return Path(expanduser(path))  # noqa: PTH111
