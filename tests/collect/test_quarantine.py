"""Secrets cut anywhere, printed in any way, through a real import: no value of theirs lies in quarantine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.collect.test_importer import AUDIT as GOOD_AUDIT
from tests.collect.test_importer import WATCH as GOOD_WATCH
from tests.collect.test_importer import Lab, lab, stamp
from tests.core.objects.test_excerpts import AUDIT, SECRET, VALUES, WATCH, leaks, printed

__all__ = ["lab"]

TIMES = {"requestReceivedTimestamp": stamp(1), "stageTimestamp": stamp(1)}
EVENTS = {"audit": (AUDIT | TIMES, GOOD_AUDIT), "watch": ({"at": stamp(1), **WATCH}, GOOD_WATCH)}


async def kept(lab: Lab) -> tuple[int, set[str]]:
    """How many lines are in quarantine, and which pieces of secret values stand anywhere in their rows."""
    rows = await lab.rows("quarantine", "source, reason, excerpt")
    return len(rows), {leak for row in rows for text in row for leak in leaks(text)}


@pytest.mark.parametrize("name", EVENTS)
async def test_a_secret_cut_at_any_byte_leaves_no_value(lab: Lab, tmp_path: Path, name: str) -> None:
    event, good = EVENTS[name]
    whole = json.dumps(event)
    cuts = [whole[:n] for n in range(1, len(whole))] + [whole[n:] for n in range(1, len(whole))]
    (tmp_path / "log").write_text(good + "\n".join(cuts) + "\n" + good)
    report = await lab.imported(tmp_path / "log")
    count, leaked = await kept(lab)
    assert leaked == set()
    assert count == report.tally.rejects > len(whole)
    assert {leak for problem in report.problems for leak in leaks(problem)} == set()


@pytest.mark.parametrize("name", EVENTS)
async def test_a_printed_secret_cut_at_any_line_leaves_no_value(lab: Lab, tmp_path: Path, name: str) -> None:
    event, good = EVENTS[name]
    for number, form in enumerate(printed(event)):
        lines = form.splitlines()
        for cut in range(len(lines)):
            (tmp_path / "log").write_text(good + "\n".join(lines[:cut]) + "\n" + good)
            await lab.imported(tmp_path / "log")
            if number == 2:  # one indentation is enough for the many
                (tmp_path / "log").write_text("\n".join(lines[cut:]) + "\n" + good)
                await lab.imported(tmp_path / "log")
    count, leaked = await kept(lab)
    assert count > 100
    assert leaked == set()


async def test_a_dump_of_secrets_that_is_cut_leaves_no_value(lab: Lab, tmp_path: Path) -> None:
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": [SECRET, "x", {**SECRET, "metadata": 7}]}, indent=4)
    for number in range(60, len(text), 97):
        (tmp_path / "dump").write_text(text[:number])
        await lab.imported(tmp_path / "dump")
    (tmp_path / "dump").write_text(text)
    await lab.imported(tmp_path / "dump")
    count, leaked = await kept(lab)
    assert count > 10
    assert leaked == set()


def test_the_values_are_ones_that_no_look_gives_away() -> None:
    assert leaks(json.dumps({"note": VALUES[-1]}))
