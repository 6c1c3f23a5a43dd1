"""What Foreshock is built on: locked with hashes, listed part by part, and held against what is known to be broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
AUDIT = ("audit", "--frozen", "--preview-features", "audit-command")
UNREACHED = "error sending request"
"""What uv says where osv.dev does not answer."""


def locked() -> list[dict[str, Any]]:
    return list(tomllib.loads((ROOT / "uv.lock").read_text())["package"])


def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([UV, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def without_hash(packages: list[dict[str, Any]]) -> list[str]:
    """Packages of which a file could be another one than was locked."""
    found = []
    for one in packages:
        files = [*one.get("wheels", ()), *([one["sdist"]] if "sdist" in one else ())]
        hashed = [re.fullmatch("sha256:[0-9a-f]{64}", file.get("hash", "")) for file in files]
        ours = one["source"] == {"editable": "."}
        if not ours and not (files and all(hashed) and "registry" in one["source"]):
            found.append(str(one["name"]))
    return found


def test_every_file_that_may_be_installed_is_locked_by_its_hash(
    record_property: Callable[[str, object], None],
) -> None:
    packages = locked()
    assert len(packages) > 60
    assert without_hash(packages) == []
    record_property("packages locked with hashes", len(packages) - 1)
    broken = [{"name": "x", "source": {"registry": "y"}, "wheels": [{"url": "z"}]}]
    assert without_hash(broken) == ["x"]
    assert without_hash([{"name": "x", "source": {"git": "https://y"}}]) == ["x"]


def test_the_lock_is_that_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (ours,) = [one for one in locked() if one["source"] == {"editable": "."}]
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    wanted = {_named(one) for one in (*project["dependencies"], *extras)}
    told = {_named(f"{one['name']}{one.get('specifier', '')}") for one in ours["metadata"]["requires-dist"]}
    assert told == wanted


def _named(requirement: str) -> tuple[str, frozenset[str]]:
    """A name and its bounds; extras stand elsewhere in a lock."""
    found = re.fullmatch(r"([\w.-]+?)(?:\[[^\]]*\])?([<>=!~].*)?", requirement.replace(" ", ""))
    assert found, requirement
    return found[1].lower().replace("_", "-"), frozenset((found[2] or "").split(","))


def test_every_part_is_listed(record_property: Callable[[str, object], None]) -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "sbom.py"], capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout)
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    assert len({one["bom-ref"] for one in listed["components"]}) == len(listed["components"])
    parts = {one["name"]: one for one in listed["components"] if one["purl"].startswith("pkg:pypi/")}
    versions = {one["name"]: one.get("version") for one in locked()}
    assert {"fastapi", "sqlalchemy", "psycopg", "cryptography", "starlette", "jinja2"} <= parts.keys()
    assert {name for name, one in parts.items() if one["version"] != versions[name]} == set()
    vendored = [one for one in listed["components"] if one["name"] not in parts]
    files = {
        sha256(path.read_bytes()).hexdigest() for path in (ROOT / "static" / "vendor").iterdir() if path.suffix != ".md"
    }
    assert {one["hashes"][0]["content"] for one in vendored} == files, "what others made and lies in static/vendor"
    (htmx,) = vendored
    assert htmx["purl"] == f"pkg:npm/htmx.org@{htmx['version']}"
    script = (ROOT / "static" / "vendor" / "htmx.min.js").read_text()
    assert f'"{htmx["version"]}"' in script, "the version that the file itself says"
    assert not {"pytest", "schemathesis", "mypy"} & parts.keys(), "what only tests need is no part"
    record_property("parts listed (CycloneDX)", len(listed["components"]))


@pytest.mark.security
def test_nothing_of_it_is_known_to_be_vulnerable(record_property: Callable[[str, object], None]) -> None:
    done = uv(*AUDIT)
    if UNREACHED in done.stderr:
        why = done.stderr.strip().splitlines()
        record_property("known vulnerabilities", "NOT ASKED: osv.dev cannot be reached")
        pytest.skip(f"osv.dev cannot be reached: {why[-1].strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    record_property("known vulnerabilities", "0")
