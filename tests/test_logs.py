"""What is logged: whatever a text holds, it forges no line and drives no terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

HOSTILE = '"}\r\n{"level":"fake"}\x1b[31m\x9b\u2028'
PROGRAM = f"""
import logging, structlog
from app.logs import configure
configure("info")
text = {HOSTILE!r}
structlog.get_logger("own").warning("odd", path=text)
logging.getLogger("library").warning("said %s", text)
try:
    raise ValueError(text)
except ValueError:
    logging.getLogger("library").exception("failed")
"""
CONTROL = {*range(32), *range(127, 160), 0x2028} - {ord("\n")}


def test_a_line_is_an_entry_whatever_it_holds() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    assert [entry["level"] for entry in entries] == ["warning", "warning", "error"]
    assert not CONTROL & set(map(ord, done.stderr))


def test_a_terminal_is_told_in_printable_characters() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=theirs, env=environment):
        os.close(theirs)
        told = bytearray()
        while part := _read(ours):
            told += part
    os.close(ours)
    lines = told.decode().split("\r\n")  # a terminal writes a line break so
    assert not any(CONTROL & set(map(ord, line)) for line in lines)
    begins = [line for line in lines if line and not line.startswith("    ")]
    assert [line.split("[", 1)[1].split("]")[0].strip() for line in begins] == ["warning", "warning", "error"]


def _read(descriptor: int) -> bytes:
    """Nothing where the other end is closed, which Linux tells as an error."""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""
