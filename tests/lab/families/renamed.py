"""What was told of a name that somebody changed: whoever was asked under the old one is asked for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

EVERY_SECONDS, TIMEOUT_SECONDS = 3.0, 6.0
"""Between two statements for all hosts of a cluster, and for how long whoever gave one waits."""
QUEUE = "/clickhouse/task_queue/ddl/query-"


@dataclass
class _Installation:
    """Hosts that do what all of them are to do in the order of a queue, which is kept elsewhere and outlives them."""

    lab: Lab
    namespace: str
    name: str
    kind: Kind
    queue: list[list[str]] = field(default_factory=list)
    """The hosts that each statement was for."""
    done: dict[str, int] = field(default_factory=dict)
    """How many of the queue a host is through with."""
    late: str = ""
    """The statement that somebody waits for in vain."""

    async def sync(self, process: Process) -> None:
        """As its operator: for each host a StatefulSet and a Service of its own, which have the cluster's name."""
        found = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        if not found.ok:
            return
        wanted = self.hosts(found.body["spec"])
        sets, services = path("StatefulSet", self.namespace), path("Service", self.namespace)
        mark = {"clickhouse.altinity.com/chi": self.name}
        listed = await process.api.call("GET", f"{sets}?labelSelector=clickhouse.altinity.com/chi={self.name}")
        there = {one["metadata"]["name"] for one in listed.body.get("items", [])}
        for host in [host for host in wanted if host not in there]:
            made = objects.deployment(self.namespace, host, f"{self.image}:23.3", replicas=1, kind="StatefulSet")
            made["metadata"]["labels"] |= mark
            made["spec"]["template"]["metadata"]["labels"] |= mark
            await process.api.call("POST", services, objects.service(self.namespace, host))
            await process.api.call("POST", sets, made)
        for host in there - set(wanted) if listed.ok else ():
            await process.api.call("DELETE", f"{sets}/{host}")
            await process.api.call("DELETE", f"{services}/{host}")

    @property
    def image(self) -> str:
        return f"registry.corp.example/{self.namespace}/clickhouse-server"

    def hosts(self, spec: Json) -> list[str]:
        [cluster] = spec["configuration"]["clusters"]
        replicas = range(cluster["layout"]["replicasCount"])
        return [f"chi-{self.name}-{cluster['name']}-0-{number}" for number in replicas]

    async def state(self) -> None:
        """Somebody makes a table of each day's events on all hosts, and waits until each of them has it."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            spec = self.lab.world[self.kind.name][self.namespace, self.name]["spec"]
            hosts = self.hosts(spec)
            if not all(backends(self.lab.world, self.namespace, host) for host in hosts):
                continue  # one that is being made is not asked yet
            self.queue.append(hosts)
            for host in hosts:
                self._work(host)
            if all(self.done[host] == len(self.queue) for host in hosts):
                self.late = ""
            else:
                await asyncio.sleep(TIMEOUT_SECONDS)
                self.late = f"{QUEUE}{len(self.queue):010}"

    def _work(self, host: str) -> None:
        """It looks for itself among the hosts of each, and begins anew at a name that is not found."""
        self.done.setdefault(host, 0)
        for asked in self.queue[self.done[host] :]:
            if any((self.namespace, one) not in self.lab.world["Service"] for one in asked):
                return
            self.done[host] += 1

    def check(self, container: Container) -> Problem | None:
        """As whoever states."""
        if not self.late:
            return None
        waited = "is executing longer than distributed_ddl_task_timeout (=180) seconds"
        failed = f"Code: 159. DB::Exception: Watching task {self.late} {waited}"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 500 ({failed})")


@family(
    "A cluster of a database for events gets another name, and a second replica: its operator makes hosts of that name"
    " in place of the old one, and as the queue of statements for all hosts still has that, none does any of them.",
    joined=14,
)
async def renamed_cluster(lab: Lab) -> AsyncIterator[None]:
    """As a user of Altinity's operator for ClickHouse tells (2023)."""
    namespace, name, client = lab.rng.choice(
        (("search", "clicks", "click-loader"), ("shop", "bi", "bi-loader"), ("media", "views", "view-loader"))
    )
    group = "clickhouse.altinity.com"
    kind = await lab.custom("ClickHouseInstallation", group, ANY)
    installation = _Installation(lab, namespace, name, kind)
    lab.apps[installation.image] = App(installation.image)

    def clusters(called: str, replicas: int) -> Json:
        layout = {"shardsCount": 1, "replicasCount": replicas}
        return {"spec": {"configuration": {"clusters": [{"name": called, "layout": layout}]}}}

    await lab.served(kind)
    meta, old = {"namespace": namespace, "name": name}, f"{name}-clickhouse"
    made = {"apiVersion": f"{group}/v1", "kind": kind.name, "metadata": meta, **clusters(old, 1)}
    zookeeper = {"nodes": [{"host": "zookeeper-headless.zookeeper", "port": 2181}]}
    made["spec"]["configuration"] |= {"zookeeper": zookeeper}
    await lab.apply(made)
    rules = ((group, "clickhouseinstallations", "get"), ("apps", "statefulsets", "*"), ("", "services", "*"))
    await lab.controller("platform", "clickhouse-operator", every(1, installation.sync), *rules, replicas=1)
    await lab.apply(objects.service(namespace, f"clickhouse-{name}"))
    all_hosts = {"spec": {"selector": {"app.kubernetes.io/name": None, "clickhouse.altinity.com/chi": name}}}
    await lab.edit("admin", "Service", namespace, f"clickhouse-{name}", all_hosts)
    await lab.until(lambda: backends(lab.world, namespace, f"clickhouse-{name}"))
    like = App("", check=installation.check, upstreams=((namespace, f"clickhouse-{name}"),))
    await lab.app(namespace, client, like=like)
    lab.start(installation.state())
    lab.alert_lacking(namespace, client)
    yield
    by, new = lab.rng.choice(("alice", "bob", "argocd")), lab.rng.choice(("events", "main", "analytics"))
    body = clusters(new, 2)
    await lab.culprit(by, "update", kind.name, namespace, name, body)
