"""Incidents without a culprit among the changes: machines that are there and not heard, that stop, that do not come."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import NODES, Lab
from tests.lab.scenario import family

FULL_SECONDS = 4
"""For which all of a node's processor is used before its kernel gives up."""
REBOOT_SECONDS = 40
"""Until a machine that stopped is up again."""
TOLERATED_SECONDS = 5
"""How long pods stay on a node that is not heard: the five minutes that admission gives, in the time of here."""


def ready(lab: Lab) -> int:
    """How many nodes are."""
    conditions = [one for node in NODES for one in lab.world["Node"]["", node]["status"]["conditions"]]
    return [one["status"] for one in conditions if one["type"] == "Ready"].count("True")


@family(
    "The balancer in front of the API server gets other machines from its provider: half of the kubelets keep a"
    " connection to one that is gone, nobody hears them, and their nodes are called lost until they try anew.",
    culprit=False,
    joined=11,
)
async def kubelet_connection(lab: Lab) -> AsyncIterator[None]:
    """As Turnitin tells of July 2018."""
    silent, seconds = lab.rng.sample(NODES, 3), lab.rng.uniform(38, 46)

    async def time_out() -> None:
        """The kernel gives a connection up that nobody answers on, after a quarter of an hour."""
        await asyncio.sleep(seconds)
        for node in silent:
            await lab.kubelets.come_back(node)

    for place in CALLERS:
        lab.reserve(*place)
    lab.alert("KubeNodesNotReady", lambda: ready(lab) <= 3, "half of the nodes are unready", 4, job="apiserver")
    yield
    lab.outside.silent_nodes.update(silent)
    lab.start(time_out())


@family(
    "Traffic grows until the pods of a product that happen to share a node use all of its processor: its kernel panics,"
    " they are made anew where others of them are already, and that node is the next.",
    culprit=False,
    joined=11,
)
async def kernel_panic(lab: Lab) -> AsyncIterator[None]:
    """As Moonlight tells of January 2019."""
    namespace, product = lab.rng.choice((("shop", "loyalty"), ("media", "community"), ("payments", "billing")))
    names = [f"{product}-{one}" for one in ("api", "web", "worker")]
    share, most = [0.2], lab.rng.choice((0.54, 0.58, 0.62))  # of a node's processor, for each pod
    full: Counter[str] = Counter()
    down: dict[str, int] = {}

    def used(node: str) -> float:
        """Of its processor."""
        there: int = sum(
            pod["spec"].get("nodeName") == node
            and "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") == "Running"
            for name in names
            for pod in pods(lab.world, namespace, name)
        )
        return share[0] * there

    async def machines() -> None:
        """One whose processor is full for long stops, and boots again."""
        while True:
            await asyncio.sleep(1)
            share[0] = min(most, share[0] + 0.05)
            for node in NODES:
                if node in down:
                    down[node] -= 1
                    if not down[node]:
                        del down[node]
                        await lab.kubelets.come_back(node, rebooted=True)
                    continue
                full[node] = full[node] + 1 if used(node) >= 1 else 0
                if full[node] >= FULL_SECONDS:
                    full[node], down[node] = 0, REBOOT_SECONDS
                    lab.kubelets.crash(node)

    tolerations = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": TOLERATED_SECONDS,
        }
        for key in ("not-ready", "unreachable")
    ]
    for name in names:
        await lab.app(namespace, name, replicas=3, tolerations=tolerations)
        lab.alert_lacking(namespace, name)
    yield
    lab.start(machines())
