"""Recordings as an audit policy without bodies would have them: `python -m tests.lab.metadata FROM TO`.

Level Metadata leaves out what a request asked and what it was answered, and nothing else:
https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/#audit-policy .
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson

from tests.lab.copied import main

LOG = "audit.jsonl.gz"


def without_bodies(event: dict[str, Any]) -> dict[str, Any]:
    """An audit event at level Metadata."""
    kept = {key: value for key, value in event.items() if key not in ("requestObject", "responseObject")}
    return kept | {"level": "Metadata"}


def strip(recording: Path) -> None:
    """Takes the bodies out of the audit log of a recording, and out of those of before."""
    for log in recording.glob(f"**/{LOG}"):
        lines = gzip.decompress(log.read_bytes()).splitlines()
        told = b"".join(orjson.dumps(without_bodies(orjson.loads(line))) + b"\n" for line in lines)
        log.write_bytes(gzip.compress(told))


if __name__ == "__main__":
    main(strip, having=LOG)
