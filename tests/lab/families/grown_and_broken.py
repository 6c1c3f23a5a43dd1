"""Incidents without a culprit among the changes: a list that has grown too long, a disk that takes no more writes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import event, every, tell
from tests.lab.scenario import family
from tests.lab.statuses import second

RANGES = "nginx.ingress.kubernetes.io/whitelist-source-range"
MOST_BYTES, ROOM_BYTES = 262144, 7000
"""What all annotations of an object may have, and how much of it is left at first."""
SMALL, LARGE = (8, 20), (600, 900)
"""Ranges of addresses that a customer has."""


def _range(number: int) -> str:
    return f"100.{64 + number // 4096}.{number // 16 % 256}.{number % 16 * 16}/28"


@dataclass
class _Customers:
    """Whose addresses are let in by an Ingress: what keeps the list writes all of it into an annotation."""

    namespace: str
    known: int = 0
    """Ranges that customers have; the first so many of the plan."""
    written: int = 0

    def fill(self, most: int) -> None:
        """As many as there is room for."""
        while (most := most - len(_range(self.known)) - 1) > 0:
            self.known += 1

    def waiting(self) -> float:
        return self.known - self.written

    async def write(self, process: Process) -> None:
        if not self.waiting():
            return
        where, known = path("Ingress", self.namespace, self.namespace), self.known
        body = {"metadata": {"annotations": {RANGES: ",".join(map(_range, range(known)))}}}
        answer = await process.api.call("PATCH", where, body)
        if answer.ok:
            self.written = known
            return
        found = await process.api.call("GET", where)
        if found.ok:
            about = {**found.body, "kind": "Ingress"}
            await tell(process, about, "Warning", "SyncFailed", answer.body.get("message", ""), by="allow-list")

    def turned_away(self, _: Container) -> float:
        """The share of requests that come from whom the Ingress does not know yet."""
        return 0.03 if self.waiting() else 0.0


@family(
    "The addresses of all customers stand in an annotation of one Ingress, and there are more from month to month. A"
    " large one joins, and all annotations of an object may have only so many bytes: the list is refused, and whoever"
    " is new is not let in.",
    culprit=False,
    joined=29,
)
async def annotation_full(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: whoever keeps a list in an annotation gets there in the end."""
    namespace, name = lab.rng.choice((("payments", "settlements"), ("search", "partner-search"), ("media", "feeds")))
    customers = _Customers(namespace)
    customers.fill(MOST_BYTES - ROOM_BYTES)
    like = App("", serves=False, failing=customers.turned_away, fails_with=lambda _: "403")
    await lab.app(namespace, name, like=like, replicas=3)
    await publish(lab, namespace, name)
    rules = ("networking.k8s.io", "ingresses", "get,patch"), ("", "events", "create")
    await lab.controller("platform", "allow-list", every(2, customers.write), *rules, replicas=1)
    await lab.until(lambda: not customers.waiting() and len(backends(lab.world, namespace, name)) == 3)

    async def join(between: tuple[int, int], pause: tuple[float, float]) -> None:
        await asyncio.sleep(lab.rng.uniform(*pause))
        customers.known += lab.rng.randrange(*between)

    async def join_by_and_by() -> None:
        while True:
            await join(SMALL, (6, 10))

    lab.start(join_by_and_by())
    lab.measure("allow_list_ranges_waiting", customers.waiting, namespace="platform", service="allow-list")
    summary = f"customers of {namespace}/{name} have been waiting to be let in for a while"
    holds = lambda: customers.waiting() > 0  # noqa: E731
    lab.alert("AllowListNotApplied", holds, summary, 9, namespace=namespace, ingress=namespace)
    yield
    lab.start(join(LARGE, (4, 9)))


STRATEGIC = "application/strategic-merge-patch+json"
WRITES = 0.5
"""The share of a store's requests that write."""


@dataclass
class _Disks:
    """The second disk of each machine, which has the data of what runs there; and who tells how it is."""

    lab: Lab
    read_only: str = ""
    """The node whose disk the kernel has mounted anew, for reading only."""
    told: Counter[str] = field(default_factory=Counter)

    def failing(self, container: Container) -> float:
        return WRITES if container.pod["spec"].get("nodeName") == self.read_only else 0.0

    async def tell(self, process: Process) -> None:
        """As node-problem-detector: a condition of the node, and an event as that changes."""
        node = process.see().pod["spec"]["nodeName"]
        is_bad = node == self.read_only
        mark = f"{node} {is_bad}"
        if self.told[mark]:
            return
        message = "EXT4-fs (nvme1n1): Remounting filesystem read-only" if is_bad else "Filesystem is not read-only"
        condition: Json = {
            "type": "ReadonlyFilesystem",
            "status": str(is_bad),
            "reason": "FilesystemIsReadOnly" if is_bad else "FilesystemIsNotReadOnly",
            "message": message,
            "lastTransitionTime": second(),
        }
        where = f"{path('Node', None, node)}/status"
        answer = await process.api.call("PATCH", where, {"status": {"conditions": [condition]}}, patch=STRATEGIC)
        self.told[mark] += answer.ok
        if is_bad and answer.ok:
            meta = {"namespace": "", "name": node, "uid": node}
            body = event(
                {"kind": "Node", "metadata": meta}, "Warning", condition["reason"], message, by="kernel-monitor"
            )
            await process.api.call("POST", path("Event", "default"), body)


@family(
    "The disk of one machine that has the data of its stores fails, and the kernel mounts it anew for reading only. The"
    " node is ready, and so is what runs there: each write that gets to it fails.",
    culprit=False,
    joined=29,
)
async def read_only_disk(lab: Lab) -> AsyncIterator[None]:
    """As those tell who run node-problem-detector: its condition ReadonlyFilesystem is there for it."""
    disks = _Disks(lab)
    stores = lab.rng.sample(
        (("shop", "sessions"), ("search", "profiles"), ("media", "drafts"), ("payments", "tokens")), 2
    )
    team = lab.rng.choice(("ci", "argocd", "bob"))
    rules = ("", "nodes/status", "patch"), ("", "events", "create")
    await lab.controller("kube-system", "node-problem-detector", every(2, disks.tell), *rules, kind="DaemonSet")
    for namespace, name in stores:
        like = App("", failing=disks.failing)
        await lab.app(namespace, name, like=like, kind="StatefulSet", replicas=4)
        await lab.app(namespace, f"{name}-api", like=App("", upstreams=((namespace, name),)), tag="3.0.2")
        await publish(lab, namespace, f"{name}-api")
        lab.alert_errors(namespace, name)
        lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: all(len(backends(lab.world, *place)) == 4 for place in stores))
    nodes = [{pod["spec"]["nodeName"] for pod in pods(lab.world, *place)} for place in stores]
    await lab.until(lab.is_well)
    shared = sorted(set.intersection(*nodes) or set.union(*nodes))

    async def fail() -> None:
        await lab.roll(team, stores[0][0], f"{stores[0][1]}-api", "3.0.3")
        await asyncio.sleep(lab.rng.uniform(7, 10))
        disks.read_only = lab.rng.choice(shared)

    yield
    lab.start(fail())
