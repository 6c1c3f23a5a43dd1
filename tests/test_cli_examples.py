"""The examples of docs/cli.md: what is pasted from there works, in a shell, against the real program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.client.conftest import Asked, site  # noqa: F401 - the fixture
from tests.test_api_examples import kind, steps
from tests.test_cli import environment

DOC = (Path(__file__).parents[1] / "docs" / "cli.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)
MARK = "-- next --"
TITLES = ("TIME", " # ODDS", "CALLS", "Deployment ")


def test_every_command_works_and_prints_what_the_page_says(site: Asked, tmp_path: Path) -> None:  # noqa: F811
    told = [step for block in BLOCKS for step in steps(block)]
    assert {command.split()[1] for command, _ in told if command.startswith("foreshock")} == {
        "what-changed", "incident", "suspects", "diff", "who-calls", "changes", "export",
    }  # fmt: skip
    script = ["set -eu", f'foreshock() {{ "{sys.executable}" -m app "$@"; }}']
    script += [line for command, _ in told for line in (command, f"echo '{MARK}'")]
    done = subprocess.run(
        ["sh", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment(**site.variables(), PYTHONPATH=str(Path(__file__).parents[1])),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [part.strip("\n").splitlines() for part in done.stdout.split(f"{MARK}\n")[:-1]]
    for (command, shown), lines in zip(told, printed, strict=True):
        assert bool(shown) == bool(lines), command
        assert [line for line in shown if line.startswith(TITLES) and line not in lines] == [], command
        assert kind(shown[0]) == kind(lines[0]) if shown else True, command
