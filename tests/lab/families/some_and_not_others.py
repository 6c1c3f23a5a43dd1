"""Some and not others: users whom no packet reaches, and what runs on one machine of six."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.alerts import is_lost, pods
from tests.lab.api import now, path
from tests.lab.apps import App, Container, Process
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.network import backends, unserved
from tests.lab.programs import event, every
from tests.lab.scenario import family

# -- the public network

PLACES = ("frankfurt", "dublin", "stockholm", "milan", "warsaw")
"""From where what is published is asked for, each half a minute."""


@dataclass
class _Edge:
    """The provider's network between its users and the load balancer: those of some places are lost in it."""

    lab: Lab
    share: float
    """Of all users, those of the places that are lost."""
    lost: frozenset[str] = frozenset()

    def asked(self, usual: float) -> float:
        """What still comes."""
        return usual * (1 - self.share) if self.lost else usual

    def fails(self, host: str, place: str) -> bool:
        return place in self.lost or bool(unserved(self.lab.world, host))


@family(
    "No culprit. The provider's load balancer, or its network in front of it, loses what comes from some places. The"
    " cluster is well, each request that gets there is answered, and fewer get there: users of those places see nothing"
    " of it.",
    culprit=False,
    joined=99,
)
async def not_from_there(lab: Lab) -> AsyncIterator[None]:
    """As those tell who saw fewer orders and no error, and read of it on their provider's page an hour later."""
    fronts = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
    homes = lab.rng.sample(sorted(fronts), 2)
    lost = frozenset(lab.rng.sample(PLACES, lab.rng.choice((1, 2, 2, 3))))
    edge, minor, placed = _Edge(lab, lab.rng.uniform(0.35, 0.75)), lab.rng.randrange(2, 40), 0.9
    rates = {home: lab.rng.uniform(16, 34) for home in homes}
    for home in homes:
        lab.apps[f"registry.corp.example/{home}/{fronts[home]}"].asked = partial(edge.asked, rates[home])
        host = await publish(lab, home, fronts[home])
        lab.alert_errors(home, fronts[home])
        lab.alert_ingress_errors(home, home)
        usual, url = rates[home], f"https://{host}"
        told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": url}
        for place in PLACES:
            fails = partial(edge.fails, host, place)
            lab.measure("probe_success", lambda fails=fails: float(not fails()), **told, probe_from=place)  # type: ignore[misc]
        some = lambda host=host: sum(edge.fails(host, one) for one in PLACES) >= 1  # noqa: E731
        summary = f"{url} is not answered from at least one place"
        lab.alert("ProbeFailed", some, summary, 8, job="blackbox", instance=url)
    first, usual = homes[0], rates[homes[0]]
    orders = lab.adding_up(lambda: placed * edge.asked(usual) / 4)
    lab.measure("conversions_total", orders, "counter", namespace=first, service=fronts[first])
    few = lambda: edge.asked(usual) < 0.6 * usual  # noqa: E731
    summary = f"{first}/{fronts[first]} has far fewer conversions than at this hour a week ago"
    lab.alert("ConversionsBelowLastWeek", few, summary, 12, namespace=first, service=fronts[first])
    await lab.until(lab.is_well)
    controller = ("ingress-nginx", "ingress-nginx")
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), first, fronts[first], f"1.{minor}.3")
    await lab.pause(lab.rng.uniform(5, 9))
    if lab.rng.random() < 0.5:
        note = {"nginx.ingress.kubernetes.io/proxy-read-timeout": lab.rng.choice(("30", "90"))}
        await lab.edit(lab.rng.choice(TEAMS), "Ingress", first, first, {"metadata": {"annotations": note}})
    else:
        await lab.roll(lab.rng.choice(("flux", "argocd")), *controller, "1.0.1")
    await lab.pause(lab.rng.uniform(6, 12))
    edge.lost = lost
    await lab.pause(lab.rng.uniform(3, 6))
    body = {"data": {"TIMEOUT_MS": lab.rng.choice(("600", "1200"))}}
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", homes[1], fronts[homes[1]], body)


# -- a machine

TOLERATED = tuple(f"--default-{what}-toleration-seconds=5" for what in ("not-ready", "unreachable"))
"""After five minutes that a node has not been heard pods are made elsewhere, which are five seconds here."""
DETECTOR = ("kube-system", "node-problem-detector")
BLOCKED = ("kworker/u32:3", "containerd-shim", "jbd2/nvme0n1p1", "runc", "java")


@dataclass
class _Machine:
    """One whose disk hardly answers, and whose kernel hangs in the end where ``hangs``."""

    lab: Lab
    node: str
    hangs: bool
    begun: float = float("inf")
    seconds: float = 10.0
    """Until it is as bad as it gets."""
    said: list[str] = field(default_factory=list)
    """By its kernel, and told by nobody yet."""

    def badness(self) -> float:
        return max(0.0, min(1.0, (now().timestamp() - self.begun) / self.seconds))

    def _is_there(self, container: Container) -> bool:
        return bool(container.pod["spec"].get("nodeName") == self.node)

    def waits(self, container: Container) -> float:
        return 4.5 * self.badness() if self._is_there(container) else 0.0

    def fails(self, container: Container) -> float:
        """Requests that are given up, as what they read or write takes too long."""
        return 0.6 * self.badness() ** 2 if self._is_there(container) else 0.0

    def in_flight(self, node: str) -> float | None:
        """How much its disk has not done yet of what it was asked for, as the agent of a node tells it."""
        if node in self.lab.outside.dead_nodes:
            return None
        return round(47 * self.badness()) if node == self.node else 0.0

    async def report(self, process: Process) -> None:
        """As what reads the log of a node's kernel, for as long as it runs there."""
        node = process.see().pod["spec"]["nodeName"]
        if node != self.node or not self.said:
            return
        meta = {"namespace": "default", "name": node, "uid": node}
        made = event({"kind": "Node", "metadata": meta}, "Warning", "TaskHung", self.said[0], by="kernel-monitor")
        del made["involvedObject"]["namespace"]
        if (await process.api.call("POST", path("Event", "default"), made)).ok:
            self.said.pop(0)

    async def fail(self) -> None:
        self.begun, rng = now().timestamp(), self.lab.kubelets.rng
        for _ in range(3):
            await asyncio.sleep(rng.uniform(2.5, 4.0))
            task = f"{rng.choice(BLOCKED)}:{rng.randrange(300, 90000)}"
            self.said.append(f"INFO: task {task} blocked for more than 120 seconds.")
        await asyncio.sleep(rng.uniform(1, 5))
        if self.hangs:
            self.lab.kubelets.crash(self.node)
        else:
            self.lab.outside.stalled.add(self.node)


@family(
    "No culprit. The disk of one machine is slow before it fails, and its kernel hangs, or its runtime does not answer"
    " any more. What runs there answers late and then not at all, and is away until the node is given up and others"
    " have taken over.",
    flags=TOLERATED,
    culprit=False,
    joined=99,
)
async def slow_before_it_fails(lab: Lab) -> AsyncIterator[None]:
    """As whoever has some hundred machines meets one of every few weeks."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "order-history", "history-page", "history-export"),
            ("payments", "receipts", "receipt-page", "receipt-mails"),
            ("media", "clips", "clip-page", "clip-stats"),
            ("search", "documents", "document-page", "document-feed"),
        )
    )
    minor, machine = lab.rng.randrange(2, 30), _Machine(lab, "", lab.rng.random() < 0.5)
    machine.seconds = lab.rng.uniform(8, 14)
    program, rights = every(1.0, machine.report), ("", "events", "create,patch")
    await lab.controller(*DETECTOR, program, rights, kind="DaemonSet", tag="v0.8.21")
    for home, names in APPS.items():
        for one in names:
            app = lab.apps[f"registry.corp.example/{home}/{one}"]
            app.latency, app.failing = machine.waits, machine.fails
    like = App("", asked=lambda: 24.0, latency=machine.waits, failing=machine.fails, fails_with=lambda _: "504")
    await lab.app(namespace, name, like=like, replicas=4, tag=f"3.{minor}.0")
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.4.2", config=other)
    await rolled(lab, namespace, other, "1.4.2")
    await set_before(lab, namespace, front, name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    working = {one["spec"]["nodeName"] for where, who, _ in ROBOTS.values() for one in pods(lab.world, where, who)}
    used = [one["spec"]["nodeName"] for one in pods(lab.world, namespace, name)]
    machine.node = lab.rng.choice(sorted(set(used) - working) or sorted(set(used)))
    for node in NODES:
        told = {"namespace": "monitoring", "service": "node-agent", "node": node}
        lab.measure("node_disk_io_now", partial(machine.in_flight, node), **told, device="nvme0n1")
    lost = lambda: is_lost(lab.world, machine.node)  # noqa: E731
    lab.alert("KubeNodeNotReady", lost, f"{machine.node} has not been ready for a while", 10, node=machine.node)
    for one in (name, front):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.4.3")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "30s"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 10))
    lab.start(machine.fail())
