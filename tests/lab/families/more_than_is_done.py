"""What waits to be done: for an operator that others order from, and for one address by which all go outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from tests.lab import objects
from tests.lab.api import Json, Key, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.programs import both, changes, every, leading
from tests.lab.scenario import family

# -- what an operator has to do

WORKERS = "--max-concurrent-reconciles="
KEPT = 40
"""How many of those that are done are there before the oldest are given back."""


@dataclass
class _Orders:
    """Objects that somebody orders, and the operator that carries each of them out."""

    lab: Lab
    kind: Kind
    home: str
    rate: float
    """How many are ordered in a second."""
    takes: float
    """Seconds in which a worker is through with one."""
    waiting: dict[Key, float] = field(default_factory=dict)
    """Since when those wait that nobody is at work on."""
    open: dict[Key, float] = field(default_factory=dict)
    """Since when those have been ordered that are not done."""
    numbers: count[int] = field(default_factory=lambda: count(1))

    async def order(self, process: Process) -> None:
        """The next one; and what has been done longest is given back."""
        name = f"{self.kind.name.lower()}-{next(self.numbers):05}"
        spec = {"owner": f"u{process.rng.randrange(9999)}", "plan": process.rng.choice(("small", "small", "large"))}
        body = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": {"name": name}, "spec": spec}
        made = await process.api.call("POST", self.kind.path(self.home), body)
        if made.ok:
            self.open[self.home, name] = now().timestamp()
        done = sorted(one for (_, one), thing in self.lab.world[self.kind.name].items() if "status" in thing)
        for one in done[:-KEPT]:
            await process.api.call("DELETE", self.kind.path(self.home, one))

    async def carry_out(self, process: Process) -> None:
        given = process.see().spec.get("args", ())
        workers = next((int(one.removeprefix(WORKERS)) for one in given if one.startswith(WORKERS)), 1)
        waiting: dict[Key, float] = {}
        self.waiting = waiting  # each process has a queue of its own, and begins it with all that is not done

        def told(one: Json) -> None:
            key = one["metadata"]["namespace"], one["metadata"]["name"]
            if "status" not in one and "deletionTimestamp" not in one["metadata"]:
                waiting.setdefault(key, now().timestamp())

        listening = partial(changes, where=self.kind.path(self.home), told=told, of_all=True)
        await both(listening, *([partial(self._work, waiting)] * workers))(process)

    async def _work(self, waiting: dict[Key, float], process: Process) -> None:
        while True:
            if not waiting:
                await asyncio.sleep(0.2)
                continue
            key = next(iter(waiting))
            del waiting[key]
            found = await process.api.call("GET", self.kind.path(*key))
            if not found.ok or "status" in found.body:
                continue
            owner = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "name": key[1]}
            made = objects.config_map(*key, plan=found.body["spec"]["plan"])
            made["metadata"]["ownerReferences"] = [{**owner, "uid": found.body["metadata"]["uid"]}]
            await process.api.call("POST", path("ConfigMap", key[0]), made)
            await asyncio.sleep(self.takes * process.rng.uniform(0.8, 1.2))
            await process.api.call("PATCH", self.kind.path(*key), {"status": {"phase": "Ready"}})
            self.open.pop(key, None)

    def oldest(self) -> float:
        """Seconds for which the oldest order has been open."""
        return now().timestamp() - min(self.open.values()) if self.open else 0.0


async def _ordering(lab: Lab, orders: _Orders, operator: str, tag: str, args: list[str], portal: str) -> None:
    """The operator, and the portal by which people order; and who looks after these."""
    rights = (orders.kind.group, orders.kind.plural, "get,list,watch,create,patch,delete")
    maps, lease = ("", "configmaps", "get,list,create"), ("coordination.k8s.io", "leases", "*")
    program = both(orders.carry_out, leading("platform", operator))
    await lab.controller("platform", operator, program, rights, maps, lease, replicas=1, tag=tag)
    await lab.roll("admin", "platform", operator, tag, args=args)
    await lab.until(lambda: "args" in _container(lab, operator))
    await rolled(lab, "platform", operator, tag)
    comes = every(lambda _: 1 / orders.rate, orders.order)
    await lab.controller(orders.home, portal, comes, rights, replicas=1, tag="2.8.0")
    await rolled(lab, orders.home, portal, "2.8.0")
    told = {"namespace": "platform", "service": operator, "name": orders.kind.name.lower()}
    lab.measure("workqueue_depth", lambda: float(len(orders.waiting)), **told)
    lab.measure("workqueue_longest_running_processor_seconds", lambda: orders.takes if orders.open else 0.0, **told)
    summary = f"{operator} has more to do than it is through with"
    lab.alert("WorkqueueDepthHigh", lambda: len(orders.waiting) > 12, summary, 8, **told)
    what = f"{orders.kind.name.lower()}s"
    summary = f"{what} wait for {operator} for a long time"
    lab.alert("ProvisioningSlow", lambda: orders.oldest() > 22, summary, 5, namespace=orders.home, service=portal)
    await lab.until(lab.is_well)


def _container(lab: Lab, operator: str) -> Json:
    found: Json = lab.world["Deployment"]["platform", operator]["spec"]["template"]["spec"]["containers"][0]
    return found


@family(
    "No culprit. A marketplace opens, or a school term begins: all want a shop or a room of their own on the same"
    " morning. What the operator that makes them can do in a minute has always been enough; today its queue grows for"
    " hours.",
    culprit=False,
    joined=95,
)
async def all_shops_at_once(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it who gives each customer something of the cluster."""
    kind_name, group, home, portal, operator = lab.rng.choice(
        (
            ("Storefront", "stores.corp.example", "shop", "merchant-signup", "storefront-operator"),
            ("Classroom", "rooms.corp.example", "media", "course-signup", "classroom-operator"),
            ("Tenant", "tenants.corp.example", "payments", "tenant-signup", "tenant-operator"),
        )
    )
    kind = await lab.custom(kind_name, group, ANY)
    await lab.served(kind)
    orders, minor = _Orders(lab, kind, home, 0.35, lab.rng.uniform(2.2, 2.8)), lab.rng.randrange(2, 30)
    args = ["--leader-elect", f"{WORKERS}3", "--zap-log-level=info"]
    await _ordering(lab, orders, operator, f"1.{minor}.0", args, portal)
    front, rush = f"{portal}-page", lab.rng.uniform(2.4, 3.4)
    await set_before(lab, home, front, portal)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)

    async def open_all() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        for step in range(1, 7):
            orders.rate = 0.35 + (rush - 0.35) * step / 6
            await lab.pause(1.5)

    yield
    await change_page(lab, home, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "platform", operator, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", home, front, {"data": {"PAGE_SIZE": "20"}})
    lab.start(open_all())


@family(
    "The values of an operator are tidied up, and how many objects it looks at at the same time is left out, or is"
    " fewer than before: it does one after the other. Nothing fails; its queue grows, and whoever orders an environment"
    " waits for many minutes.",
    joined=95,
)
async def one_worker_left(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had not known that MaxConcurrentReconciles is one unless it is told."""
    kind_name, group, home, portal, operator = lab.rng.choice(
        (
            ("Environment", "previews.corp.example", "shop", "preview-desk", "environment-operator"),
            ("Notebook", "notebooks.corp.example", "search", "notebook-desk", "notebook-operator"),
            ("Playground", "playgrounds.corp.example", "payments", "playground-desk", "playground-operator"),
            ("Encoding", "jobs.corp.example", "media", "encoding-desk", "encoding-operator"),
        )
    )
    kind = await lab.custom(kind_name, group, ANY)
    await lab.served(kind)
    orders, minor = (
        _Orders(lab, kind, home, lab.rng.uniform(0.8, 1.1), lab.rng.uniform(2.2, 2.8)),
        lab.rng.randrange(30),
    )
    by, tag, metrics = lab.rng.choice(("flux", "argocd", *TEAMS)), f"0.{minor}.2", "--metrics-bind-address=:8080"
    args = ["--leader-elect", f"{WORKERS}{lab.rng.choice((8, 10))}", metrics, "--zap-log-level=info"]
    await _ordering(lab, orders, operator, tag, args, portal)
    other = f"{portal}-mails"
    await lab.apply(objects.config_map(home, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(home, other, replicas=2, tag="1.2.0", config=other)
    await rolled(lab, home, other, "1.2.0")
    left = ["--leader-elect", metrics] if lab.rng.random() < 0.6 else ["--leader-elect", f"{WORKERS}1", metrics]

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 10))
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, portal, "2.8.1")

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, other, "1.2.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, "platform", operator, tag, culprit=True, args=left)
    lab.start(afterwards())


# -- one address for all

PORTS = 64.0
"""How many calls in a second the gateway has a port for; a real one has some fifty thousand of them in a minute."""


@dataclass
class _Gateway:
    """The one by which all pods go outside: each new connection needs a port, for a while after its end too."""

    asked: float
    """Calls in a second."""

    def lost(self, _: Container) -> float:
        return max(0.0, 1 - PORTS / self.asked)

    def refused(self) -> float:
        return max(0.0, self.asked - PORTS)

    async def grow(self, to: float, seconds: float) -> None:
        first, steps = self.asked, round(seconds * 2)
        for step in range(steps):
            self.asked = first + (to - first) * (step + 1) / steps
            await asyncio.sleep(0.5)


@family(
    "No culprit. All pods go outside by one gateway, which has so many ports for one address there. The traffic has"
    " grown for a year, and this evening they are used up: a share of the calls to a partner gets no connection.",
    culprit=False,
    joined=95,
)
async def ports_of_the_gateway(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found ErrorPortAllocation among the metrics of their NAT gateway."""
    namespace, name, front, other, partner = lab.rng.choice(
        (
            ("shop", "delivery-quotes", "delivery-page", "delivery-mails", "api.parcels.example"),
            ("payments", "card-gateway", "pay-page", "pay-report", "api.acquirer.example"),
            ("media", "ad-slots", "ad-page", "ad-report", "bids.exchange.example"),
            ("search", "translations", "translate-page", "translate-log", "api.translate.example"),
        )
    )
    minor, gateway = lab.rng.randrange(2, 30), _Gateway(lab.rng.uniform(38, 46))
    like = App("", abroad=(partner,), asked=lambda: gateway.asked, failing=gateway.lost, fails_with=lambda _: "504")
    await lab.app(namespace, name, like=like, replicas=4, tag=f"6.{minor}.0")
    await rolled(lab, namespace, name, f"6.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="3.3.0", config=other)
    await rolled(lab, namespace, other, "3.3.0")
    await set_before(lab, namespace, front, name)
    exporter = "cloudwatch-exporter"
    await lab.app("monitoring", exporter, like=App("", serves=False), replicas=1, tag="0.16.0")
    await rolled(lab, "monitoring", exporter, "0.16.0")
    told = {"namespace": "monitoring", "service": exporter, "nat_gateway_id": "nat-0c5f1e2d3a4b59687"}
    lab.measure("aws_natgateway_error_port_allocation_sum", gateway.refused, **told)
    lab.measure("aws_natgateway_active_connection_count_maximum", lambda: min(PORTS, gateway.asked) * 860, **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    lab.start(gateway.grow(lab.rng.uniform(80, 96), lab.rng.uniform(34, 44)))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "3.3.1")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"6.{minor}.1")
    lab.start(afterwards())
