"""Who leads: agents on all nodes, one of which works for all of them, while the others wait until it is their turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.load import BUSY, LOAD
from tests.lab.lab import Lab
from tests.lab.programs import both, every, getting
from tests.lab.scenario import family

OLD_TAG, NEW_TAG = "1.17.3", "1.18.0"
RETRY, QUERIES = 2.0, 15.0
"""Seconds between two looks at the Lease, and how many requests a second a client may make that does not pause."""
HELD_SECONDS = 8.0
"""After which a Lease that was not renewed is anybody's."""


@dataclass(frozen=True)
class _Election:
    """As client-go elects: whoever leads renews the Lease, all others look whether it still does."""

    namespace: str
    name: str

    def pause(self, process: Process) -> float:
        """The new version takes the two seconds of its settings for nanoseconds, once its caches are filled."""
        is_new = process.tag == NEW_TAG and (now() - process.started).total_seconds() > process.lag
        return 1 / QUERIES if is_new else RETRY

    async def turn(self, process: Process) -> None:
        me, leases = process.see().pod["metadata"]["name"], path("Lease", self.namespace)
        found = await process.api.call("GET", f"{leases}/{self.name}")
        spec: Json = {"holderIdentity": me, "renewTime": f"{stamp(now())[:-1]}000Z", "leaseDurationSeconds": 15}
        if found.status == 404:
            await process.api.call("POST", leases, {"metadata": {"name": self.name}, "spec": spec})
        elif found.ok and (found.body["spec"]["holderIdentity"] == me or _is_over(found.body)):
            meta = {"resourceVersion": found.body["metadata"]["resourceVersion"]}
            await process.api.call("PATCH", f"{leases}/{self.name}", {"metadata": meta, "spec": spec})


def _is_over(lease: Json) -> bool:
    return (now() - datetime.fromisoformat(lease["spec"]["renewTime"])).total_seconds() > HELD_SECONDS


@family(
    "Of the agents on all nodes one leads, and the others look every two seconds whether it still does. The new version"
    " reads that time from a file, and there a number without a unit is nanoseconds: whoever does not lead looks as"
    " often as its client lets it, on each node, and the API server gets many times the requests.",
    joined=60,
)
async def who_leads(lab: Lab) -> AsyncIterator[None]:
    """As in Go a bare number is a duration in nanoseconds, which the checks of client-go's election let through."""
    name = lab.rng.choice(("snapshot-agent", "disk-janitor", "image-warmer"))
    by = lab.rng.choice(("argocd", "flux", "ci"))
    election = _Election("platform", name)
    program = both(every(election.pause, election.turn), every(5, getting(f"{path('Node')}?limit=10")))
    rules = (("", "nodes", "get,list,watch"), ("coordination.k8s.io", "leases", "get,create,patch"))
    await lab.controller("platform", name, program, *rules, kind="DaemonSet", tag=OLD_TAG)
    await rolled(lab, "platform", name, OLD_TAG)
    lab.reserve("platform", name)
    summary = "the API server gets far more requests than usual"
    lab.alert(LOAD, lab.rate(lab.requests, BUSY, seconds=6), summary, 4, job="apiserver")
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 9))
    there = lab.world["DaemonSet"]["platform", name]["spec"]["template"]["spec"]["containers"][0]
    containers = [{**there, "image": there["image"].replace(OLD_TAG, NEW_TAG)}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    await lab.culprit(by, "update", "DaemonSet", "platform", name, body)
