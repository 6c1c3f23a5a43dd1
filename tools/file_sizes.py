"""Fails when a file of ours is longer than 500 lines, warns above 300: then it is two files."""

from __future__ import annotations

import sys
from pathlib import Path

WARN, FAIL = 300, 500
ROOT = Path(__file__).parents[1]
OURS = ("app/**/*.py", "tests/**/*.py", "bench/**/*.py", "tools/**/*.py", "templates/**/*.html", "static/*.*s")


def lengths(root: Path) -> dict[Path, int]:
    """Lines of every source file under ``root``."""
    return {path: len(path.read_text().splitlines()) for pattern in OURS for path in root.glob(pattern)}


def main(root: Path = ROOT) -> int:
    """Prints what is long, longest first; 1 when a file is too long."""
    found = lengths(root)
    for path, lines in sorted(found.items(), key=lambda item: -item[1]):
        if lines > WARN:
            print(f"{path.relative_to(root)}: {lines} lines" + (f", {FAIL} is the limit" if lines > FAIL else ""))  # noqa: T201
    return int(max(found.values(), default=0) > FAIL)


if __name__ == "__main__":
    sys.exit(main())
