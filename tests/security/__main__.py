"""Prints what ``make security`` runs: every test that shows a promise of docs/security.md, by the page itself."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def tests() -> list[str]:
    """Files and folders that the page names, each once, in the order of the page."""
    return list(dict.fromkeys(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", PAGE.read_text())))


if __name__ == "__main__":
    sys.stdout.write(" ".join(tests()) + "\n")
