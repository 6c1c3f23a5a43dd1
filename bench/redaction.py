"""How long it takes to look through a ConfigMap of 1 MiB for secrets: ``python -m bench.redaction``, ten seconds.

The worst text is the one that took longest of some thousand that were put together for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time

from app.core.objects.redact import Redactor

SIZE = 1 << 20
ROUNDS = 3


def _lines(line: Callable[[int], str]) -> str:
    """Lines up to SIZE bytes, each by its number."""
    found, size, number = [], 0, 0
    while size < SIZE:
        found.append(line(number))
        size, number = size + len(found[-1]) + 1, number + 1
    return "\n".join(found)[:SIZE]


TEXTS = {
    "each line holds a secret": _lines(lambda number: f"DB_PASSWORD_{number}=hunter2-{number:06d}"),
    "the worst": "a:" * (SIZE // 2 - 3) + "@tcp(",
    "nothing looks like a secret": _lines(lambda number: f"the {number}th line says what the one before it said, too"),
}


def seconds(redactor: Redactor, text: str) -> float:
    """Of a processor, for a ConfigMap with this text in it."""
    began = process_time()
    redactor.object("", "ConfigMap", {"kind": "ConfigMap", "data": {"file.conf": text}})
    return process_time() - began


def main() -> None:
    """Prints the quickest and the slowest of ROUNDS, of each text."""
    redactor = Redactor(b"a key of 32 bytes for this alone")
    for name, text in TEXTS.items():
        took = [seconds(redactor, text) for _ in range(ROUNDS)]
        sys.stdout.write(f"{name}: {min(took):.2f} to {max(took):.2f} s\n")


if __name__ == "__main__":
    main()
