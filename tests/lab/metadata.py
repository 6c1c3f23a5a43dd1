"""Recordings as an audit policy without bodies would have them: `python -m tests.lab.metadata FROM TO`.

Level Metadata leaves out what a request asked and what it was answered, and nothing else:
https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/#audit-policy .
"""

from __future__ import annotations

import gzip
import shutil
import sys
from pathlib import Path
from typing import Any

import orjson

LOG = "audit.jsonl.gz"


def without_bodies(event: dict[str, Any]) -> dict[str, Any]:
    """An audit event at level Metadata."""
    kept = {key: value for key, value in event.items() if key not in ("requestObject", "responseObject")}
    return kept | {"level": "Metadata"}


def strip(source: Path, target: Path) -> None:
    """Copies one recording, its audit log, and those of before, without bodies."""
    shutil.copytree(source, target)
    for log in target.glob(f"**/{LOG}"):
        lines = gzip.decompress(log.read_bytes()).splitlines()
        told = b"".join(orjson.dumps(without_bodies(orjson.loads(line))) + b"\n" for line in lines)
        log.write_bytes(gzip.compress(told))


def main(source: Path, target: Path) -> None:
    """Every recording under ``source``."""
    found = sorted(path.parent for path in source.glob("**/label.json") if (path.parent / LOG).exists())
    if not found:
        sys.exit(f"{source}: no recording with an audit log in it")
    for recording in found:
        strip(recording, target / recording.relative_to(source))
        print(recording.relative_to(source))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tests.lab.metadata FROM TO")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
