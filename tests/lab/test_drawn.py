"""The lists that families are drawn from: in the order of their hashes, and every drawn family once."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.lab.scenario import load

LISTS = sorted(Path(__file__).with_name("drawn").glob("*.tsv"))
DRAWN_SINCE = 66
"""From this ``joined`` on families are drawn (docs/decisions/0045-tests-are-drawn-from-what-happens.md)."""


def rows(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text().splitlines()]


@pytest.mark.parametrize("file", LISTS, ids=lambda file: str(file.stem))
def test_lines_are_in_the_order_of_their_hashes(file: Path) -> None:
    told = rows(file)
    assert all(hashlib.sha256(f"{sort} {line}".encode()).hexdigest()[:12] == head for head, sort, _, line in told)
    assert all(a[0] < b[0] for a, b in pairwise(told))


def test_every_family_that_was_drawn_is_one_line_with_or_without_a_culprit_as_it_says() -> None:
    families = load()
    drawn = [(name, sort) for file in LISTS for _, sort, name, _ in rows(file) if name]
    assert all(families[name].culprit is (sort == "C") for name, sort in drawn)
    since = [one.name for one in families.values() if one.joined >= DRAWN_SINCE]
    assert sorted(name for name, _ in drawn) == since
