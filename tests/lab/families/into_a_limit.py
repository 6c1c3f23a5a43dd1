"""What is more than there is room for: addresses of Services, what an edge keeps from an origin, told events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.load import alert_on_load
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

RANGE = "10.96.0.0/26"
"""Of addresses for Services: 62 of them, a few of which the cluster has taken for itself."""
FIRST, LATE_SECONDS = 16, 12.0
"""Workspaces that are there before, and for how long a further one may be without its Service."""
FAULTY, FAULTY_SHARE = "7.3.0", 0.5
WATCHDOG, LINES = "node-watchdog", 9.0
"""What reads the logs of nodes, and about how many lines a second of each tell of nothing bad."""
FAULTS = 0.01
"""The share of lines that do."""
HARMLESS = (
    "kubelet: no error of the runtime since the last look",
    "chronyd: estimated error 0.000012 seconds",
    "systemd: started check for file system errors",
)


@dataclass
class _Workspaces:
    """Each that is ordered gets a Service of its own, which an operator makes."""

    lab: Lab
    kind: Kind
    waiting: dict[str, datetime] = field(default_factory=dict)

    async def order(self, by: str) -> None:
        number = len(self.lab.world[self.kind.name])
        meta = {"namespace": "workspaces", "name": f"ws-{number:03}-{self.lab.rng.randrange(16**4):04x}"}
        spec = {"size": self.lab.rng.choice(("small", "small", "large"))}
        body = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        await self.lab.who[by].must("POST", self.kind.path("workspaces"), body)

    async def grow(self, by: str, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds * self.lab.rng.uniform(0.6, 1.4))
            await self.order(by)

    async def keep(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path("workspaces"))
        found = await process.api.call("GET", path("Service", "workspaces"))
        there = {one["metadata"]["name"] for one in found.body.get("items", [])}
        for one in listed.body.get("items", []):
            name = one["metadata"]["name"]
            if name in there:
                self.waiting.pop(name, None)
                continue
            self.waiting.setdefault(name, now())
            made = await process.api.call("POST", path("Service", "workspaces"), objects.service("workspaces", name))
            if not made.ok:
                about: Json = {"kind": self.kind.name, **one}
                why = str(made.body.get("message"))
                await tell(process, about, "Warning", "CreateServiceFailed", why, by="workspace-operator")

    def are_late(self) -> bool:
        return any(now() - since > timedelta(seconds=LATE_SECONDS) for since in self.waiting.values())


@family(
    "Each workspace that somebody orders has a Service of its own, and each Service an address of a range that was"
    " chosen when the cluster was small. Orders go on as ever until there is none left, and new workspaces wait.",
    flags=(f"--service-cluster-ip-range={RANGE}",),
    culprit=False,
    joined=27,
)
async def service_addresses(lab: Lab) -> AsyncIterator[None]:
    """As the API server answers: the range is full."""
    group = "spaces.corp.example"
    kind = await lab.custom("Workspace", group, LOOSE)
    await lab.served(kind)
    await lab.namespace("workspaces")
    portal, operator = "portal", "workspace-operator"
    await lab.apply(objects.account("workspaces", portal))
    await lab.apply(objects.cluster_role(portal, (group, kind.plural, "create")))
    await lab.apply(objects.binding(portal, portal, "workspaces", portal))
    await lab.app("workspaces", portal, account=portal, replicas=1)
    await lab.robot(portal, "workspaces", portal, "portal/3.0")
    spaces = _Workspaces(lab, kind)
    rules = (group, kind.plural, "list"), ("", "services", "list,create"), ("", "events", "create")
    app = await lab.controller("platform", operator, every(2, spaces.keep), *rules, replicas=1, tag="2.2.0")
    for _ in range(FIRST):
        await spaces.order(portal)
    await lab.until(lambda: sum(where == "workspaces" for where, _ in lab.world["Service"]) > FIRST)
    failing = lab.rate(lab.refused(app.image, 422, 500), 0.2, seconds=12)
    of_operator = {"namespace": "platform", "service": operator}
    lab.alert("WorkspaceOperatorErrors", failing, "requests of workspace-operator fail", 8, **of_operator)
    lab.alert("WorkspacesLate", spaces.are_late, "a workspace has been ordered and is not there", 4, **of_operator)
    lab.start(spaces.grow(portal, 14))
    yield
    lab.start(spaces.grow(portal, 1.3))  # the first days of a term


@dataclass
class _Edge:
    """A network of caches in front, of somebody else: it asks the origin for what it does not keep."""

    wanted: float
    kept: float = 0.9

    def asked(self) -> float:
        return self.wanted * (1 - self.kept)


@family(
    "Who runs the caches in front of a site empties them by a fault of its own: all that users ask for comes to the"
    " site itself, which was never made for that.",
    culprit=False,
    joined=27,
)
async def edge_emptied(lab: Lab) -> AsyncIterator[None]:
    """As sites tell of the days on which their network of caches was purged, or passed all on."""
    namespace, name, store = lab.rng.choice(
        (("shop", "storefront", "articles"), ("media", "magazine", "stories"), ("search", "portal", "entries"))
    )
    edge, stands = _Edge(lab.rng.uniform(500, 700)), 45.0
    team = lab.rng.choice(("ci", "argocd", "alice"))

    def short(container: Container) -> float:
        too_much = max(0.0, 1 - stands * len(backends(lab.world, namespace, name)) / edge.asked())
        return max(too_much, FAULTY_SHARE if container.tag == FAULTY else 0.0)

    def late(_: Container) -> float:
        """What waits in its queue."""
        return 0.8 if edge.asked() > stands * len(backends(lab.world, namespace, name)) else 0.0

    await lab.app(namespace, store, replicas=2)
    upstreams = ((namespace, store),)
    like = App("", upstreams=upstreams, asked=edge.asked, failing=short, latency=late, capacity=1000)
    like.fails_with = lambda _: "503"
    await lab.app(namespace, name, like=like, replicas=3, tag="7.2.4")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    async with before(lab, days=lab.rng.randrange(20, 50)) as then:
        answer = await lab.roll(team, namespace, name, FAULTY)
        await then.fires()
        await lab.roll(team, namespace, name, "7.2.4")
        await rolled(lab, namespace, name, "7.2.4")
        await then.is_well()
        then.judge(answer, "it")

    async def fill() -> None:
        """Caches fill again with what is answered, which is little."""
        while True:
            await asyncio.sleep(1)
            edge.kept = min(0.9, edge.kept + 0.001)

    yield
    await lab.roll(team, namespace, name, "7.3.1")
    await lab.pause(lab.rng.uniform(9, 14))
    edge.kept = lab.rng.uniform(0.02, 0.15)
    lab.start(fill())


@family(
    "What reads the logs of all nodes gets a new version, which tells of each line that has a word in it where the old"
    " one told of each fault: it writes an event for nearly every line, and the API server has far more to write.",
    joined=27,
)
async def event_per_line(lab: Lab) -> AsyncIterator[None]:
    """As users of such agents tell of a pattern that is too wide."""
    name = WATCHDOG

    async def read(process: Process) -> None:
        """Of all lines of a moment one that it minds, if there is one."""
        node = process.see().pod["spec"]["nodeName"]
        pod = process.see().pod["metadata"]
        is_wide = process.tag.startswith("0.9.")
        if not is_wide and process.rng.random() > FAULTS:
            return
        line = process.rng.choice(HARMLESS) if is_wide else "chronyd: selected source is not reachable any more"
        about: Json = {"kind": "Pod", "metadata": {key: pod[key] for key in ("namespace", "name", "uid")}}
        await tell(process, about, "Warning", "LogPatternMatched", f"{node}: {line}", by=name)

    rules = ("", "events", "create"), ("", "nodes", "get")
    reads = every(1 / LINES, read)
    await lab.controller("kube-system", name, reads, *rules, kind="DaemonSet", tag="0.8.19")
    alert_on_load(lab)
    yield
    [container] = lab.world["DaemonSet"]["kube-system", name]["spec"]["template"]["spec"]["containers"]
    image = f"{container['image'].rsplit(':', 1)[0]}:0.9.0"
    body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
    by = lab.rng.choice(("argocd", "flux", "bob"))
    await lab.culprit(by, "update", "DaemonSet", "kube-system", name, body)
