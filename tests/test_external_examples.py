"""The examples of docs/external-changes.md: what is pasted from there works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_cli import Serving, environment, foreshock, serving

DOC = (Path(__file__).parents[1] / "docs" / "external-changes.md").read_text()


def blocks(language: str, *, of: str = DOC) -> list[str]:
    """The code blocks of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", of, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(dsn: str) -> Iterator[Serving]:
    with serving(DATABASE_URL=dsn) as started:
        yield started


def token(dsn: str) -> str:
    """A token as the page makes it, of a cluster that nothing is recorded of yet."""
    made = foreshock("token", "create", "--role", "changes", "--cluster", "shop", DATABASE_URL=dsn)
    return made.stdout.split()[-1]


@pytest.mark.skipif(shutil.which("curl") is None and "CI" not in os.environ, reason="curl is not installed")
def test_the_example_for_curl_tells_of_a_change(site: Serving, dsn: str) -> None:
    bearer = token(dsn)
    script = next(block for block in blocks("sh") if "route53" in block)
    told = environment(FORESHOCK_URL=site.url, FORESHOCK_TOKEN=bearer)

    def run(more: str) -> subprocess.CompletedProcess[str]:
        command = script.rstrip() + more
        return subprocess.run(["sh", "-c", command], env=told, capture_output=True, text=True, timeout=60, check=False)

    first, again = run(" -w '\\n%{http_code}'"), run(" -w '\\n%{http_code}'")
    assert first.stdout.splitlines()[-1:] == ["201"], first.stdout + first.stderr
    assert again.stdout.splitlines()[-1:] == ["200"]
    change = json.loads(first.stdout.splitlines()[0])["items"][0]
    assert change["resource"]["api_group"] == "external:route53"
    assert change["summary"] == "api.shop.example points to the new load balancer, by alice"
    assert site.get("/api/v1/changes", token=bearer) == 401  # it reads nothing
    assert "changes of shop" in foreshock("token", "list", DATABASE_URL=dsn).stdout
