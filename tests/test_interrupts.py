"""Ctrl-C while a command is being loaded."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PRESSED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "app.client":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("entry", ["app.__main__", "app.kubectl"])
def test_a_command_that_is_stopped_as_it_is_loaded_ends_without_a_traceback(entry: str) -> None:
    ended = run(f"{PRESSED}\nimport {entry}")
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("entry", ["app.__main__", "app.kubectl"])
@pytest.mark.parametrize("before", ["default_int_handler", "SIG_IGN"])
def test_once_it_is_loaded_ctrl_c_is_what_it_was(entry: str, before: str) -> None:
    held = f"signal.signal(signal.SIGINT, signal.{before})"
    ended = run(f"import signal; {held}; import {entry}; print(signal.getsignal(signal.SIGINT) is signal.{before})")
    assert ended.stdout == "True\n", ended.stderr
