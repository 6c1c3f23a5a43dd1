"""Given by others: machines that a cloud takes back or does not have, and a partner's certificate."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.joining import autoscaled, enlarging, forgetting, leaving, say
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import NODES, Lab
from tests.lab.programs import every
from tests.lab.scenario import family

# -- machines

POOL, SPOT_GROUP, GROUP = "pool", "spot-eu-1b", "workers-eu-1b"
NOTICE_SECONDS, UNPLACED_SECONDS = 5.0, 14
"""From the notice until a machine is taken, and for how long pods may have no node."""
EACH, BACKLOG = 3.0, 160
"""What a worker does in a second, and how much of what comes may wait."""
ROOM = {"requests": {"cpu": "6", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
"""What one pod of the workers needs: two of them have room on a node beside what else runs there."""


def _reasons(machine: str) -> tuple[str, ...]:
    """As clouds say it."""
    none = f"We currently do not have sufficient {machine} capacity in the Availability Zone you requested"
    return (
        f"InsufficientInstanceCapacity: {none} (eu-west-1b)",
        f"UnfulfillableCapacity: Unable to fulfill capacity due to your request configuration for {machine}",
        f"ZONE_RESOURCE_POOL_EXHAUSTED: zone eu-west-1b does not have enough resources available for {machine}",
    )


@dataclass
class _Work:
    """What comes for workers in a zone, and is done by those of them who have a node."""

    lab: Lab
    app: App
    arrives: float
    waiting: float = 0.0

    async def go_on(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(0.5)
            there = sum(one.app is self.app and one.problem is None for one in self.lab.kubelets.running())
            self.waiting = max(0.0, self.waiting + 0.5 * (self.arrives - EACH * there))

    async def be_scaled(self, namespace: str, name: str) -> None:
        """There are as many workers as what comes needs, and never fewer than there were. Raises RefusedError."""
        where, scaler = f"{path('Deployment', namespace, name)}/scale", f"{name}-scaler"

        async def scale(process: Process) -> None:
            found, wanted = await process.api.call("GET", where), math.ceil(self.arrives / EACH)
            if found.ok and found.body["spec"]["replicas"] < wanted:
                await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

        may = ("apps", "deployments/scale", "get,patch")
        await self.lab.controller(namespace, scaler, every(2, scale), may, replicas=1, tag="2.17.0")
        await rolled(self.lab, namespace, scaler, "2.17.0")

    async def evening(self, most: float) -> None:
        """More comes than at noon, as each day."""
        first = self.arrives
        for step in range(8):
            self.arrives = first + (most - first) * (step + 1) / 8
            await asyncio.sleep(1)


async def _take_back(lab: Lab, nodes: Sequence[str], told: set[str]) -> None:
    """Each with its notice, some seconds apart."""
    for node in nodes:
        told.add(node)
        await asyncio.sleep(NOTICE_SECONDS)
        lab.kubelets.crash(node)
        await asyncio.sleep(lab.kubelets.rng.uniform(1, 4))


async def _handled(lab: Lab, told: set[str]) -> None:
    """Who hears of notices on each node, and who lets go of nodes whose machines are gone. Raises RefusedError."""
    rules = ("", "nodes", "get,list,patch"), ("", "pods", "get,list"), ("", "pods/eviction", "create")
    await lab.controller("kube-system", "node-termination-handler", leaving(told), *rules, kind="DaemonSet")
    program, may = forgetting(lambda: told & lab.outside.dead_nodes), ("", "nodes", "get,list,delete")
    await lab.controller("kube-system", "cloud-controller-manager", program, may, replicas=1)


@family(
    "No culprit. The cloud has no machines of a type left in a zone. It takes its spot machines back, or has none to"
    " give as more pods are wanted in the evening. What needs a node waits for one, and work piles up behind it.",
    culprit=False,
    joined=102,
)
async def taken_back_by_the_cloud(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read of insufficient capacity beside a pod, and could but wait."""
    namespace, name, what = lab.rng.choice(
        (
            ("media", "encode-worker", "clips"),
            ("search", "embed-worker", "documents"),
            ("shop", "render-worker", "previews"),
            ("payments", "score-worker", "cases"),
        )
    )
    takes, minor, machine = (
        lab.rng.random() < 0.5,
        lab.rng.randrange(2, 30),
        lab.rng.choice(("m6i.4xlarge", "r6i.4xlarge")),
    )
    nodes, told, why = spare(lab, 3), set[str](), lab.rng.choice(_reasons(machine))
    group = SPOT_GROUP if takes else GROUP
    for node in NODES:
        label = group if node in nodes else "general"
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {POOL: label}}})

    async def refused(process: Process, waiting: Sequence[Json]) -> None:
        for pod in waiting:
            said = f"Node scale up in group {group} failed: {why}. Pod is at risk of not being scheduled."
            await say(process, pod, "Warning", "FailedScaleUp", said)

    await autoscaled(lab, enlarging(group, refused, patience=2))
    await _handled(lab, told)
    like, replicas = App("", serves=False), 6 if takes else 5
    work = _Work(lab, like, EACH * replicas - lab.rng.uniform(0.3, 0.9))
    selector = {"nodeSelector": {POOL: group}}
    await lab.app(namespace, name, like=like, replicas=replicas, tag=f"2.{minor}.0", **selector)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0}}}})
    await lab.roll("admin", namespace, name, f"2.{minor}.1", resources=ROOM)
    await rolled(lab, namespace, name, f"2.{minor}.1")
    if not takes:
        await work.be_scaled(namespace, name)
    lab.start(work.go_on())
    lab.reserve(namespace, name)
    served = {"namespace": namespace, "service": name}
    lab.measure(f"{what}_waiting", lambda: round(work.waiting), **served)
    summary = f"more {what} wait for {namespace}/{name} than are done in a quarter of an hour"
    lab.alert("QueueBacklogHigh", lambda: work.waiting > BACKLOG, summary, 5, **served)
    summary = f"pods of {namespace} have had no node for a quarter of an hour"
    unplaced = partial(pending, lab.world, namespace)
    lab.alert("KubePodNotScheduled", unplaced, summary, UNPLACED_SECONDS, namespace=namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(6, 11))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "870"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.2")
    await lab.pause(lab.rng.uniform(9, 14))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(5, 10))
    lab.start(_take_back(lab, nodes[:2], told) if takes else work.evening(EACH * 8 - lab.rng.uniform(0.3, 0.9)))
    lab.start(afterwards())


# -- a certificate

CALLS, SENT = 22.0, 5.0
"""Requests a second to the app that asks the partner, and what another one sends there in a second."""
CONNECTED_SECONDS, UNSENT = 9.0, 110
"""For how long a client keeps a connection, whose certificate nobody looks at again; how much may wait to be sent."""


@dataclass
class _Partner:
    """A partner outside, who has not renewed the certificate of its API."""

    lab: Lab
    good_for: float
    """Seconds from the beginning until it is over."""
    began: float
    unsent: float = 0.0

    def left(self) -> float:
        return self.began + self.good_for - now().timestamp()

    def refused(self) -> float:
        """The share of calls that have no connection of before."""
        return min(1.0, max(0.0, (-self.left() - self.lab.lag) / CONNECTED_SECONDS))

    async def be_sent(self) -> None:
        """What is not taken waits, and is sent again."""
        while True:
            await asyncio.sleep(0.5)
            sent = 0.5 * 2 * SENT * (1 - self.refused())
            self.unsent = max(0.0, self.unsent + 0.5 * SENT - sent)

    def rate(self, usual: float, *, well: bool) -> float:
        return usual * (1 - self.refused() if well else self.refused())


@family(
    "No culprit. A partner has forgotten its certificate, which is over at a certain minute. Whoever calls it from the"
    " cluster ends each new connection: what a page asks there fails, and what is to be sent there waits.",
    culprit=False,
    joined=102,
)
async def not_renewed_by_the_partner(lab: Lab) -> AsyncIterator[None]:
    """As very many tell who had looked at their own certificates first."""
    namespace, name, sender, front, host, what = lab.rng.choice(
        (
            ("shop", "stock-lookup", "order-dispatch", "availability-page", "api.supplier.example", "orders"),
            ("payments", "credit-check", "debit-upload", "instalment-page", "gw.scoring.example", "debits"),
            ("media", "rights-lookup", "play-reports", "licence-page", "edi.collecting.example", "reports"),
            ("search", "geo-lookup", "listing-push", "nearby-page", "maps.tiles.example", "listings"),
        )
    )
    minor, share, status = lab.rng.randrange(2, 40), lab.rng.uniform(0.3, 0.8), lab.rng.choice(("500", "502"))
    partner = _Partner(lab, float("inf"), now().timestamp())

    def fails(_: Container) -> float:
        return share * partner.refused()

    like = App("", abroad=(host,), asked=lambda: CALLS, failing=fails, fails_with=lambda _: status)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", RETRIES="1"))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"8.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, sender, LOG_LEVEL="info", BATCH="20"))
    await lab.app(namespace, sender, like=App("", abroad=(host,), serves=False), replicas=2, tag="3.3.0", config=sender)
    await rolled(lab, namespace, name, f"8.{minor}.0")
    await rolled(lab, namespace, sender, "3.3.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, sender)
    for service, usual in ((name, CALLS * share), (sender, SENT)):
        told = {"namespace": namespace, "service": service, "host": host}
        for well, code in ((True, "200"), (False, "tls_error")):
            made = lab.adding_up(partial(partner.rate, usual, well=well))
            lab.measure("http_client_requests_total", made, "counter", **told, code=code)
    probed = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": f"https://{host}"}
    lab.measure("probe_ssl_earliest_cert_expiry", lambda: round(now().timestamp() + partner.left()), **probed)
    told = {"namespace": namespace, "service": sender}
    lab.measure(f"{what}_unsent", lambda: round(partner.unsent), **told)
    summary = f"{what} wait in {namespace}/{sender} and are not sent"
    lab.alert("UnsentBacklogHigh", lambda: partner.unsent > UNSENT, summary, 5, **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    partner.began, partner.good_for = now().timestamp(), lab.rng.uniform(88, 100)
    lab.start(partner.be_sent())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, sender, "3.3.1")
    await lab.pause(lab.rng.uniform(4, 8))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"8.{minor}.1")
    else:
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"RETRIES": "2"}})
    lab.start(afterwards())
