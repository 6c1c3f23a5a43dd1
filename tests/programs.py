"""Programs of others that a test runs: found where they are installed."""

from __future__ import annotations

import os
import shutil

import pytest


def found(*names: str, package: str) -> str:
    """The path of the first of these programs. Without one the test is skipped, and fails in CI."""
    for name in names:
        if path := shutil.which(name):
            return path
    message = f"{names[0]} is not installed (Debian: apt-get install {package})"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
