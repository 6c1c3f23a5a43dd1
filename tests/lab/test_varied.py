"""Settings are dealt evenly, and told apart by the names of the folders."""

from __future__ import annotations

import re
from collections import Counter

from tests.lab.record import arguments
from tests.lab.varied import DELAYS, DISTRACTORS, SHIFTS, told, varied

NAMES = [f"family-{number}" for number in range(45)]


def test_each_value_goes_with_each_of_the_others_as_often() -> None:
    dealt = [
        arguments(NAMES).parse_args([*options.split(), "--out", folder]) for folder, options in varied(NAMES, seed=4)
    ]
    assert sorted(one.scenario for one in dealt) == sorted(NAMES)
    assert {one.seed for one in dealt} == {4}
    pairs = Counter((one.distractors, one.alert_shift) for one in dealt)
    assert (len(pairs), set(pairs.values())) == (len(DISTRACTORS) * len(SHIFTS), {3})
    pairs = Counter((one.distractors, one.alert_delay) for one in dealt)
    assert (len(pairs), set(pairs.values())) == (len(DISTRACTORS) * len(DELAYS), {5})
    assert Counter(one.lag for one in dealt) == {0: 27, 10: 18}


def test_how_each_value_did_is_told_of_the_rankings_at_the_alert() -> None:
    folders = [folder for folder, _ in varied(NAMES, seed=1) if re.search("-distractors1-", folder)]
    verdicts = [
        {
            "name": folder,
            "when": when,
            "rank": None if when == "later" else 1.0,
            "has_culprit": folder != folders[0],
            "none_of_these": 0.9 if folder == folders[0] else 0.1,
        }
        for folder in folders
        for when in ("alert", "later")
    ]
    rows = {row.split(" | ")[0]: row for row in told(verdicts)}
    assert rows["| distractors 1"] == "| distractors 1 | 14 | 1.00 [0.78 1.00] | 1.00 [0.78 1.00] | 1 | 1.00 |"
    assert len([row for row in rows if row.startswith("| shift ")]) == len(SHIFTS)
