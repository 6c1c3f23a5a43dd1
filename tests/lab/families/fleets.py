"""What was told of fleets: members that each know of all others, who tells them all, and who restarts them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import LATE, App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

MEMBERS, MORE = 12, 2
OWN_THREADS, THREADS_EACH, MOST_THREADS = 220, 64, 1024
"""What a member has for itself and for each other one, and what a process may have."""
NOTICED, USELESS = 0.12, 0.8
"""How often a member looks who the others are: a share of the seconds; what fails of it without a map of all shards."""
EDGE, EDGE_CONFIG = ("platform", "edge"), "edge-config"
LEASE_SECONDS, LOOK_SECONDS = 6, 1.5
GARBAGE_EVERY, GARBAGE_SECONDS, DROPPED = 22.0, 4.0, 0.2
"""How often a proxy with a table of old does nothing but collect garbage, for how long, and what it drops besides."""
JAVA, JAVA_SECONDS = ("login", "accounts", "sessions"), 20.0
"""Apps that take long to start."""
AT_ONCE = 100
"""On how many machines a command runs at the same time where nobody says."""


@family(
    "Each member of a fleet has a thread for every other one: a few more are added, and all of them, the old ones too,"
    " need more threads than a process may have, as soon as they notice. They do not know any more who has what.",
    joined=17,
)
async def thread_limit(lab: Lab) -> AsyncIterator[None]:
    """As Amazon tells of Kinesis (November 2020, post-mortems 149)."""
    namespace, name, callers = lab.rng.choice(
        (
            ("search", "front", (("shop", "suggest"), ("media", "related"))),
            ("media", "streams", (("shop", "activity"), ("payments", "audit"))),
            ("payments", "events", (("shop", "receipts"), ("search", "freshness"))),
        )
    )
    known: dict[str, int] = {}  # of how many members one knows, itself among them, by uid

    async def meet() -> None:
        while True:
            await asyncio.sleep(1)
            there = [pod["metadata"]["uid"] for pod in pods(lab.world, namespace, name) if is_ready(pod)]
            for uid in there:
                if uid not in known or lab.kubelets.rng.random() < NOTICED:
                    known[uid] = len(there)

    def failing(container: Container) -> float:
        """Without a thread for each other one there is no whole map, and a call goes nowhere."""
        others = known.get(container.pod["metadata"]["uid"], 1) - 1
        return USELESS if OWN_THREADS + THREADS_EACH * others > MOST_THREADS else 0.0

    await lab.app(namespace, name, like=App("", failing=failing), replicas=MEMBERS)
    lab.alert_errors(namespace, name)
    for caller in callers:
        await lab.app(*caller, like=App("", upstreams=((namespace, name),)), replicas=3)
        lab.alert_errors(*caller)
    lab.start(meet())
    yield
    by = lab.rng.choice(("alice", "ci", "flux"))
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"replicas": MEMBERS + MORE}})


@dataclass
class Masters:
    """Those who may write the table of all proxies, one of whom leads; each has read it from a store outside."""

    lab: Lab
    generation: int
    hosts: list[str]
    copies: dict[str, Json] = field(default_factory=dict)
    """What those have who do not reach the store any more, by pod."""
    stuck: set[str] = field(default_factory=set)
    leader: str = ""

    @property
    def table(self) -> Json:
        """As it is now, in the store."""
        return {"GENERATION": f"{self.generation}", "ROUTES": "\n".join(f"{host} {host[:-13]}" for host in self.hosts)}

    async def run(self, process: Process) -> None:
        """As one of them: whoever has the Lease keeps the ConfigMap as its own table is."""
        me, where = process.see().pod["metadata"]["name"], path("ConfigMap", *EDGE)
        while True:
            await asyncio.sleep(LOOK_SECONDS * process.rng.uniform(0.9, 1.1))
            if me in self.stuck or not await self._lead(process, me):
                continue
            found = await process.api.call("GET", where)
            mine = self.copies.get(me) or self.table
            if found.ok and found.body["data"] != mine:
                answer = await process.api.call("PATCH", where, {"data": mine})
                if me in self.copies and answer.ok:
                    what = {"kind": "ConfigMap", "namespace": EDGE[0], "name": EDGE[1], "verb": "update"}
                    self.lab.culprits.append(({**what, "actor": process.api.user, "api_group": ""}, answer))

    async def _lead(self, process: Process, me: str) -> bool:
        """Whether it has the Lease; one that is not renewed in time is anybody's."""
        where = path("Lease", EDGE[0], EDGE_CONFIG)
        found = await process.api.call("GET", where)
        spec: Json = found.body.get("spec", {})
        holder, renewed = spec.get("holderIdentity", me), spec.get("renewTime")
        is_fresh = renewed and (now() - datetime.fromisoformat(renewed)).total_seconds() < LEASE_SECONDS
        if not found.ok or (holder != me and is_fresh):
            return False
        turns = spec.get("leaseTransitions", 0) + (holder != me)
        mine = {"holderIdentity": me, "renewTime": f"{stamp(now())[:-1]}000Z", "leaseTransitions": turns}
        version = {"resourceVersion": found.body["metadata"]["resourceVersion"]}
        taken = await process.api.call("PATCH", where, {"metadata": version, "spec": mine})
        if taken.ok:
            self.leader = me
        return taken.ok

    async def change(self) -> None:
        """Teams bring new names all day."""
        while True:
            await asyncio.sleep(self.lab.kubelets.rng.uniform(7, 14))
            self.generation += 1
            self.hosts = [*self.hosts[1:], f"app-{self.generation}.corp.example"]


@family(
    "Who leads those that write the table of all proxies changes, and the new leader has not reached the store of"
    " tables for months: it writes the one that it has, with which proxies do nothing but collect garbage.",
    joined=17,
)
async def stale_master(lab: Lab) -> AsyncIterator[None]:
    """As Google tells of its load balancers (April 2017, the first of post-mortems 89)."""
    newest = lab.rng.randrange(4000, 9000)
    masters = Masters(lab, newest, [f"app-{number}.corp.example" for number in range(newest - 12, newest)])
    old = newest - lab.rng.randrange(700, 1500)

    def is_old(container: Container) -> bool:
        return int(container.config["GENERATION"]) < newest

    def check(container: Container) -> Problem | None:
        turn = crc32(container.pod["metadata"]["uid"].encode()) % GARBAGE_EVERY
        is_busy = (now().timestamp() + turn) % GARBAGE_EVERY < GARBAGE_SECONDS and container.seconds > GARBAGE_SECONDS
        return Problem("killed", LATE) if is_old(container) and is_busy else None

    await lab.apply(objects.config_map(*EDGE, **masters.table))
    like = App("", check=check, failing=lambda container: DROPPED if is_old(container) else 0.0, load=60.0)
    alive: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 2, "timeoutSeconds": 1}
    await lab.app(*EDGE, like=like, replicas=5, config=EDGE[1], liveness=alive)
    meta = {"namespace": EDGE[0], "name": EDGE_CONFIG}
    await lab.apply({"kind": "Lease", "metadata": meta, "spec": {"leaseDurationSeconds": LEASE_SECONDS}})
    rules = ("", "configmaps", "get,patch"), ("coordination.k8s.io", "leases", "get,patch")
    await lab.controller(EDGE[0], EDGE_CONFIG, masters.run, *rules, replicas=2)
    lab.alert_errors(*EDGE)
    crashing = lambda: restarts(lab.world, *EDGE) >= 4  # noqa: E731
    lab.alert("KubePodRestarting", crashing, "pods of edge restart", 2, namespace=EDGE[0], deployment=EDGE[1])
    await lab.until(lambda: masters.leader and len(pods(lab.world, EDGE[0], EDGE_CONFIG)) == 2)
    lab.start(masters.change())
    yield
    [other] = [
        pod["metadata"]["name"]
        for pod in pods(lab.world, EDGE[0], EDGE_CONFIG)
        if pod["metadata"]["name"] != masters.leader
    ]
    hosts = [f"app-{number}.corp.example" for number in range(old - 12, old)]
    masters.copies[other] = Masters(lab, old, hosts).table
    masters.stuck.add(masters.leader)
    await lab.until(lambda: lab.culprits)


@family(
    "Java applications are to be restarted one after another for a setting, by a job that runs a command on many"
    " machines: nobody says on how many at a time, so it restarts all of them at once, and they take long to start.",
    joined=17,
)
async def restart_all(lab: Lab) -> AsyncIterator[None]:
    """As Sky Betting and Gaming tells of 23 March 2020 (skybet.github.io 295)."""
    namespace = lab.rng.choice(("identity", "customers", "members"))
    await lab.namespace(namespace)
    for name in JAVA:
        await lab.apply(objects.config_map(namespace, name, JMX_PORT="9010", HEAP="2g"))
        await lab.app(namespace, name, like=App("", start_seconds=JAVA_SECONDS), replicas=4, config=name)
    await lab.until(lambda: backends(lab.world, namespace, JAVA[0]))  # nobody came before
    await publish(lab, namespace, JAVA[0])
    lab.alert_ingress_errors(namespace, namespace)
    for name in JAVA:
        lab.alert_lacking(namespace, name, seconds=4)

    async def run(process: Process) -> None:
        """The command, on so many at a time."""
        at_once, target = int(process.env.get("CONCURRENCY", AT_ONCE)), process.env["TARGET"]
        listed = await process.api.call("GET", path("Pod", target))
        names = [one["metadata"]["name"] for one in listed.body.get("items", [])]
        for first in range(0, len(names), at_once):
            some = (path("Pod", target, name) for name in names[first : first + at_once])
            await asyncio.gather(*(process.api.call("DELETE", one) for one in some))
            await asyncio.sleep(JAVA_SECONDS)
        await asyncio.Event().wait()

    image = "registry.corp.example/platform/run-command"
    lab.apps[image] = App(image, program=run, ends_after=JAVA_SECONDS, serves=False)
    await lab.apply(objects.account("platform", "run-command"))
    await lab.apply(objects.cluster_role("run-command", ("", "pods", "list,delete")))
    await lab.apply(objects.binding("run-command", "run-command", "platform", "run-command"))
    yield
    by = lab.rng.choice(("alice", "bob", "carol"))
    for name in JAVA:
        await lab.edit(by, "ConfigMap", namespace, name, {"data": {"JMX_PORT": "9011"}})
    await lab.pause(lab.rng.uniform(4, 8))
    env = [{"name": "TARGET", "value": namespace}, {"name": "COMMAND", "value": "restart-java"}]
    template = objects.deployment(
        "platform", "run-command", f"{image}:2.4.0", env=env, account="run-command", restartPolicy="Never"
    )["spec"]["template"]
    del template["spec"]["containers"][0]["readinessProbe"]
    name = f"run-command-{lab.rng.randrange(10**4):04}"
    job: Json = {"kind": "Job", "metadata": {"namespace": "platform", "name": name}, "spec": {"template": template}}
    await lab.culprit(by, "create", "Job", "platform", name, job)
