"""What is up with one machine, by no change of anybody: its hardware fails, its disk has filled up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Literal

from tests.lab.alerts import is_lost, pods
from tests.lab.api import now
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.network import backends
from tests.lab.scenario import family

GIB = 1024.0
"""In MiB."""


def _free_of_robots(lab: Lab) -> list[str]:
    """Nodes on which nobody is who deploys: they go on with their work."""
    bound = {
        pod["spec"]["nodeName"] for where, account, _ in ROBOTS.values() for pod in pods(lab.world, where, account)
    }
    return [one for one in NODES if one not in bound]


def _of_nodes(lab: Lab, name: str, value: Callable[[str], float | None], **labels: str) -> None:
    """What the agent of each node tells of it."""
    kind: Literal["counter", "gauge"] = "counter" if name.endswith("_total") else "gauge"
    for node in NODES:
        told = {"namespace": "monitoring", "service": "node-agent", "node": node}
        lab.measure(name, partial(value, node), kind, **told, **labels)


TOLERATED = tuple(f"--default-{what}-toleration-seconds=5" for what in ("not-ready", "unreachable"))
"""After five minutes that a node has not been heard pods are made elsewhere, which are five seconds here."""


@family(
    "No culprit. A machine stops, as its hardware has failed. What ran there is away until its node is given up and its"
    " pods have started elsewhere.",
    flags=TOLERATED,
    culprit=False,
    joined=80,
)
async def one_machine_less(lab: Lab) -> AsyncIterator[None]:
    """As it happens with some hundred machines every few weeks."""
    namespace, name, front = lab.rng.choice(
        (("shop", "baskets", "basket-page"), ("media", "sessions", "sign-in"), ("payments", "limits", "limit-page"))
    )
    is_memory, began = lab.rng.random() < 0.5, now().timestamp()
    since = {one: (began - 86400 * lab.rng.uniform(10, 90)) for one in NODES}
    faults = {one: float(lab.rng.randrange(4)) for one in NODES}

    def there(value: dict[str, float], one: str) -> float | None:
        return None if one in lab.outside.dead_nodes else value[one]

    await lab.app(namespace, name, replicas=5, tag="5.2.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 5)
    used = {pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name)}
    node = lab.rng.choice([one for one in _free_of_robots(lab) if one in used])
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.3.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    _of_nodes(lab, "node_boot_time_seconds", partial(there, since))
    _of_nodes(lab, "node_edac_correctable_errors_total", partial(there, faults), controller="0")
    lost = lambda: is_lost(lab.world, node)  # noqa: E731
    lab.alert("KubeNodeNotReady", lost, f"{node} has not been ready for a while", 10, node=node)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def fail() -> None:
        for _ in range(lab.rng.randrange(6, 12)):
            await asyncio.sleep(1)
            faults[node] += lab.rng.randrange(20, 300) * is_memory
        lab.kubelets.crash(node)

    yield
    await lab.roll("ci", namespace, front, "1.3.1")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.edit("alice", "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": str(lab.rng.randrange(400, 900))}})
    lab.start(fail())


THRESHOLD = 10 * GIB
"""What has to be free on a node's disk."""


@family(
    "No culprit. The disk of a node that has been up for long has filled up over weeks, with layers of images and with"
    " logs that nothing removes. One day less is free than has to be: the node is under disk pressure, and evicts.",
    culprit=False,
    joined=80,
)
async def piled_up(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it whose nodes are older than they were meant to be."""
    namespace, name, front = lab.rng.choice(
        (("search", "autocomplete", "search-bar"), ("shop", "price-list", "offers"), ("media", "artwork", "covers"))
    )
    node = lab.rng.choice(_free_of_robots(lab))
    began, a_second = now().timestamp(), lab.rng.uniform(4, 8)
    free = {one: lab.rng.uniform(60, 150) * GIB for one in NODES}
    boots = {one: began - 86400 * lab.rng.uniform(5, 40) for one in NODES}
    boots[node] = began - 86400 * lab.rng.uniform(160, 300)

    def left(one: str) -> float:
        """MiB: the others have far more."""
        return free[one] - (now().timestamp() - began) * (a_second if one == node else 0.3 * a_second)

    async def look() -> None:
        while True:
            await asyncio.sleep(1)
            lab.outside.full_disks |= {one for one in NODES if left(one) < THRESHOLD}

    def presses() -> bool:
        told = lab.world["Node"]["", node]["status"].get("conditions", ())
        return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in told)

    await lab.app(namespace, name, replicas=8, tag="2.9.0")
    await rolled(lab, namespace, name, "2.9.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.3.3")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    _of_nodes(lab, "node_filesystem_avail_bytes", lambda one: left(one) * 2**20, mountpoint="/")
    _of_nodes(lab, "node_boot_time_seconds", boots.get)
    lab.alert("KubeNodeDiskPressure", presses, f"the disk of {node} has no room", 8, node=node)
    lab.alert_lacking(namespace, name, seconds=10)
    await lab.until(lab.is_well)
    # some time after it begins, so that it has been getting less all the while
    free[node] = THRESHOLD + (now().timestamp() - began + lab.rng.uniform(72, 84)) * a_second
    lab.start(look())
    yield
    await lab.roll("ci", namespace, name, "2.9.1")
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.edit(
        "carol", "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": lab.rng.choice(("info", "warn"))}}
    )
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "3.3.4")
