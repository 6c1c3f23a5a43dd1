"""What is noted in finer parts than before, all of which are written again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import Process
from tests.lab.company import APPS
from tests.lab.families.collapses import LONG_TEMPLATE_BYTES, UNCACHED, cluster
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family

MAPS, ROUND_SECONDS, AT_ONCE = "maps.corp.example", 3.0, 12
"""The group of what is noted, the pause between two rounds, and how many writes are under way together."""
BY_NODE, BY_CONNECTION, PEERS = "--group-by=node", "--group-by=connection", 4
"""What it is told, and with how many others a pod talks."""
CALM_SECONDS, FACTOR = 40, 2.4
"""Until the API server has given back what it had for all that was set up, and what it may then have, by that."""


def _told(lab: Lab, name: str, argument: str) -> Json:
    """A change of what its program is started with."""
    [there] = lab.world["Deployment"]["monitoring", name]["spec"]["template"]["spec"]["containers"]
    return {"spec": {"template": {"spec": {"containers": [{**there, "args": [argument]}]}}}}


@family(
    "What draws a map of who talks with whom notes it in an object for each node, and is told to have one for each"
    " connection, for a finer map. All of them are deleted and made anew each round, so the store keeps far less than a"
    " watch may be behind: agents list all pods again and again, and the API server is killed for its memory.",
    flags=UNCACHED,
    joined=49,
)
async def map_by_connection(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose reports became one for each thing; the rest as Robinhood told."""
    name, by = lab.rng.choice(("flow-map", "service-map", "traffic-map")), lab.rng.choice(("bob", "argocd", "carol"))
    kind = await lab.custom("ConnectionMap", MAPS, ANY)
    await lab.served(kind)
    homes = ("kube-system", *APPS)

    async def draw(process: Process) -> None:
        """What was noted in the last round is put away."""
        lists = [await process.api.call("GET", path("Pod", home)) for home in homes]
        pods = [one for listed in lists for one in listed.body.get("items", ())]
        is_fine, turn = BY_CONNECTION in process.see().spec.get("args", ()), asyncio.Semaphore(AT_ONCE)
        names = sorted(one["metadata"]["name"] for one in pods)
        keys = {one["spec"]["nodeName"] for one in pods if "nodeName" in one["spec"]}
        if is_fine:
            keys = {f"{one}-{peer}" for one in names for peer in range(PEERS)}

        async def note(key: str) -> None:
            async with turn:
                await process.api.call("DELETE", kind.path("monitoring", key))
                spec = {"drawn": stamp(now()), "peers": len(pods)}
                body = {"apiVersion": f"{MAPS}/v1", "kind": kind.name, "metadata": {"name": key}, "spec": spec}
                await process.api.call("POST", kind.path("monitoring"), body)

        await asyncio.gather(*map(note, sorted(keys)))

    await lab.app("shop", "assortment", replicas=20, tag="3.3.0")
    rights = ("", "pods", "list"), (MAPS, kind.plural, "create,delete")
    draws = every(ROUND_SECONDS, draw)
    await lab.controller("monitoring", name, draws, *rights, replicas=1)
    await lab.until(lambda: ("monitoring", name) in lab.world["Deployment"])
    await lab.edit("admin", "Deployment", "monitoring", name, _told(lab, name, BY_NODE))
    await cluster(lab, LONG_TEMPLATE_BYTES, FACTOR, calm=CALM_SECONDS)
    yield
    await lab.pause(lab.rng.uniform(2, 7))
    await lab.culprit(by, "update", "Deployment", "monitoring", name, _told(lab, name, BY_CONNECTION))
