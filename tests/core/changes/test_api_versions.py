"""Who writes an object in another version of its API than watches show it in: only what is compared alike is a diff."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from app.core.changes.sightings import Sighting
from app.core.model import Verb
from tests.core.learning import ALICE, an_object, audited, changes, learn, listed, seen

CPU = {"name": "cpu", "target": {"type": "Utilization"}}


def in_v2(number: int, percent: int, most: int = 9) -> Any:
    target = {**CPU["target"], "averageUtilization": percent}  # type: ignore[dict-item]
    metric = {"type": "Resource", "resource": {**CPU, "target": target}}
    spec = {"maxReplicas": most, "metrics": [metric]}
    return an_object("HorizontalPodAutoscaler", "web", version=number, api="autoscaling/v2", spec=spec)


def in_v1(number: int, percent: int, most: int = 9) -> Any:
    spec = {"maxReplicas": most, "targetCPUUtilizationPercentage": percent}
    return an_object("HorizontalPodAutoscaler", "web", version=number, api="autoscaling/v1", spec=spec)


WRITES: tuple[tuple[Sighting, Sighting], ...] = (
    (seen(in_v2(6, 70), 1.1), audited(in_v1(6, 70), 1, patch={"spec": {"targetCPUUtilizationPercentage": 70}})),
    (seen(in_v2(7, 70, 4), 2.1), audited(in_v1(7, 70, 4), 2, patch=in_v1(6, 70, 4))),
)


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_what_is_written_in_another_version_is_told_as_the_watch_shows_it(order: tuple[int, ...]) -> None:
    told = [one for pair in WRITES for one in pair]
    placed = [told[number] for number in order]
    if placed.index(told[0]) > placed.index(told[2]):
        return  # a watch tells in the order of the writes
    found = changes(learn(listed(in_v2(5, 50)), *placed))
    assert sorted(one.summary for one in found) == [
        "averageUtilization (cpu) of HorizontalPodAutoscaler web: 50 → 70",
        "maxReplicas of HorizontalPodAutoscaler web: 9 → 4",
    ]
    assert {(one.actor, one.sources) for one in found} == {(ALICE, frozenset({"audit", "watch"}))}


def test_what_is_created_in_another_version_is_kept_as_the_watch_shows_it() -> None:
    first = listed(in_v2(3, 1))
    made = audited(in_v1(6, 70), 1, verb=Verb.CREATE), seen(in_v2(6, 70), 1.1, verb=Verb.CREATE)
    gone = seen(in_v2(4, 1), 0.5, verb=Verb.DELETE)
    later = seen(in_v2(7, 80), 9)
    for order in permutations(made):
        found = changes(learn(first, gone, *order, later))
        assert [one.verb for one in found][-2:] == [Verb.CREATE, Verb.UPDATE]
        assert found[-1].summary == "averageUtilization (cpu) of HorizontalPodAutoscaler web: 70 → 80"
