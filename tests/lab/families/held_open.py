"""What is kept for who is connected: flows that an agent knows, a log for a subscriber that does not read it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import now, path, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.passwords import begun
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import every, getting
from tests.lab.scenario import family

AGENT, OLD_FLOWS, OTHER_FLOWS = ("kube-system", "cilium"), "1.14.9", "1.15.1"
GIVEN_UP = timedelta(seconds=45)
"""After which a connection is closed that gets no answer."""
DISK_BYTES, USUAL_BYTES = 10 * 2**30, 2**28
"""Of the disk that a database's log is on, and what it has of it while whoever reads the log does so."""
RECOVERS, ENDS_AFTER = 4.0, 5.5
"""Seconds that a database takes to start from its log, and after which it wants room for more and ends again."""
ROLE = "role"


@dataclass
class _Flows:
    """Connections that stay open, as an agent of the network on each node knows them."""

    lab: Lab
    share: float
    """Of an app's requests, those that go by such a connection."""
    agents: dict[str, datetime] = field(default_factory=dict)
    """Since when the new version is up, by node."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            for pod in pods(self.lab.world, *AGENT):
                if is_ready(pod) and images(pod)[0].endswith(f":{OTHER_FLOWS}"):
                    self.agents.setdefault(pod["spec"]["nodeName"], now())

    def lost(self, container: Container) -> float:
        """What was opened under the old version gets no answer, until its own end gives it up."""
        since = self.agents.get(container.pod["spec"]["nodeName"])
        is_open = since and begun(container) < since and now() - since < GIVEN_UP
        return self.share if is_open else 0.0


@family(
    "A new version of the network's agent goes from node to node. It does not know the connections that are open there,"
    " and what is sent by one gets no answer until its own end gives it up: who connects anew each time is well.",
    joined=30,
)
async def flows_forgotten(lab: Lab) -> AsyncIterator[None]:
    """As those who make Cilium tell of flows in a tunnel during an upgrade (cilium 28143, 12308)."""
    namespace, name, front = lab.rng.choice(
        (("shop", "stock-levels", "availability"), ("media", "presence", "chat"), ("payments", "quotes", "conversion"))
    )
    broker, flows = f"{name}-broker", _Flows(lab, lab.rng.uniform(0.5, 0.7))
    by, team = lab.rng.choice(("bob", "argocd", "carol")), lab.rng.choice(("ci", "alice"))
    await lab.apply(
        objects.config_map("kube-system", "cilium-config", **{"tunnel-protocol": "geneve", "debug": "false"})
    )
    agent = every(5, getting(path("Node")))
    rules = ("", "nodes,pods", "get,list,watch")
    await lab.controller(*AGENT, agent, rules, kind="DaemonSet", config="cilium-config", tag=OLD_FLOWS)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PREFETCH="50"))
    await lab.app(namespace, broker, like=App("", serves=False), kind="StatefulSet", replicas=3)
    like = App("", upstreams=((namespace, broker),), failing=flows.lost, fails_with=lambda _: "504")
    await lab.app(namespace, name, like=like, replicas=5, tag="4.0.3", config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.start(flows.run())
    yield
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"PREFETCH": "80"}})
    await lab.pause(lab.rng.uniform(4, 7))
    [container] = lab.world["DaemonSet"][AGENT]["spec"]["template"]["spec"]["containers"]
    image = f"{container['image'].rsplit(':', 1)[0]}:{OTHER_FLOWS}"
    body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
    await lab.culprit(by, "update", "DaemonSet", *AGENT, body)


@dataclass
class _Database:
    """A primary and its replica, and the agent beside each: who leads is written in a ConfigMap."""

    namespace: str
    name: str
    log_bytes: float = USUAL_BYTES
    unread: bool = False
    """Whether the subscriber outside has stopped to read: what it has not read is kept for it."""
    full: datetime | None = None

    async def grow(self, rate: float) -> None:
        while True:
            await asyncio.sleep(0.5)
            if self.unread:
                self.log_bytes = min(DISK_BYTES, self.log_bytes + rate / 2)
            if self.log_bytes >= DISK_BYTES:
                self.full = self.full or now()

    @property
    def is_up(self) -> bool:
        """It starts, is promoted, writes, and ends for want of room."""
        return self.full is None or (now() - self.full).total_seconds() % ENDS_AFTER > RECOVERS

    def check(self, container: Container) -> Problem | None:
        if self.is_up or container.pod["metadata"].get("labels", {}).get(ROLE) != "master":
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503")

    async def lead(self, process: Process) -> None:
        """As Patroni: a primary that starts again in its time stays the primary."""
        me, where = process.see().pod["metadata"]["name"], path("ConfigMap", self.namespace, f"{self.name}-leader")
        found = await process.api.call("GET", where)
        if not found.ok:
            return
        leader = found.body["metadata"].get("annotations", {}).get("leader", me)
        state = "running" if self.is_up or leader != me else "starting"
        if leader == me:
            notes = {"leader": me, "renewTime": stamp(now()), "ttl": "30"}
            await process.api.call("PATCH", where, {"metadata": {"annotations": notes}})
        role = "master" if leader == me else "replica"
        status = json.dumps({"role": role, "state": state, "xlog_location": int(2**40 + self.log_bytes)})
        body = {"metadata": {"labels": {ROLE: role}, "annotations": {"status": status}}}
        await process.api.call("PATCH", path("Pod", self.namespace, me), body)


@family(
    "A subscriber outside does not read a database's log any more, which is kept for it until the disk is full. The"
    " primary ends, starts from its log, is promoted, ends again, and is never away for long enough to lose its lead.",
    culprit=False,
    joined=30,
)
async def unread_log(lab: Lab) -> AsyncIterator[None]:
    """As users of Patroni tell of a primary whose disk for the log is full (patroni 1663, August 2020)."""
    namespace, name = lab.rng.choice((("shop", "orders"), ("payments", "bookings"), ("media", "playlists")))
    database, by = _Database(namespace, f"{name}-db"), lab.rng.choice(("ci", "carol"))
    await lab.apply(objects.config_map(namespace, f"{database.name}-leader"))
    rules = ("", "pods,configmaps", "get,list,patch")
    like = await lab.controller(
        namespace, database.name, every(2, database.lead), rules, kind="StatefulSet", replicas=2, tag="12.4"
    )
    like.check = database.check
    selector = {"app.kubernetes.io/name": database.name, ROLE: "master"}
    await lab.edit("admin", "Service", namespace, database.name, {"spec": {"selector": selector}})
    await lab.until(lambda: backends(lab.world, namespace, database.name))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
    await lab.app(namespace, name, like=App("", upstreams=((namespace, database.name),)), replicas=3, config=name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name)
    lab.measure("pg_wal_size_bytes", lambda: database.log_bytes, namespace=namespace, service=database.name)
    lag = lambda: database.log_bytes - USUAL_BYTES  # noqa: E731
    series = "pg_replication_slots_pg_wal_lsn_diff"
    lab.measure(series, lag, namespace=namespace, service=database.name, slot_name="warehouse")
    lab.alert_lacking(namespace, name, seconds=5)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(database.grow(lab.rng.uniform(2.4, 3.2) * 2**28))
    yield
    database.unread = True
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit(by, "ConfigMap", namespace, name, {"data": {"POOL_SIZE": "30"}})
