"""What the laboratory's mesh does to load, and to pods of Jobs."""

from __future__ import annotations

import pytest

from tests.lab.families.meshes import too_late, tries


@pytest.mark.parametrize(
    ("timeout", "retries", "times"),
    [
        pytest.param(0.8, 2, 1.0, id="hardly any answer is late"),
        pytest.param(0.8, 8, 1.0, id="nor are there more calls because there may be"),
        pytest.param(0.15, 0, 1.0, id="late answers alone make no load"),
        pytest.param(0.15, 5, 5.0, id="late answers that are asked for again do, until all are late"),
    ],
)
def test_retries_make_load_where_answers_are_late(timeout: float, retries: int, times: float) -> None:
    load = 150.0
    for _ in range(40):
        load = 150.0 * tries(too_late(load, 300, 0.06, timeout), retries)
    assert load == pytest.approx(150.0 * times, rel=0.2)
