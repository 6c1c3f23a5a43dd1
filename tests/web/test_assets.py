"""What the browser loads comes from us, is what VENDOR.md says, and is named by its content."""

from __future__ import annotations

import gzip
import re
from hashlib import sha256
from pathlib import Path

import pytest

from app.web.assets import STATIC
from app.web.templates import TEMPLATES, environment

LISTED = re.findall(r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", (STATIC / "vendor/VENDOR.md").read_text(), re.MULTILINE)
SOURCES = sorted(TEMPLATES.rglob("*.html"))


def test_every_vendored_file_is_listed_and_unchanged() -> None:
    there = {path.name: sha256(path.read_bytes()).hexdigest() for path in (STATIC / "vendor").glob("*.*s")}
    assert there == dict(LISTED)
    assert there


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_templates_keep_to_the_policy(path: Path) -> None:
    text = path.read_text()
    assert not re.search(
        r"\|\s*safe\b|autoescape\s+false|<style|\sstyle=|\son[a-z]+=|hx-on|js:|https?://(?!www\.w3\.org)", text
    )
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)


def test_the_address_of_an_asset_changes_with_its_content() -> None:
    address = environment().from_string("{{ asset('icon.svg') }}").render()
    digest = sha256((STATIC / "icon.svg").read_bytes()).hexdigest()
    assert address == f"/static/icon.svg?v={digest[:12]}"


def test_everything_the_first_page_loads_is_small() -> None:
    total = sum(
        len(gzip.compress(path.read_bytes(), 5)) for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".svg"}
    )
    assert total < 100_000
