"""Settings that are dealt over families: what to record, and what came of each setting (docs/lab.md).

``python -m tests.lab.varied deal --joined 69 70`` prints a line for each family; ``python -m tests.lab.varied tell
FILE`` makes tables of what ``foreshock evaluate --json`` wrote of the recordings.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from app.core.evaluation.accuracy import Rank, accuracy, auroc
from tests.lab.scenario import load

DISTRACTORS = (1, 20, 100)
"""Harmless changes an hour of compressed time."""
DELAYS = (0, 8, 20)
"""Seconds, which are minutes of compressed time, as all that follow."""
LAGS = (0, 10)
SHIFTS = (0, -15, 5, -5, 15)
_SETTING = re.compile(r"-(distractors|lag|delay|shift)(-?\d+)")


def varied(names: Iterable[str], seed: int) -> list[tuple[str, str]]:
    """Of each family, in an order that says nothing of it, the folder to record into, and the arguments.

    Any two of distractors, delay and shift are crossed, so that a value of one goes with all values of the others, and
    each value occurs about as often as the others of its setting however soon one stops."""
    dealt = []
    order = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    for turn, name in enumerate(order):
        distractors = DISTRACTORS[turn % 3]
        delay = DELAYS[turn // 3 % 3]
        lag = LAGS[turn // 9 % 2]
        shift = SHIFTS[turn % 5]
        folder = f"{name}-distractors{distractors}-lag{lag}-delay{delay}-shift{shift}"
        options = f"--distractors {distractors} --lag {lag} --alert-delay {delay} --alert-shift {shift}"
        dealt.append((folder, f"{name} --seed {seed} {options}"))
    return dealt


def told(verdicts: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines of a table: for each value of each setting how the rankings at the alert did."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for verdict in verdicts:
        if verdict["when"] == "alert":
            for setting, value in _SETTING.findall(verdict["name"]):
                groups[setting, int(value)].append(verdict)
    yield "| setting | with a culprit | AC@1 | AC@3 | without | AUROC |"
    yield "|---|---|---|---|---|---|"
    for (setting, value), group in sorted(groups.items()):
        ranks = [Rank(int(one["rank"]) - 1) if one["rank"] else None for one in group if one["has_culprit"]]
        apart = auroc(
            [one["none_of_these"] for one in group if one["has_culprit"]],
            [one["none_of_these"] for one in group if not one["has_culprit"]],
        )
        yield _row(f"{setting} {value}", ranks, len(group) - len(ranks), apart)


def _row(setting: str, ranks: list[Rank | None], without: int, apart: float | None) -> str:
    figures = accuracy(ranks)
    shares = [
        f"{share:.2f} [{low:.2f} {high:.2f}]"
        for share, (low, high) in ((figures.ac1, figures.ac1_interval), (figures.ac3, figures.ac3_interval))
    ]
    return (
        f"| {setting} | {len(ranks)} | {' | '.join(shares)} | {without} | {'' if apart is None else f'{apart:.2f}'} |"
    )


def main() -> None:
    """Print what to record, a line each: its folder, and the arguments; or the tables."""
    parser = argparse.ArgumentParser(prog="tests.lab.varied", description="Settings that are dealt over families.")
    commands = parser.add_subparsers(dest="command", required=True)
    deal = commands.add_parser("deal", help="print what to record")
    deal.add_argument("--joined", type=int, nargs="+", required=True, help="of the families that joined then")
    deal.add_argument("--seed", type=int, default=1)
    tell = commands.add_parser("tell", help="print the tables")
    tell.add_argument("file", type=Path, help="what foreshock evaluate --json wrote")
    given = parser.parse_args()
    if given.command == "tell":
        print("\n".join(told(json.loads(given.file.read_text())["verdicts"])))
        return
    names = [one.name for one in load().values() if one.joined in given.joined]
    for folder, options in varied(names, given.seed):
        print(folder, options)


if __name__ == "__main__":
    main()
