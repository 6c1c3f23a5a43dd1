"""Incidents without a culprit among the changes: machines that are there and not heard, that stop, that do not come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

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
