"""Runs the benchmarks on a PostgreSQL of their own and ends with 1 when a gate does not hold."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from pathlib import Path

import uvloop
from sqlalchemy.ext.asyncio import AsyncEngine

from app.store import embedded
from app.store.database import open_database
from app.store.migrate import migrate
from app.store.scratch import create_database
from bench import store
from bench.browser import browser
from bench.control_plane import control_plane
from bench.gates import Gate
from bench.imports import imports
from bench.memory import memory
from bench.notify import slack
from bench.own import postgres
from bench.pages import pages
from bench.ranking import ranking
from bench.remote_write import remote_write

PAIRS = 15
WRITES = {400: 8 * PAIRS, 2_000: 4 * PAIRS, 10_000: 2 * PAIRS}
"""Rows a batch, and how often. 400 are an API server's audit batch."""
GATED = 10_000
"""What an import writes at a time, and who follows a cluster under load: fewer are printed (docs/performance.md)."""
NAMES = tuple(
    f"bench_{name}" for name in ("ours", "raw", "storage", "import", "pages", "browser", "samples", "plane", "slack")
)
SIZES = [1_000_000]
LARGE = [1_000_000, 10_000_000]
"""With --large."""


PARTS = ("writes", "storage", "imports", "memory", "pages", "browser", "remote-write", "control-plane", "slack")
"""What can be run by itself. Pages and rankings are measured on the same rows."""


async def run(dsns: list[str], folder: Path, *, parts: Sequence[str], sizes: list[int]) -> list[Gate]:
    opened = [open_database(dsn) for dsn in dsns]
    engines: list[AsyncEngine] = [database.write for database in opened]
    gates = []
    for table, (size, pairs) in product(("changes", "requests"), WRITES.items() if "writes" in parts else ()):
        gate = await store.write_step(engines[0], engines[1], (dsns[0], dsns[1]), table=table, size=size, pairs=pairs)
        gates += [gate] if size >= GATED else []
    if "storage" in parts:
        gates += await store.storage(engines[2])
    if "imports" in parts:
        gates += await imports(opened[3], dsns[3], folder)
    if "memory" in parts:
        gates += await asyncio.to_thread(memory, dsns[3])
    if "pages" in parts:
        gates += await pages(opened[4], sizes)
        gates += await ranking(opened[4], dsns[4], changes=sizes[-1])
    others: dict[str, Callable[[], Awaitable[list[Gate]]]] = {
        "browser": lambda: browser(opened[5], dsns[5]),
        "remote-write": lambda: remote_write(opened[6], dsns[6]),
        "control-plane": lambda: control_plane(opened[7]),
        "slack": lambda: slack(opened[8], dsns[8]),
    }
    for part, measured in others.items():
        gates += await measured() if part in parts else []
    for database in opened:
        await database.close()
    return gates


def main() -> int:
    parser = ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--large", action="store_true", help="with ten million changes: twenty minutes more, 12 GB of disk"
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="this part alone; may be given several times")
    asked = parser.parse_args()
    with postgres() as server:
        dsns = []
        for name in NAMES:
            create_database(server.dsn, name)
            dsns.append(server.dsn.replace(f"/{embedded.DATABASE}?", f"/{name}?"))
            migrate(dsns[-1])
        sizes = LARGE if asked.large else SIZES
        gates = uvloop.run(run(dsns, server.folder, parts=asked.only or PARTS, sizes=sizes))
    for gate in gates:
        print(gate)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
