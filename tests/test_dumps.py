"""A crash of the real program leaves no memory on the disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.serving import program


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="only Linux tells the limits of another process")
def test_serve_leaves_no_core_file(dsn: str, tmp_path: Path) -> None:
    with program(dsn, tmp_path, "--port", "0") as (process, _):
        limits = Path(f"/proc/{process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE), limits
