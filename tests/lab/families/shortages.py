"""What runs short: addresses of a node, volumes of an account, the time of a processor."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import path
from tests.lab.apps import Process
from tests.lab.lab import Lab
from tests.lab.programs import both, every, getting
from tests.lab.scenario import family


@family(
    "The agent of the network is told to hold fewer addresses on each node, as they are scarce: pods that run keep"
    " theirs, new ones are placed and get none.",
    joined=7,
)
async def address_pool(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("shop", "catalog"), ("payments", "ledger"), ("media", "thumbnails")))
    lab.reserve(namespace, name)

    async def hold(process: Process) -> None:
        """Each agent for its own node."""
        node = process.see().pod["spec"]["nodeName"]
        lab.outside.addresses[node] = int(process.config["MAX_ADDRESSES"])

    await lab.apply(objects.config_map("kube-system", "address-agent", MAX_ADDRESSES="100", WARM_ADDRESSES="2"))
    program = both(every(1, hold), every(5, getting(f"{path('Node')}?limit=10")))
    await lab.controller(
        "kube-system", "address-agent", program, ("", "nodes", "list"), kind="DaemonSet", config="address-agent"
    )
    lab.alert_stuck(namespace, name)
    yield
    by, few = lab.rng.choice(("bob", "flux")), lab.rng.choice(("3", "4"))
    body = {"data": {"MAX_ADDRESSES": few, "WARM_ADDRESSES": "0"}}
    await lab.culprit(by, "update", "ConfigMap", "kube-system", "address-agent", body)
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.roll("argocd", namespace, name, "1.0.1")
