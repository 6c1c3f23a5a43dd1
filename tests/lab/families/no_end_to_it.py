"""What does not come to an end: logs that are kept until they are taken, and objects that are written as one looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Key, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import NODES, Lab
from tests.lab.programs import both, changes, leading
from tests.lab.scenario import family

# -- logs that are kept

AGENT, CHECKSUM, GIB = ("monitoring", "fluent-bit"), "checksum/config", 1024.0
FULL_BELOW = 10 * GIB
"""What has to be free on a node's disk, in MiB."""
IN_MEMORY = """[SERVICE]
    Flush        5
    Log_Level    info
    HTTP_Server  On
[INPUT]
    Name           tail
    Path           /var/log/containers/*.log
    Parser         cri
    Mem_Buf_Limit  16MB
[OUTPUT]
    Name         loki
    Match        *
    Host         loki-gateway.monitoring.svc
    Port         80
    Retry_Limit  3
"""
STORED = "    HTTP_Server  On\n    storage.path  /var/log/flb-storage/\n    storage.sync  normal\n"
ON_DISK = (
    IN_MEMORY.replace("    HTTP_Server  On\n", STORED)
    .replace("    Mem_Buf_Limit  16MB\n", "    storage.type   filesystem\n")
    .replace("Retry_Limit  3", "Retry_Limit  no_limits")
)


@dataclass
class _Agents:
    """Those of all nodes: what takes the logs refuses a part of them, as each may send only so much in a second."""

    lab: Lab
    refused: float
    """MiB a second on each node."""
    free: dict[str, float]
    mark: str = ""
    """The checksum of the settings by which a process keeps what is refused."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            for node in self._keeping():
                self.free[node] = max(0.0, self.free[node] - self.refused * self.lab.kubelets.rng.uniform(0.7, 1.3))
                if self.free[node] < FULL_BELOW:
                    self.lab.outside.full_disks.add(node)

    def _keeping(self) -> list[str]:
        there = (one.container for one in self.lab.kubelets.running() if one.app.image.endswith("/fluent-bit"))
        return [
            str(one.pod["spec"]["nodeName"])
            for one in there
            if one.pod["metadata"].get("annotations", {}).get(CHECKSUM) == self.mark and one.seconds >= self.lab.lag
        ]

    def available(self, node: str) -> float:
        return self.free[node] * 2**20

    def again(self) -> float:
        """Chunks a second that are tried again: what is given up is so after three times."""
        return 1.5 * len(NODES) + 6.0 * len(self._keeping())

    def given_up(self) -> float:
        return 0.5 * (len(NODES) - len(self._keeping()))


def _presses(lab: Lab) -> bool:
    """Whether a node says that its disk has no room."""
    conditions = (one for node in lab.world["Node"].values() for one in node["status"].get("conditions", ()))
    return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in conditions)


@family(
    "So that no line is lost, what collects the logs on each node is told to keep on disk what it cannot send, and to"
    " try for ever. A part of it has always been refused, and thrown away: the disks of the nodes fill up with it, and"
    " pods are evicted.",
    joined=92,
)
async def nothing_may_be_lost(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found gigabytes in /var/log/flb-storage."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "colour-guide", "colour-page"),
            ("payments", "receipts", "receipt-page"),
            ("media", "credits", "credit-page"),
            ("search", "related-terms", "terms-page"),
        )
    )
    by, minor = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.randrange(2, 30)
    agents = _Agents(lab, lab.rng.uniform(450, 700), {node: lab.rng.uniform(19, 30) * GIB for node in NODES})
    home, agent = AGENT
    image = f"registry.corp.example/{home}/{agent}"
    lab.apps[image] = App(image, serves=False)
    await lab.apply(objects.config_map(home, agent, **{"fluent-bit.conf": IN_MEMORY}))
    made = objects.deployment(home, agent, f"{image}:4.0.8", kind="DaemonSet", config=agent)
    template = made["spec"]["template"]
    template["metadata"]["annotations"] = {CHECKSUM: f"{crc32(IN_MEMORY.encode()):08x}"}
    template["spec"]["volumes"].append({"name": "varlog", "hostPath": {"path": "/var/log"}})
    template["spec"]["containers"][0]["volumeMounts"].append({"name": "varlog", "mountPath": "/var/log"})
    await lab.apply(made)
    await rolled(lab, home, agent, "4.0.8")
    await lab.app(namespace, name, like=App("", asked=lambda: 17.0), replicas=4, tag=f"2.{minor}.0")
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await set_before(lab, namespace, front, name)
    of_agent = {"namespace": home, "service": agent}
    counted = (("retries", agents.again), ("retries_failed", agents.given_up))
    for what, rate in counted:
        lab.measure(f"fluentbit_output_{what}_total", lab.adding_up(rate), "counter", **of_agent)
    for node in NODES:
        told = {"namespace": home, "service": "node-agent", "node": node, "mountpoint": "/"}
        lab.measure("node_filesystem_avail_bytes", partial(agents.available, node), **told)
    lab.alert("KubeNodeDiskPressure", lambda: _presses(lab), "a node's disk has no room", 8)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(agents.run())
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, front, {"data": {"PAGE_SIZE": "45"}})
    await lab.pause(lab.rng.uniform(3, 8))
    agents.mark = f"{crc32(ON_DISK.encode()):08x}"
    await lab.culprit(by, "update", "ConfigMap", home, agent, {"data": {"fluent-bit.conf": ON_DISK}})
    annotated = {"spec": {"template": {"metadata": {"annotations": {CHECKSUM: agents.mark}}}}}
    await lab.culprit(by, "update", "DaemonSet", home, agent, annotated)
    lab.start(afterwards())


# -- objects that are written as one looks

WORKERS, MANY = 6, 25
"""How many objects it looks at at once, and from how many requests of programs a second on there are too many."""


@dataclass
class _Looking:
    """A controller that looks at each object of its kind as it is told of it, and notes how that is."""

    lab: Lab
    kind: Kind
    noting: str
    """From this version on it notes when it has looked."""
    asks: float
    """Requests a second that its client lets through."""
    turn: float = 0.0
    """When its client lets the next request through."""

    async def run(self, process: Process) -> None:
        waiting: dict[Key, None] = {}

        def told(one: Json) -> None:
            waiting[one["metadata"]["namespace"], one["metadata"]["name"]] = None

        listening = partial(changes, where=self.kind.path(), told=told, of_all=True)
        await both(listening, *([partial(self._work, waiting)] * WORKERS))(process)

    async def _work(self, waiting: dict[Key, None], process: Process) -> None:
        while True:
            if not waiting:
                await asyncio.sleep(0.1)
                continue
            key = next(iter(waiting))
            del waiting[key]
            await self._look(process, *key)

    async def _look(self, process: Process, namespace: str, name: str) -> None:
        await self._wait()
        found = await process.api.call("GET", self.kind.path(namespace, name))
        await self._wait()
        listed = await process.api.call("GET", f"{path('ConfigMap', namespace)}?labelSelector=managed-by={name}")
        if not (found.ok and listed.ok):
            return
        status: Json = {"phase": "Ready", "objects": len(listed.body["items"])}
        if process.tag == self.noting and (now() - process.started).total_seconds() >= process.lag:
            status["lastChecked"] = stamp(now())
        there = found.body.get("status", {})
        if any(there.get(key) != value for key, value in status.items()):
            await self._wait()
            await process.api.call("PATCH", self.kind.path(namespace, name), {"status": status})

    async def _wait(self) -> None:
        at = now().timestamp()
        self.turn = max(at, self.turn + 1 / self.asks)
        await asyncio.sleep(self.turn - at)


@family(
    "A controller of the house notes in each of its objects when it has looked at it last, from its new version on. It"
    " looks at an object whenever that is changed, and so also after each of its own notes: the API server gets many"
    " times the requests, a third of which are writes.",
    joined=92,
)
async def writes_what_it_watches(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had left out a predicate for the generation."""
    kind, group, name = lab.rng.choice(
        (
            ("FeatureFlag", "flags.corp.example", "flag-controller"),
            ("Dashboard", "grafana.corp.example", "dashboard-controller"),
            ("ServiceAccess", "access.corp.example", "access-controller"),
            ("Dataset", "data.corp.example", "dataset-controller"),
        )
    )
    by, minor, number = lab.rng.choice(("argocd", "flux", "ci")), lab.rng.randrange(2, 30), lab.rng.randrange(10, 16)
    old, new = f"0.{minor}.3", f"0.{minor + 1}.0"
    made = await lab.custom(kind, group, ANY)
    await lab.served(made)
    homes = ("shop", "payments", "search", "media")
    for one in range(number):
        meta = {"namespace": homes[one % len(homes)], "name": f"{kind.lower()}-{one:02}"}
        spec = {"owner": f"team-{one % 5}", "enabled": True}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": spec})
    looking = _Looking(lab, made, new, lab.rng.uniform(80, 110))
    program = both(looking.run, leading("platform", name))
    rules = (
        (group, made.plural, "get,list,watch,patch"),
        ("", "configmaps", "get,list,watch"),
        (
            "coordination.k8s.io",
            "leases",
            "*",
        ),
    )
    await lab.apply(objects.config_map("platform", name, WORKERS=f"{WORKERS}", LOG_LEVEL="info"))
    await lab.controller("platform", name, program, *rules, replicas=1, tag=old, config=name)
    await rolled(lab, "platform", name, old)
    await lab.until(lambda: all("status" in one for one in lab.world[kind].values()))
    told = {"namespace": "platform", "service": name, "controller": kind.lower()}
    image = f"registry.corp.example/platform/{name}"

    def reconciles() -> float:
        """Each ends with a write, from the new version on."""
        there = pods(lab.world, "platform", name)
        is_new = any(one["spec"]["containers"][0]["image"] == f"{image}:{new}" for one in there)
        return looking.asks / 3 if is_new else 0.1

    counted = lab.adding_up(reconciles)
    lab.measure("controller_runtime_reconcile_total", counted, "counter", **told, result="success")
    summary = "the API server gets several times as many requests as is usual"
    lab.alert("KubeAPIServerRequestRateHigh", lab.rate(lab.requests, MANY), summary, 6, job="apiserver")
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.roll(lab.rng.choice(("ci", "argocd")), "platform", other, "1.6.2")

    other = lab.rng.choice(("link-checker", "cost-reporter", "backup-planner"))
    await lab.app("platform", other, like=App("", serves=False), replicas=1, tag="1.6.1")
    await rolled(lab, "platform", other, "1.6.1")
    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "platform", name, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(5, 10))
    flag = lab.rng.choice(sorted(lab.world[kind]))
    await lab.edit(lab.rng.choice(TEAMS), kind, *flag, {"spec": {"enabled": False}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, "platform", name, new, culprit=True)
    lab.start(afterwards())
