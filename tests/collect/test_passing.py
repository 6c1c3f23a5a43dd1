"""What a watch does not tell teaches, too: that time has passed."""

from __future__ import annotations

from typing import Any

from app.collect.spool import Spool
from app.collect.words import Reached, Served
from app.core.objects.pod_states import PENDING_AFTER
from tests.collect.test_follow import follower, spool
from tests.collect.test_importer import Lab, lab
from tests.collect.test_watched import EVENTS, at, drained, listed, say, seen

__all__ = ["lab", "spool"]
PODS = Served("", "v1", "Pod", "pods")


def pending(version: int, *, created: float) -> dict[str, Any]:
    metadata = {"name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": str(version)}
    scheduled = {"type": "PodScheduled", "status": "True"}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {**metadata, "creationTimestamp": f"{at(created):%Y-%m-%dT%H:%M:%SZ}"},
        "spec": {"containers": []},
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }


async def test_a_pod_that_goes_on_waiting_hurts_though_only_bookmarks_are_told(lab: Lab, spool: Spool) -> None:
    one = follower(lab, spool)
    await drained(lab, spool)
    late = PENDING_AFTER.total_seconds()
    say(spool, PODS, *listed(0, version=5), seen(10, pending(6, created=10), kind="ADDED"))
    say(spool, EVENTS, *listed(10, version=6), Reached(at(10 + late), "7"))
    await drained(lab, spool, one)
    assert await lab.rows("symptoms", "reason") == []
    say(spool, EVENTS, Reached(at(11 + late), "8"))
    await drained(lab, spool, one)
    [found] = await lab.rows("symptoms", "reason, at, ended_at")
    assert tuple(found) == ("Pending", at(10), None)
