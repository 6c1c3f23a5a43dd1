"""The program looks up many names at once, and may open as many files as its system lets it."""

from __future__ import annotations

import re
import resource
from pathlib import Path

from app.allowed import FILES, THREADS
from tests.programs import wait_for
from tests.serving import program

CLUSTERS = "clusters:\n- {name: shop, kubeconfig: /nowhere, alertmanager: {url: 'http://localhost:1'}}\n"
"""An Alertmanager whose name is looked up: libuv makes all its threads at the first lookup."""


def test_some_names_that_nobody_answers_for_keep_no_others_from_being_found(dsn: str, tmp_path: Path) -> None:
    """Nor is a process that may open few files left with those."""
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))  # what is started has it as well
    try:
        with program(dsn, tmp_path, "--port", "0") as (serving, _):
            of_it = Path(f"/proc/{serving.pid}")
            wait_for(lambda: len([*(of_it / "task").iterdir()]) >= THREADS)
            told = re.search(r"Max open files +(\d+)", (of_it / "limits").read_text())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert told
    assert int(told[1]) == (FILES if hard == resource.RLIM_INFINITY else min(FILES, hard))
