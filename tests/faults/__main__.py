"""Tries every fault, prints what became of each, and ends with 1 where a promise was not kept.

``--quick`` shortens what is only a wait; ``--only NAME`` tries those whose names begin so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from itertools import groupby

from tests.cluster.checker import Verdict
from tests.cluster.programs import ASSETS
from tests.faults.plan import Fault, faults
from tests.faults.stand import standing
from tests.faults.trial import Result, tried

HEAD = "| fault | writes | lost | in gaps | twice | made up | out of order | other state | blind | caught up | |"
SHOWN = 3
"""Examples of what is wrong."""


def row(result: Result) -> str:
    """One line of the table."""
    v = result.verdict
    blind = f"{result.blind_seconds:.0f} s" if result.blind_seconds else "–"
    caught_up = "never" if result.caught_up is None else f"{result.caught_up:.0f} s"
    said = "; ".join((*result.notes, *(f"**{what}**" for what in result.broken)))
    counts = (len(v.lost), len(v.unseen), len(v.doubled), len(v.phantoms), len(v.disordered), len(v.differing))
    return f"| {result.fault} | {v.writes} | {' | '.join(map(str, counts))} | {blind} | {caught_up} | {said} |"


def wrong(verdict: Verdict) -> list[str]:
    """Some of what is wrong, to look for."""
    found: list[tuple[str, Sequence[object]]] = [
        ("lost", verdict.lost),
        ("twice", verdict.doubled),
        ("made up", verdict.phantoms),
        ("out of order", verdict.disordered),
        ("other state", verdict.differing),
    ]
    return [f"  {what}: {one}" for what, some in found for one in some[:SHOWN]]


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    asked.add_argument("--quick", action="store_true", help="shorten what is only a wait")
    asked.add_argument("--only", default="", metavar="NAME", help="those whose names begin so")
    options = asked.parse_args()
    plan = [fault for fault in faults(quick=options.quick) if fault.name.startswith(options.only)]
    if not plan:
        names = ", ".join(fault.name for fault in faults(quick=True))
        print(f"no fault begins with {options.only!r}; there are: {names}", file=sys.stderr)
        return 2
    if not os.environ.get(ASSETS):
        print(
            f"{ASSETS} is not set: tests/cluster/build.sh builds a control plane and prints its folder", file=sys.stderr
        )
        return 2
    print(HEAD + "\n" + "|---" * HEAD.count(" | ") + "|", flush=True)
    results = [result for _, group in groupby(plan, lambda fault: fault.place) for result in _try(list(group))]
    return int(not all(result.holds for result in results))


def _try(group: list[Fault]) -> list[Result]:
    """Those that stand in one place."""
    results = []
    with standing(
        flags=group[0].place.flags, mounts=dict(group[0].place.mounts), **dict(group[0].place.environment)
    ) as stand:
        for fault in group:
            began = time.monotonic()
            result = tried(stand, fault.name, fault.recipe, patience=fault.patience, no_sets=fault.no_sets)
            results.append(result)
            print(row(result), flush=True)
            for line in () if result.holds else wrong(result.verdict):
                print(line, file=sys.stderr)
            took = time.monotonic() - began
            print(f"{fault.name}: {took:.0f} s, {'holds' if result.holds else 'FAILS'}", file=sys.stderr, flush=True)
            if not result.holds:
                print(stand.program.log.read_text(errors="replace")[-3000:], file=sys.stderr)
    return results


if __name__ == "__main__":
    sys.exit(main())
