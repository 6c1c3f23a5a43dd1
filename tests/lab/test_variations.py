"""What a recording leaves out because its options say so, and how often the company changes something."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.control_plane import BARE, CONTROLLERS
from tests.cluster.programs import found
from tests.lab import company, record
from tests.lab.lab import Lab, Variation
from tests.lab.scenario import load
from tests.lab.test_record import lines, with_a_week_before

FAMILY = "config-value"


class DoneError(Exception):
    """So much time has passed."""


def test_a_recording_leaves_out_what_its_options_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in (*BARE, *CONTROLLERS):
        found(program)
    monkeypatch.setattr(record, "load", lambda: {FAMILY: with_a_week_before(load()[FAMILY])})
    # What it is recorded for is not looked at here: it need not be calm for long.
    for name, seconds in {"OLD_SECONDS": 1, "CALM_SECONDS": 2, "CALM_VARIES": 1, "AFTER_SECONDS": 1}.items():
        monkeypatch.setattr(record, name, seconds)
    options = f"{FAMILY} --seed 3 --audit none --no-metrics --distractors 5 --out {tmp_path / 'out'}"
    monkeypatch.setattr("sys.argv", ["record", *options.split()])
    assert record.main() == 0

    files = {str(path.relative_to(tmp_path / "out")) for path in tmp_path.rglob("*") if path.is_file()}
    before = {"before/1/watch.jsonl.gz", "before/1/past.json", "before/2/watch.jsonl.gz", "before/2/past.json"}
    assert files == {
        "watch.jsonl.gz",
        "state.json.gz",
        "alerts.json",
        "label.json",
        *before,
        "before/2/alerts.json",
    }
    label = json.loads((tmp_path / "out" / "label.json").read_text())
    varied = {key: label[key] for key in ("seed", "audit", "metrics", "app_metrics", "distractors_per_hour")}
    assert varied == {"seed": 3, "audit": "none", "metrics": False, "app_metrics": False, "distractors_per_hour": 5}
    # The answer is known all the same, and what is watched shows it.
    culprit = label["culprit"]
    assert (culprit["kind"], culprit["namespace"], culprit["name"]) == ("ConfigMap", "search", "indexer")
    seen = [
        one
        for one in lines(tmp_path / "out" / "watch.jsonl.gz")
        if one["type"] == "MODIFIED" and one["object"]["kind"] == "ConfigMap"
        if one["object"]["metadata"]["name"] == "indexer" and one["object"]["data"]["TIMEOUT_MS"] == "1500ms"
    ]
    assert seen
    assert json.loads((tmp_path / "out" / "alerts.json").read_text())["alerts"]


def changes_within(monkeypatch: pytest.MonkeyPatch, distractors: float, *, seconds: float) -> int:
    """How many the company makes in that time, which passes at once."""
    made, passed = 0, 0.0

    async def change(_lab: Lab) -> None:
        nonlocal made
        made += 1

    async def sleep(pause: float) -> None:
        nonlocal passed
        passed += pause
        if passed > seconds:
            raise DoneError

    monkeypatch.setattr(company, "CHANGES", [change])
    monkeypatch.setattr(company, "asyncio", SimpleNamespace(sleep=sleep))
    lab: Any = SimpleNamespace(variation=Variation(distractors=distractors), rng=random.Random(1))
    with pytest.raises(DoneError):
        asyncio.run(company.work(lab))
    return made


@pytest.mark.parametrize("distractors", [1, 40, 100])
def test_the_company_makes_so_many_changes_a_minute(monkeypatch: pytest.MonkeyPatch, distractors: int) -> None:
    minutes = 400
    made = changes_within(monkeypatch, distractors, seconds=60 * minutes)
    assert made / minutes == pytest.approx(distractors, rel=0.1)
