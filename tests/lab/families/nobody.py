"""Incidents without a culprit among the changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.apps import App, Container, Problem
from tests.lab.lab import NODES, Lab
from tests.lab.scenario import family


@family(
    "A campaign brings three times the traffic: the app is overloaded, nobody changed anything that matters.",
    culprit=False,
)
async def traffic_surge(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "landing")
    app = await lab.app("shop", "landing", like=App("", capacity=60, load=100), replicas=3)
    lab.alert_lacking("shop", "landing")
    yield
    app.load = 300


@family(
    "A machine dies: its kubelet is silent, the node is called lost, and its pods are no longer ready.", culprit=False
)
async def dead_node(lab: Lab) -> AsyncIterator[None]:
    node = NODES[2]

    def lost() -> bool:
        conditions = lab.world["Node"]["", node]["status"]["conditions"]
        return any(one["type"] == "Ready" and one["status"] != "True" for one in conditions)

    lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 4, node=node)
    yield
    lab.outside.dead_nodes.add(node)


@family("The registry is down: whatever is rolled out just then cannot be pulled, and is not to blame.", culprit=False)
async def registry_down(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("search", "query")
    lab.alert_stuck("search", "query")
    yield
    lab.outside.registry_up = False
    await lab.pause(6)
    await lab.roll("argocd", "search", "query", "1.0.1")


@family(
    "A firewall outside of the cluster is changed where nobody records it: the payment provider is out of reach.",
    culprit=False,
)
async def unrecorded_firewall(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("payments", "card-gateway")

    def check(container: Container) -> Problem | None:
        reason = lab.outside.broken.get("acquirer.example")
        return Problem("unready", f"probe failed: acquirer.example: {reason}") if reason else None

    await lab.app("payments", "card-gateway", like=App("", check=check), replicas=3)
    lab.alert_lacking("payments", "card-gateway")
    yield
    lab.outside.broken["acquirer.example"] = "dial tcp 203.0.113.9:443: i/o timeout"


@family(
    "The licence of a search engine runs out at its hour: each of its pods ends with the same message.", culprit=False
)
async def licence_expired(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("search", "engine")
    over = asyncio.Event()

    def check(container: Container) -> Problem | None:
        return Problem("crash", "licence expired") if over.is_set() else None

    await lab.app("search", "engine", like=App("", check=check), replicas=3)
    lab.alert_lacking("search", "engine")
    yield
    over.set()


@family(
    "A disk of the database outside of the cluster is full: the ledger crashes as it writes, and restarts do not help.",
    culprit=False,
)
async def database_full(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("payments", "ledger", "checkout")

    def check(container: Container) -> Problem | None:
        reason = lab.outside.broken.get("ledger-db")
        return Problem("crash", f"ledger-db: {reason}") if reason else None

    lab.apps["registry.corp.example/payments/ledger"].check = check
    lab.alert_lacking("payments", "ledger")
    yield
    lab.outside.broken["ledger-db"] = "could not extend file: No space left on device"
