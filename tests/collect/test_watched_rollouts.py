"""The words of watches about workloads into a real database: rollouts, told whole, by statuses alone, or not at all."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from app.collect.spool import Spool
from app.collect.words import Moved
from app.core.objects.body import read_whole
from app.store import objects
from tests.collect.test_follow import follower, spool
from tests.collect.test_importer import UID, Lab, deployment, lab
from tests.collect.test_watched import DEPLOYMENTS, at, drained, listed, positions, say, seen

__all__ = ["lab", "spool"]


def rolled(version: int, image: str, *, updated: int, generation: int) -> dict[str, Any]:
    """A Deployment amid a rollout, or behind it."""
    status = {"observedGeneration": generation, "replicas": 2, "updatedReplicas": updated, "availableReplicas": updated}
    one = deployment(version, image) | {"status": status}
    return {**one, "metadata": {**one["metadata"], "generation": generation}}  # type: ignore[dict-item]


def moved(second: float, body: dict[str, Any]) -> Moved:
    whole = read_whole(json.dumps(body).encode())
    assert whole is not None
    return Moved(at(second), (whole.as_before(),))


@pytest.mark.parametrize("anew", [False, True], ids=["in one go", "with another memory"])
async def test_a_rollout_ends_with_a_status_alone(lab: Lab, spool: Spool, anew: bool) -> None:
    say(spool, DEPLOYMENTS, *listed(0, rolled(11, "web:1", updated=2, generation=1), version=11))
    say(spool, DEPLOYMENTS, seen(10, rolled(12, "web:2", updated=0, generation=2)))
    if anew:
        await drained(lab, spool)
    say(spool, DEPLOYMENTS, moved(20, rolled(13, "web:2", updated=1, generation=2)))
    if anew:
        await drained(lab, spool)
    say(spool, DEPLOYMENTS, moved(30, rolled(14, "web:2", updated=2, generation=2)))
    await drained(lab, spool)
    rollouts = await lab.rows("rollouts", "outcome, progress, images")
    assert [(row.outcome, len(row.progress), row.images) for row in rollouts] == [("complete", 3, ["web:2"])]
    assert (await positions(lab))["apps", "deployments"].resource_version == "14"
    assert len(await lab.stored()) == 1
    say(spool, DEPLOYMENTS, seen(40, rolled(15, "web:3", updated=0, generation=3)))
    await drained(lab, spool)
    assert [change.diffs[0].old for change in await lab.stored() if change.resource_version == "15"] == ["web:2"]


@pytest.mark.parametrize("anew", [False, True], ids=["in one go", "with another memory"])
async def test_a_rollout_is_over_whose_workload_went_while_nobody_looked(lab: Lab, spool: Spool, anew: bool) -> None:
    say(spool, DEPLOYMENTS, *listed(0, rolled(11, "web:1", updated=2, generation=1), version=11))
    say(spool, DEPLOYMENTS, seen(10, rolled(12, "web:2", updated=1, generation=2)))
    if anew:
        await drained(lab, spool)
    say(spool, DEPLOYMENTS, *listed(60, version=20))
    await drained(lab, spool)
    (row,) = await lab.rows("rollouts", "outcome, ended_at, reason")
    assert (row.outcome, row.ended_at, row.reason) == ("superseded", at(60), "Deployment deleted")


async def test_a_status_of_what_is_not_known_asks_for_all_of_it(lab: Lab, spool: Spool) -> None:
    one = follower(lab, spool)
    await drained(lab, spool)
    wanted = list[Collection[str] | None]()
    one.on_unknown = wanted.append
    say(spool, DEPLOYMENTS, *listed(0, version=5), moved(10, rolled(11, "web:1", updated=2, generation=1)))
    await drained(lab, spool, one)
    assert wanted == [None, frozenset({UID})], "a follower that begins knows nothing of what was told before"
    say(spool, DEPLOYMENTS, seen(20, rolled(12, "web:2", updated=2, generation=2)))
    say(spool, DEPLOYMENTS, moved(30, rolled(13, "web:2", updated=2, generation=2)))
    await drained(lab, spool, one)
    assert wanted[2:] == []
    async with lab.database.read.connect() as conn:
        assert [state.uid for state in await objects.load_cluster(conn, lab.cluster)] == [UID]
