"""What fails now and then, and what does not fit."""

from __future__ import annotations

import random

import pytest

from tests.lab.api import Json
from tests.lab.apps import Container
from tests.lab.families.stories import Flaky


def pod(name: str, *, node: str = "a", phase: str = "Running") -> Json:
    meta, spec = {"namespace": "shop", "name": name, "uid": name}, {"containers": [{"image": "web:1.0.0"}]}
    return {"metadata": meta, "spec": {**spec, "nodeName": node}, "status": {"phase": phase}}


@pytest.mark.parametrize(("share", "unready"), [(0.0, 0), (1.0, 8)])
def test_a_container_is_unready_after_three_probes_in_a_row_that_failed(share: float, unready: int) -> None:
    flaky, container = Flaky(random.Random(1)), Container(pod("one"), "1.0.0", {}, {})
    found = [flaky.probe(container, share, "late") for _ in range(10)]
    assert sum(one is not None for one in found) == unready
    assert flaky.probe(container, 0.0, "late") is None
