"""The real program in a process of its own, and the browser that looks at it: for tests and benchmarks."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
"""What it may be called."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
STARTS_WITHIN = 120
"""Seconds, which other tests on the same cores may take most of."""


@contextmanager
def served(dsn: str, port: int = 0) -> Iterator[str]:
    """The address of ``foreshock serve`` on a port (0: a free one) for the length of the block."""
    with TemporaryDirectory(prefix="fs") as folder, program(dsn, Path(folder), "--port", str(port)) as (_, address):
        yield address


@contextmanager
def program(dsn: str, data_dir: Path, *options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process of ``foreshock serve`` and its address for the length of the block, in which it may be killed."""
    kept = {f"FORESHOCK_{what}_RETENTION_DAYS": "4000" for what in ("CHANGES", "CALLS", "REQUESTS", "SAMPLES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", *options],
        env={**os.environ, **kept, "DATABASE_URL": dsn, "FORESHOCK_DATA_DIR": str(data_dir), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, _address(process)
    finally:
        process.terminate()
        process.communicate(timeout=20)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], STARTS_WITHIN)
    line = process.stdout.readline() if ready else ""
    found = re.search(r"https?://127\.0\.0\.1:\d+", line)
    assert found, f"the program did not say where it is: {line!r}"
    return found[0]
