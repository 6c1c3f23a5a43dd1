"""Programs of others that a test runs: found where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

import httpx2
import pytest

WITHIN = 180
"""Seconds that a thing may take which takes one."""


def found(*names: str, package: str) -> str:
    """The path of the first of these programs. Without one the test is skipped, and fails in CI."""
    for name in names:
        if path := shutil.which(name):
            return path
    message = f"{names[0]} is not installed (Debian: apt-get install {package})"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def free_address() -> str:
    """A host and a port at which nobody listens."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def wait_for(met: Callable[[], bool]) -> None:
    """Until it is so; a refused connection means not yet."""
    until = time.monotonic() + WITHIN
    while time.monotonic() < until:
        try:
            if met():
                return
        except httpx2.ConnectError:
            pass
        time.sleep(0.2)
    pytest.fail(f"not so within {WITHIN} s")


@contextmanager
def running(*command: str, address: str, folder: Path) -> Iterator[str]:
    """Where a Prometheus or an Alertmanager is ready, for the length of the block; ``folder``/log is what it says."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        wait_for(lambda: httpx2.get(f"http://{address}/-/ready").status_code == 200)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=20)
