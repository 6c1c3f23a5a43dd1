"""Of several that do the same work one leads, for as long as it renews a Lease."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import CrashError, Process, Program
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.programs import both, every
from tests.lab.scenario import family

SITES = "sites.corp.example"
STANDING, A_SECOND, SYNC_SECONDS, WAITS_SECONDS = 30, 12.0, 4.0, 32.0
"""How many sites there are already, how many of them the controller's client may ask for in a second, for how long a
new leader reads before it begins, and for how long a new site may wait, which is longer than a rollout takes."""
USUAL = {"LEASE_DURATION": "15", "RENEW_DEADLINE": "10", "RETRY_PERIOD": "2"}
"""In seconds: the defaults of client-go."""
LEASES = ("coordination.k8s.io", "leases")


async def _holds(process: Process, place: tuple[str, str]) -> bool:
    """Whether it has the Lease, which it takes where it is free, or renews."""
    own, seconds = process.see().pod["metadata"]["name"], int(process.env["LEASE_DURATION"])
    spec: Json = {"holderIdentity": own, "renewTime": f"{stamp(now())[:-1]}000Z", "leaseDurationSeconds": seconds}
    found = await process.api.call("GET", path("Lease", *place))
    if found.status == 404:
        body = {"metadata": {"name": place[1]}, "spec": {**spec, "leaseTransitions": 0}}
        return (await process.api.call("POST", path("Lease", place[0]), body)).ok
    if not found.ok:
        return False
    there = found.body["spec"]
    age = (now() - datetime.fromisoformat(there["renewTime"])).total_seconds()
    if there["holderIdentity"] != own:
        if age < there["leaseDurationSeconds"]:
            return False
        spec["leaseTransitions"] = there["leaseTransitions"] + 1
    body = {"metadata": {"resourceVersion": found.body["metadata"]["resourceVersion"]}, "spec": spec}
    return (await process.api.call("PATCH", path("Lease", *place), body)).ok


@dataclass
class _Leader:
    """One of several that leads: its renewals wait in line with all else that it asks."""

    process: Process
    place: tuple[str, str]
    kind: Kind
    line: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def renew(self, _: Process) -> None:
        try:
            async with asyncio.timeout(float(self.process.env["RENEW_DEADLINE"])):
                await _until(self.process, self._holds_in_line)
        except TimeoutError:
            lost = f"failed to renew lease {'/'.join(self.place)}: context deadline exceeded: leader election lost"
            raise CrashError(lost) from None

    async def _holds_in_line(self) -> bool:
        async with self.line:
            return await _holds(self.process, self.place)

    async def see_to_all(self, _: Process) -> None:
        """In the order in which they were made."""
        listed = await self.process.api.call("GET", self.kind.path("platform"))
        items = sorted(listed.body.get("items", ()), key=lambda one: one["metadata"]["creationTimestamp"])
        async with self.line:
            for one in items:
                await asyncio.sleep(1 / A_SECOND)
                where = self.kind.path("platform", one["metadata"]["name"])
                if "status" in one:
                    await self.process.api.call("GET", where)
                else:
                    body = {"status": {"phase": "Ready", "since": stamp(now())}}
                    await self.process.api.call("PATCH", where, body)

    async def work(self, _: Process) -> None:
        await asyncio.sleep(SYNC_SECONDS)
        await every(3, self.see_to_all)(self.process)


async def _until(process: Process, done: Callable[[], Awaitable[bool]]) -> None:
    retry = float(process.env["RETRY_PERIOD"])
    for pause in itertools.repeat(retry):
        if await done():
            return
        await asyncio.sleep(pause)


def _elected(place: tuple[str, str], kind: Kind) -> Program:
    """Waits until it leads, and sees to all sites while it does."""

    async def run(process: Process) -> None:
        await _until(process, partial(_holds, process, place))
        leader = _Leader(process, place, kind)
        await both(every(float(process.env["RETRY_PERIOD"]), leader.renew), leader.work)(process)

    return run


@family(
    "A controller of which one leads hands over ever anew: the time in which its leader has to renew its lease was made"
    " shorter than it is busy in one go, or what lets it write leases was taken away. Who leads ends before it has come"
    " to what is new.",
    joined=81,
)
async def handing_over(lab: Lab) -> AsyncIterator[None]:
    """As all tell whose log ends with leader election lost."""
    name, place = "site-controller", ("platform", "site-controller")
    by, other = lab.rng.choice(("carol", "flux", "alice")), lab.rng.choice(("argocd", "ci"))
    is_by_times, tag = lab.rng.random() < 0.5, f"1.{lab.rng.randrange(3, 30)}.0"
    kind = await lab.custom("Site", SITES, ANY)
    await lab.served(kind)
    for number in range(STANDING):
        meta = {"namespace": "platform", "name": f"site-{number:03}"}
        await lab.apply({"kind": "Site", "metadata": meta, "spec": {"plan": "team"}, "status": {"phase": "Ready"}})
    env = [{"name": key, "value": value} for key, value in USUAL.items()]
    own = (SITES, "sites", "get,list,watch,patch")
    await lab.controller(
        *place, _elected(place, kind), own, (*LEASES, "get,create,patch"), replicas=2, tag=tag, env=env
    )
    await rolled(lab, *place, tag)

    async def order(process: Process) -> None:
        body: Json = {
            "apiVersion": f"{SITES}/v1",
            "kind": "Site",
            "metadata": {"name": f"site-{process.rng.randrange(10**3, 10**6)}"},
            "spec": {"plan": process.rng.choice(("free", "team"))},
        }
        await process.api.call("POST", kind.path("platform"), body)

    def longest() -> float:
        made = (one["metadata"]["creationTimestamp"] for one in lab.world["Site"].values() if "status" not in one)
        return max(((now() - datetime.fromisoformat(at)).total_seconds() for at in made), default=0.0)

    await lab.controller("platform", "site-orders", every(6, order), (SITES, "sites", "create"), replicas=1)
    summary = f"a site has waited for more than {WAITS_SECONDS:g} minutes"
    lab.alert("SiteNotReady", lambda: longest() > WAITS_SECONDS, summary, 5, namespace="platform", controller=name)
    ends_again = lambda: restarts(lab.world, *place) > 3  # noqa: E731
    summary = f"containers of platform/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", ends_again, summary, 3, namespace="platform", deployment=name)
    told = {"namespace": "platform", "service": name}
    lab.measure("oldest_site_waiting_seconds", longest, **told)
    await lab.until(lambda: len(lab.world["Site"]) > STANDING + 1)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, *lab.rng.choice((("shop", "cart"), ("media", "uploads"))), "1.53.0")
    await lab.pause(lab.rng.uniform(4, 9))
    if is_by_times:
        shorter = {"LEASE_DURATION": "3", "RENEW_DEADLINE": "2", "RETRY_PERIOD": "1"}
        env = [{"name": key, "value": value} for key, value in shorter.items()]
        await lab.roll(by, *place, tag, env=env, culprit=True)
    else:
        less = objects.cluster_role(name, own, (*LEASES, "get,list,watch"))["rules"]
        await lab.culprit(by, "update", "ClusterRole", "", name, {"rules": less})
