"""Incidents without a culprit among the changes: agents of the network that ask somebody who is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.api import Caller, path
from tests.lab.apps import Process
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import NODES, Lab
from tests.lab.programs import both, informer, leading
from tests.lab.scenario import family

ASK_SECONDS = 1.5
"""How often an agent asks what there is on its node."""


@family(
    "The provider takes one of its API servers away, which closes no connection and calls whoever has one unauthorized:"
    " half of the network's agents go on asking it. Pods on their nodes reach nobody, and new ones get no address.",
    culprit=False,
    joined=13,
)
async def agent_unauthorized(lab: Lab) -> AsyncIterator[None]:
    """As users of Cilium tell of EKS (August to October 2022, cilium 20915 and containers-roadmap 1810)."""
    agents: dict[str, Caller] = {}

    async def agent(process: Process) -> None:
        """Who is where is forgotten where nobody tells it; what it asks by is its connection until it is restarted."""
        node = process.see().pod["spec"]["nodeName"]
        agents[node] = process.api
        while True:
            asked = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
            if asked.ok:
                lab.outside.cut_off.discard(node)
                lab.outside.addresses.pop(node, None)
            elif asked.status == 401:
                lab.outside.cut_off.add(node)
                lab.outside.addresses[node] = 0
            await asyncio.sleep(ASK_SECONDS * process.rng.uniform(0.9, 1.1))

    async def operator(process: Process) -> None:
        agents["operator"] = process.api
        await both(informer(path("Node")), leading("kube-system", "network-operator"))(process)

    await lab.controller("kube-system", "network-agent", agent, ("", "pods", "list"), kind="DaemonSet")
    rules = ("", "nodes", "list,watch"), ("coordination.k8s.io", "leases", "*")
    await lab.controller("kube-system", "network-operator", operator, *rules, replicas=1)
    await lab.until(lambda: {*NODES, "operator"} <= agents.keys())
    for place in CALLERS:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    for one in (*lab.rng.sample(NODES, 3), "operator"):
        agents[one].token = "expired"
