"""What was told of who is a member of what: a replica that nobody promotes, a list of hosts that all of them have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

FAILOVER_SECONDS = 3.0
"""For how long an operator sees a primary that is not ready before it looks for another one."""
REBUILD_SECONDS, ASK_EVERY = 6.0, 0.25
"""How long a container takes to build its components anew, and how often somebody calls it."""
ROLE, BACKUP = "postgres.corp.example/role", "postgres.corp.example/backup"


@dataclass
class _Database:
    """A primary, a replica that has all that was written, and one that is behind; backups are taken from a replica."""

    namespace: str
    name: str
    failed: datetime | None = None
    """When the disks of the first primary did."""
    seen_well: datetime = field(default_factory=now)
    roles: dict[str, str] = field(init=False)
    backed_up: str = field(init=False)

    def __post_init__(self) -> None:
        roles = ("primary", "synchronous", "asynchronous")
        self.roles = {f"{self.name}-{number}": role for number, role in enumerate(roles)}
        self.backed_up = f"{self.name}-1"

    async def keep(self, process: Process) -> None:
        """As its operator: whoever is what has the label of it, and a primary that is not ready is followed."""
        where = path("Pod", self.namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name={self.name}")
        found = {pod["metadata"]["name"]: pod for pod in listed.body.get("items", [])}
        for one, pod in found.items():
            wanted = {ROLE: self.roles[one], BACKUP: str(one == self.backed_up).lower()}
            if not wanted.items() <= pod["metadata"]["labels"].items():
                await process.api.call("PATCH", f"{where}/{one}", {"metadata": {"labels": wanted}})
        primary = found.get(self._who("primary"))
        if not listed.ok or (primary and is_ready(primary)):
            self.seen_well = now()
        elif (now() - self.seen_well).total_seconds() > FAILOVER_SECONDS:
            self._follow(found.get(self._who("synchronous")), process)

    def _who(self, role: str) -> str:
        return next(one for one, it_is in self.roles.items() if it_is == role)

    def _follow(self, replica: Json | None, process: Process) -> None:
        """The only one that may be promoted is, where the rules for places allow it; else it is looked at again."""
        if not replica or not is_ready(replica):
            return
        name, apart = replica["metadata"]["name"], process.config["BACKUP_BESIDE_PRIMARY"] == "never"
        if apart and name == self.backed_up:
            has_failed = any(one["restartCount"] for one in replica["status"]["containerStatuses"])
            if has_failed and process.config["AFTER_A_FAILURE"] == "stay":
                return
            self.backed_up = self._who("asynchronous")
        self.roles |= {self._who("primary"): "failed", name: "primary"}

    def check(self, container: Container) -> Problem | None:
        """The primary's disks are gone; what ran on the synchronous replica just then ends once."""
        pod, failed = container.pod["metadata"]["name"], self.failed
        if failed and pod == f"{self.name}-0":
            return Problem("crash", 'PANIC:  could not open file "global/pg_control": Input/output error')
        if failed and pod == f"{self.name}-1" and container.seconds > (now() - failed).total_seconds():
            return Problem("crash", "LOG:  startup process (PID 31) was terminated by signal 6: Aborted")
        return None


@family(
    "The disks of a database's primary fail, and just then its synchronous replica ends once, by chance. Backups are"
    " taken there, no primary may be beside them, and what has failed is not moved: nobody is promoted.",
    culprit=False,
    joined=13,
)
async def no_promotion(lab: Lab) -> AsyncIterator[None]:
    """As GoCardless tells of 10 October 2017."""
    namespace, name = lab.rng.choice((("payments", "mandates"), ("shop", "customers"), ("media", "albums")))
    database = _Database(namespace, f"{name}-db")
    await lab.app(namespace, database.name, like=App("", check=database.check), kind="StatefulSet", replicas=3)
    await lab.apply(objects.service(namespace, f"{database.name}-backup"))
    for service, mark in ((database.name, {ROLE: "primary"}), (f"{database.name}-backup", {BACKUP: "true"})):
        await lab.edit("admin", "Service", namespace, service, {"spec": {"selector": mark}})
    operator, rule = "postgres-operator", ("", "pods", "get,list,patch")
    await lab.apply(objects.config_map("platform", operator, BACKUP_BESIDE_PRIMARY="never", AFTER_A_FAILURE="stay"))
    await lab.controller("platform", operator, every(1, database.keep), rule, replicas=1, config=operator)
    await lab.app(namespace, name, like=App("", upstreams=((namespace, database.name),)), replicas=3)
    await lab.until(lambda: backends(lab.world, namespace, database.name))
    lab.alert_lacking(namespace, name)
    yield
    database.failed = now()


@family(
    "A node is retired, and the list of a cluster's hosts, which each of its containers has, says so: all of them build"
    " what they are made of anew at the same moment, and nobody answers meanwhile.",
    joined=13,
)
async def host_list(lab: Lab) -> AsyncIterator[None]:
    """As Vespa's authors tell of why their containers no longer have that list (2020)."""
    namespace, name = lab.rng.choice((("search", "listing"), ("shop", "recommendations"), ("media", "feed")))
    config = f"{name}-cluster-info"
    read: dict[str, tuple[str, datetime]] = {}
    failed = [0]

    async def write(process: Process) -> None:
        """Who is a member, where it runs, and whether that is to be retired, as it is now."""
        nodes = await process.api.call("GET", path("Node"))
        listed = await process.api.call("GET", f"{path('Pod', namespace)}?labelSelector=app.kubernetes.io/name={name}")
        there = await process.api.call("GET", path("ConfigMap", namespace, config))
        if not (nodes.ok and listed.ok and there.ok):
            return
        retired = {one["metadata"]["name"] for one in nodes.body["items"] if one["spec"].get("unschedulable")}
        running = (one for one in listed.body["items"] if one.get("status", {}).get("phase") == "Running")
        members = [
            f"{one['metadata']['name']} {one['spec']['nodeName']}{' retired' * (one['spec']['nodeName'] in retired)}"
            for one in running
            if "deletionTimestamp" not in one["metadata"]
        ]
        body = {"data": {"HOSTS": "\n".join(sorted(members))}}
        if there.body["data"] != body["data"]:
            await process.api.call("PATCH", path("ConfigMap", namespace, config), body)

    def check(container: Container) -> Problem | None:
        """With each list that it has not seen it builds its components, as it does when it starts."""
        uid, hosts = container.pod["metadata"]["uid"], container.config["HOSTS"]
        if uid not in read or read[uid][0] != hosts:
            read[uid] = hosts, now()
        is_built = (now() - read[uid][1]).total_seconds() > REBUILD_SECONDS
        return None if is_built else Problem("unready", "probe failed: HTTP probe failed with statuscode: 503")

    async def ask() -> None:
        while True:
            await asyncio.sleep(ASK_EVERY)
            failed[0] += not backends(lab.world, namespace, name)

    await lab.apply(objects.config_map(namespace, config, HOSTS=""))
    await lab.app(namespace, name, like=App("", check=check), replicas=6, config=config)
    rules = ("", "nodes,pods,configmaps", "get,list,patch")
    await lab.controller("platform", f"{name}-operator", every(1, write), rules, replicas=1)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 6)
    lab.start(ask())
    count = lambda: failed[0]  # noqa: E731
    lab.measure("gateway_requests_total", count, "counter", namespace=namespace, service=name, code="503")
    errors = lab.rate(count, 0.5, seconds=10)
    lab.alert("HTTPErrorsHigh", errors, f"calls of {name} fail", 4, namespace=namespace, service=name)
    yield
    used = {pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name)}
    node = next(one for one in spare(lab, 4) if one in used)
    by = lab.rng.choice(("alice", "bob"))
    await lab.culprit(by, "update", "Node", "", node, {"spec": {"unschedulable": True}})
    lab.start(drain(lab, by, node))
