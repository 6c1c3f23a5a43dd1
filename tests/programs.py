"""Programs of others that a test runs: found where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

import httpx2
import pytest

THANOS = "TEST_THANOS"  # not FORESHOCK_: the program refuses what begins so and is no setting
SCRAPED = "TEST_SCRAPED"
WITHIN = 180
"""Seconds that a thing may take which takes one."""


def found(*names: str, package: str) -> str:
    """The path of the first of these programs. Without one the test is skipped, and fails in CI."""
    return _found(names, f"{names[0]} is not installed (Debian: apt-get install {package})")


def found_thanos() -> str:
    """As ``found``, of a Thanos: no distribution has it."""
    return _found(
        [os.environ.get(THANOS, "")], f"{THANOS} is not set: tests/thanos/build.sh builds it and prints its path"
    )


def found_scraped(name: str) -> str:
    """As ``found``, of a program that is built to be scraped: coredns or controller."""
    return _found(
        [str(Path(os.environ.get(SCRAPED, "")) / name)],
        f"{SCRAPED} is not set: tests/cluster/scraped/build.sh builds {name} and prints its folder",
    )


def _found(names: Iterable[str], message: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
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
def running(*command: str, address: str, folder: Path, flag: str = "--web.listen-address") -> Iterator[str]:
    """Where a Prometheus, or what is started and asked as one, is ready, for the length of the block; ``folder``/log is
    what it says, ``flag`` how it is told its address."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"{flag}={address}"], stdout=log, stderr=log)
    try:
        wait_for(lambda: httpx2.get(f"http://{address}/-/ready").status_code == 200)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=20)
