"""What two or more write at once: whoever comes in between is not to be seen, whoever tries again is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Answer, Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, lagging, tell
from tests.lab.scenario import family

POOL_GROUP, POOL, OLD, NEW = "ipam.corp.example", "edge", "2.2.", "2.3.0"
TRIES, TOO_MANY = 8, 8
"""How often a claim is tried before it is put off, and how many may wait before anybody is told."""


@dataclass
class _Claims:
    """Who takes addresses from the pool: reads it, sets the address up on the gateway, writes it down."""

    pool: Kind
    team: str
    numbers: itertools.count[int]
    waiting: list[int] = field(default_factory=list)

    def count(self) -> float:
        return len(self.waiting)

    async def take(self, process: Process) -> None:
        """Only what is still as it was read may be written: or else all is done anew, at once."""
        if not self.waiting:
            return
        where, claim = self.pool.path("platform", POOL), f"{self.team}/{self.waiting[0]}"
        for _ in range(TRIES):
            found = await process.api.call("GET", where)
            if not found.ok:
                return
            await asyncio.sleep(process.rng.uniform(0.12, 0.18))
            meta = {"resourceVersion": found.body["metadata"]["resourceVersion"]}
            address = f"198.18.{self.waiting[0] // 250}.{self.waiting[0] % 250 + 1}"
            body = {"metadata": meta, "spec": {"allocations": {address: claim}}}
            written = await process.api.call("PATCH", where, body)
            if written.ok:
                self.waiting.pop(0)
                return
        about = {**found.body, "kind": self.pool.name}
        told = written.body.get("message", "")
        await tell(process, about, "Warning", "AllocationFailed", f"{claim}: {told}", by=f"{self.team}-addresses")


@family(
    "A new version of what clears a pool of addresses notes when it has seen each of them, one after another and"
    " without end. Whoever takes an address may only write the pool as it was read: each finds it changed, tries again"
    " at once, and is louder than the one that changes it.",
    joined=29,
)
async def pool_conflicts(lab: Lab) -> AsyncIterator[None]:
    """As plugins of the network that keep their addresses in one object tell of it."""
    pool, numbers = await lab.custom("AddressPool", POOL_GROUP, ANY), itertools.count(1)
    teams = lab.rng.sample(("tunnels", "devices", "branches", "partners"), 3)
    by = lab.rng.choice(("argocd", "flux", "bob"))

    async def clear(process: Process) -> None:
        """Up to a version only what is over is looked for, now and then."""
        where = pool.path("platform", POOL)
        if process.tag.startswith(OLD):
            await every(8, lambda one: _note(one, where, "collected"))(process)
        await lagging(process)
        while True:
            found = await process.api.call("GET", where)
            for address in found.body.get("spec", {}).get("allocations", {}):
                await _note(process, where, address)
                await asyncio.sleep(process.rng.uniform(0.06, 0.09))

    await lab.served(pool)
    meta = {"namespace": "platform", "name": POOL}
    spec: Json = {"cidr": "198.18.0.0/16", "allocations": {f"198.18.255.{one}": "reserved" for one in range(1, 31)}}
    await lab.apply({"apiVersion": f"{POOL_GROUP}/v1", "kind": pool.name, "metadata": meta, "spec": spec})
    rules = (POOL_GROUP, pool.plural, "get,patch"), ("", "events", "create")
    await lab.controller("platform", "pool-collector", clear, *rules, replicas=1, tag=f"{OLD}4")
    claims = [_Claims(pool, team, numbers) for team in teams]
    for one in claims:
        name = f"{one.team}-addresses"
        await lab.controller("platform", name, every(0.1, one.take), *rules, replicas=1)
        lab.start(_each(lab, 2.5, one))
        lab.measure("claims_waiting", one.count, namespace="platform", service=name)
    holds = lambda: sum(one.count() for one in claims) > TOO_MANY  # noqa: E731
    summary = "claims of addresses have been waiting for a while"
    lab.alert("AddressClaimsWaiting", holds, summary, 4, namespace="platform", pool=POOL)
    yield
    await lab.roll(by, "platform", "pool-collector", NEW, culprit=True)


async def _each(lab: Lab, seconds: float, claims: _Claims) -> None:
    """Somebody wants one."""
    while True:
        await asyncio.sleep(seconds * lab.rng.uniform(0.5, 1.5))
        claims.waiting.append(next(claims.numbers))


async def _note(process: Process, where: str, what: str) -> None:
    await process.api.call("PATCH", where, {"status": {"seen": {what: stamp(now())}}})


SLOTS = ("blue", "green")
IGNORED: Json = {"kind": "Service", "jsonPointers": ["/spec/selector"]}


@dataclass
class _Slots:
    """A release that is made beside the one in use: who promotes it points the Service to it."""

    lab: Lab
    kind: Kind
    application: Kind
    namespace: str
    name: str

    def selector(self, slot: str) -> Json:
        return {"app.kubernetes.io/name": f"{self.name}-{slot}"}

    async def promote(self, process: Process) -> None:
        """First there are pods, then the Service leads there, and then the others go."""
        wanted = (await process.api.call("GET", self.kind.path(self.namespace, self.name))).body
        found = await process.api.call("GET", path("Service", self.namespace, self.name))
        if not found.ok or "spec" not in wanted:
            return
        active = wanted["spec"]["active"]
        [idle] = set(SLOTS) - {active}
        await self._scale(process, active, wanted["spec"]["replicas"])
        status = self.lab.world["Deployment"][self.namespace, f"{self.name}-{active}"].get("status", {})
        if status.get("readyReplicas", 0) < wanted["spec"]["replicas"]:
            return
        if found.body["spec"]["selector"] != self.selector(active):
            body = {"spec": {"selector": self.selector(active)}}
            await process.api.call("PATCH", path("Service", self.namespace, self.name), body)
            return
        await self._scale(process, idle, 0)

    async def _scale(self, process: Process, slot: str, replicas: int) -> None:
        where = f"{path('Deployment', self.namespace, f'{self.name}-{slot}')}/scale"
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"].get("replicas", 0) != replicas:
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})

    async def sync(self, process: Process) -> None:
        """What differs from Git is written back, unless that is to be ignored."""
        declared = await process.api.call("GET", self.application.path("argocd", self.name))
        found = await process.api.call("GET", path("Service", self.namespace, self.name))
        if not (declared.ok and found.ok):
            return
        is_ignored = any(one["kind"] == "Service" for one in declared.body["spec"]["ignoreDifferences"])
        in_git = self.selector(SLOTS[0])
        if found.body["spec"]["selector"] != in_git and not is_ignored:
            body = {"spec": {"selector": in_git}}
            await process.api.call("PATCH", path("Service", self.namespace, self.name), body)

    async def use(self, slot: str) -> Answer:
        """As the team does each week, and wait until it is through."""
        answer = await self.lab.edit("ci", self.kind.name, self.namespace, self.name, {"spec": {"active": slot}})
        await self.lab.until(lambda: not pods(self.lab.world, self.namespace, f"{self.name}-{_other(slot)}"))
        return answer


def _other(slot: str) -> str:
    [other] = set(SLOTS) - {slot}
    return other


@family(
    "Somebody tidies what an agent is to ignore of an application, and takes out the selector of its Service. The agent"
    " writes back what Git says, where nobody is any more since the last release, what promotes releases corrects that,"
    " and so on.",
    joined=29,
)
async def selector_fight(lab: Lab) -> AsyncIterator[None]:
    """As users of Argo Rollouts tell whose agent keeps the Service of what is in use."""
    namespace, name, front = lab.rng.choice(
        (("shop", "basket", "storefront"), ("payments", "invoices", "billing"), ("media", "playlists", "player"))
    )
    kind = await lab.custom("BlueGreen", "release.corp.example", ANY)
    application = await lab.custom("Application", "argoproj.io", ANY)
    slots = _Slots(lab, kind, application, namespace, name)
    await lab.served(kind, application)
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    for slot in SLOTS:
        made = objects.deployment(namespace, f"{name}-{slot}", f"{image}:1.0.0", replicas=3 * (slot == SLOTS[0]))
        await lab.apply(made)
    service = objects.service(namespace, name)
    service["spec"]["selector"] = slots.selector(SLOTS[0])
    await lab.apply(service)
    meta = {"namespace": namespace, "name": name}
    spec: Json = {"active": SLOTS[0], "replicas": 3}
    await lab.apply({"apiVersion": "release.corp.example/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    replicas = {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}
    spec = {"source": {"path": f"apps/{name}"}, "syncPolicy": {"automated": {"selfHeal": True}}}
    spec["ignoreDifferences"] = [replicas, {**IGNORED, "name": name}]
    meta = {"namespace": "argocd", "name": name}
    await lab.apply({"apiVersion": "argoproj.io/v1", "kind": application.name, "metadata": meta, "spec": spec})
    scale = ("apps", "deployments/scale", "get,patch"), ("", "services", "get,patch")
    await lab.controller(
        "platform",
        "release-operator",
        every(1.5, slots.promote),
        *scale,
        ("release.corp.example", kind.plural, "get"),
        replicas=1,
    )
    await lab.controller(
        "argocd",
        "application-sync",
        every(2.5, slots.sync),
        scale[1],
        ("argoproj.io", "applications", "get"),
        replicas=1,
    )
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, front)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_lacking(namespace, front)
    await lab.until(lab.is_well)
    for days, slot in ((14, SLOTS[1]), (7, SLOTS[0]), (0.2, SLOTS[1])):
        async with before(lab, days=days):
            await slots.use(slot)
            await lab.pause(3)
    yield
    body = {"spec": {"ignoreDifferences": [replicas]}}
    by = lab.rng.choice(("alice", "bob"))
    await lab.culprit(by, "update", "Application", "argocd", name, body)
