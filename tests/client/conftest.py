"""`foreshock serve` on a port, over a real database with the made-up incident as if it were of the last minutes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from tests.test_api_examples import call, fill
from tests.test_cli import FORESHOCK, PATIENCE, environment, foreshock, serving

KUBECTL_FORESHOCK = [sys.executable, "-c", "from app.kubectl import main; main()"]


def run(command: list[str], *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *arguments], env=environment(**more), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A Foreshock that is asked at ``url``; ``tokens`` are files, by role."""

    url: str
    dsn: str
    tokens: dict[str, Path]
    shift: timedelta

    def variables(self, role: str = "viewer") -> dict[str, str]:
        return {"FORESHOCK_URL": self.url, "FORESHOCK_TOKEN_FILE": str(self.tokens[role])}

    def run(self, *arguments: str, role: str = "viewer", **more: str) -> subprocess.CompletedProcess[str]:
        """`foreshock` with these arguments, asking there as this role."""
        return run(FORESHOCK, *arguments, **{**self.variables(role), **more})

    def said(self, *arguments: str, role: str = "viewer", **more: str) -> str:
        """What it prints; it must end well, and say nothing beside."""
        done = self.run(*arguments, role=role, **more)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout


@pytest.fixture(scope="module")
def site(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    shift = asyncio.run(fill(dsn))
    asyncio.run(call(dsn, shift))
    tokens = {}
    for role in ("viewer", "responder"):
        file = tmp_path_factory.mktemp("tokens") / role
        file.touch(mode=0o600)
        file.write_text(foreshock("token", "create", "--role", role, DATABASE_URL=dsn).stdout.split()[-1] + "\n")
        tokens[role] = file
    with serving(DATABASE_URL=dsn) as started:
        yield Asked(started.url, dsn, tokens, shift)
