"""A cluster that is well while everybody works: ``python -m tests.lab.quiet --minutes 45 --out FOLDER``.

What opens an incident by itself should find nothing in it (docs/incidents.md, bench/suspected.py).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from tests.lab.lab import Lab, Variation
from tests.lab.record import Recorder, laboratory, robots, settled
from tests.lab.scenario import Family


async def _nothing(_lab: Lab) -> AsyncIterator[None]:
    yield


async def record(variation: Variation, out: Path, *, seconds: float) -> None:
    """As tests.lab.record does, but of no incident. Raises NotRecordedError, RefusedError."""
    family = Family("quiet", "Nothing but the company's work.", _nothing, culprit=False)
    with tempfile.TemporaryDirectory(prefix="fs-lab-") as folder:
        async with laboratory(family, variation, Path(folder)) as lab:
            await settled(lab)
            await robots(lab)
            await Recorder(lab, family, out).quiet(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.lab.quiet", description="Record a cluster that is well.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--distractors", type=float, default=40, help="harmless changes a minute")
    given = parser.parse_args()
    asyncio.run(record(Variation(given.seed, given.distractors), given.out, seconds=60 * given.minutes))


if __name__ == "__main__":
    main()
