"""Prints what Foreshock is built of, part by part (CycloneDX): what uv has locked, and what lies in static/vendor."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VENDOR = ROOT / "static" / "vendor"
UV = Path(sys.executable).with_name("uv")
EXPORT = ("export", "--quiet", "--frozen", "--no-dev", "--format", "cyclonedx1.5", "--preview-features", "sbom-export")
ROW = re.compile(
    r"\| (?P<file>\S+) \| npm (?P<name>\S+) \(\S+\) \| (?P<version>\S+) \| (?P<licence>\S+) "
    r"\| (?P<sha256>[0-9a-f]{64}) \|"
)
"""Of a file made by others, as VENDOR.md has it."""


def vendored() -> Iterator[dict[str, Any]]:
    """The files of static/vendor as components."""
    for row in ROW.finditer((VENDOR / "VENDOR.md").read_text()):
        yield {
            "type": "library",
            "bom-ref": f"vendored:{row['file']}",
            "name": row["name"],
            "version": row["version"],
            "purl": f"pkg:npm/{row['name']}@{row['version']}",
            "licenses": [{"license": {"id": row["licence"]}}],
            "hashes": [{"alg": "SHA-256", "content": row["sha256"]}],
        }


def listed() -> dict[str, Any]:
    """The whole list."""
    done = subprocess.run([UV, *EXPORT], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)  # noqa: S603 - what it runs is ours
    found: dict[str, Any] = json.loads(done.stdout)
    found["components"] += vendored()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(listed(), indent=2) + "\n")
