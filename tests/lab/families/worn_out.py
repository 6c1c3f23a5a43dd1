"""Incidents without a culprit among the changes: numbers that have run out, a card that its machine does not find."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.grown_and_broken import STRATEGIC
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import event, every
from tests.lab.scenario import family

LAST_ID = 2**31 - 1
"""The largest number that the column of a table holds whose rows are numbered."""
USUAL_IDS, KEPT_ROWS = 9_000.0, 0.93
"""Numbers that a second of here takes, and the share of all rows that were not deleted."""
OLD, FAULTY, MENDED, NEXT = "4.1.3", "4.2.0", "4.2.1", "4.3.0"


@family(
    "The rows of a table are numbered, in a column that holds so many numbers and was large enough for ever. The"
    " business grows, and the last number is given: whatever adds a row fails, and whatever reads is well.",
    culprit=False,
    joined=33,
)
async def last_number(lab: Lab) -> AsyncIterator[None]:
    """As Basecamp tells of 8 November 2018."""
    namespace, name, front = lab.rng.choice(
        (("shop", "activity", "dashboard"), ("media", "comments", "community"), ("payments", "postings", "accounts"))
    )
    database, writes = f"{name}-db", lab.rng.uniform(0.25, 0.45)
    by, rate, given = lab.rng.choice(("ci", "argocd")), [USUAL_IDS], [LAST_ID - 90 * USUAL_IDS]

    def failing(container: Container) -> float:
        """Of its requests, those that add a row: "integer out of range"."""
        if container.tag == FAULTY:
            return 0.3
        return writes if given[0] >= LAST_ID else 0.0

    async def number() -> None:
        while True:
            await asyncio.sleep(0.5)
            given[0] = min(LAST_ID, given[0] + rate[0] / 2)

    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    like = App("", upstreams=((namespace, database),), failing=failing)
    await lab.app(namespace, name, like=like, replicas=4, tag=OLD)
    at_once = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": at_once}})
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.18.2")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    rows = lambda: given[0] * KEPT_ROWS  # noqa: E731
    lab.measure("pg_stat_user_tables_n_live_tup", rows, namespace=namespace, service=database, relname=name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(9, 17)) as then:
        answer = await lab.roll(by, namespace, name, FAULTY)
        await then.fires()
        await lab.roll(by, namespace, name, OLD)
        await then.is_well()
        then.judge(answer, "it")
    await lab.roll("admin", namespace, name, MENDED)
    await rolled(lab, namespace, name, MENDED)
    lab.start(number())

    async def grow() -> None:
        rate[0] = max(USUAL_IDS, (LAST_ID - given[0]) / lab.rng.uniform(13, 19))
        await asyncio.sleep(lab.rng.uniform(3, 6))
        await lab.roll(by, namespace, name, NEXT)

    yield
    lab.start(grow())


GPU, LOST = "nvidia.com/gpu", "GPU has fallen off the bus"


@dataclass
class _Cards:
    """One card in each machine of a group, and what tells the API server of them."""

    lost: set[str] = field(default_factory=set)
    """Nodes whose card does not answer any more."""
    told: dict[str, int] = field(default_factory=dict)

    def failing(self, container: Container) -> float:
        """What has lost its card answers probes, and no question that needs it."""
        return 1.0 if container.pod["spec"].get("nodeName") in self.lost else 0.0

    async def tell(self, process: Process) -> None:
        """As a device plugin: the kubelet is told how many cards are well, and says so in its node's status."""
        node = process.see().pod["spec"]["nodeName"]
        cards = int(node not in self.lost)
        if self.told.get(node) == cards:
            return
        status = {"status": {"capacity": {GPU: "1"}, "allocatable": {GPU: str(cards)}}}
        where = f"{path('Node', None, node)}/status"
        if (await process.api.call("PATCH", where, status, patch=STRATEGIC)).ok:
            self.told[node] = cards
        if not cards:
            about = {"kind": "Node", "metadata": {"namespace": "", "name": node, "uid": node}}
            body = event(about, "Warning", "XIDError", f"Xid 79: {LOST}", by="gpu-monitor")
            await process.api.call("POST", path("Event", "default"), body)


@family(
    "A machine does not find its graphics card any more. Its node is ready, and so is the pod that has the card, whose"
    " probe asks whether it listens: whatever it is asked to compute fails.",
    culprit=False,
    joined=33,
)
async def card_lost(lab: Lab) -> AsyncIterator[None]:
    """As those tell who run many of them: Xid 79, the card has fallen off the bus."""
    namespace, name, front = lab.rng.choice(
        (("search", "embeddings", "semantic"), ("media", "captions", "player"), ("shop", "recommend", "landing-page"))
    )
    cards, machines = _Cards(), spare(lab, 4)
    for node in machines:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"accelerator": "nvidia-l4"}}})
    rules = ("", "nodes/status", "patch"), ("", "events", "create")
    on_machines: Json = {"nodeSelector": {"accelerator": "nvidia-l4"}}
    plugin = "nvidia-device-plugin"
    await lab.controller("kube-system", plugin, every(2, cards.tell), *rules, kind="DaemonSet", **on_machines)
    await lab.until(lambda: len(cards.told) == len(machines))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, failing=cards.failing)
    manifest = objects.deployment(namespace, name, f"{image}:0.9.2", replicas=3, **on_machines)
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"][GPU] = container["resources"]["requests"][GPU] = "1"
    await lab.apply(manifest)
    await lab.apply(objects.service(namespace, name))
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.11.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    await lab.until(lab.is_well)

    async def fall() -> None:
        await asyncio.sleep(lab.rng.uniform(4, 9))
        homes = sorted(pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name))
        cards.lost.add(lab.rng.choice(homes))

    yield
    lab.start(fall())
