"""Controllers out of step with what is beside them: with what changes, with another of theirs, with labels of old."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import Process
from tests.lab.families.between import publish
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import both, changes, every, informer, lagging
from tests.lab.scenario import family

QUERIES = 20.0
"""How often a second the client of a controller lets it ask, as most are built."""
OWNERS = ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
"""What is listed to find who is at the top of all that runs in a namespace."""
PUBLIC, PRIVATE = "198.51.100.7", "10.20.0.40"
"""The addresses of two load balancers: one is reached from everywhere, one from inside of the company."""
PROBED_SECONDS, MISSED = 12.0, 0.25
"""For how long a probe from outside looks back, and the share of its looks that may fail."""


@family(
    "A new version of what advises on requests looks at all of a namespace for each change of a pod in it, to know who"
    " is at the top: a rollout, of which each pod changes many times, makes it list everything there again and again.",
    joined=20,
)
async def lists_on_change(lab: Lab) -> AsyncIterator[None]:
    """As a user of Goldilocks tells of all versions since 4.0.0 (January 2024, goldilocks 689)."""
    name = lab.rng.choice(("request-advisor", "sizing-report", "limits-advisor"))
    namespace, large = lab.rng.choice((("media", "tiles"), ("search", "shards"), ("shop", "offers")))
    watching = informer(path("Deployment"))

    async def program(process: Process) -> None:
        if process.tag.startswith("3."):
            await watching(process)
        await lagging(process)
        waiting: dict[tuple[str, str], None] = {}  # in the order in which they came, each once

        def told(pod: Json) -> None:
            waiting[pod["metadata"]["namespace"], pod["metadata"]["name"]] = None

        async def look() -> None:
            while True:
                if not waiting:
                    await asyncio.sleep(0.1)
                    continue
                home, _ = first = next(iter(waiting))
                del waiting[first]
                for kind in OWNERS:
                    await process.api.call("GET", path(kind, home))
                    await asyncio.sleep(1 / QUERIES)

        async with asyncio.TaskGroup() as group:
            group.create_task(look())
            group.create_task(changes(process, path("Pod"), told))

    rules = (
        ("", "pods", "get,list,watch"),
        ("apps", "replicasets,deployments,statefulsets,daemonsets", "get,list,watch"),
        ("batch", "jobs,cronjobs", "get,list"),
    )
    await lab.controller("platform", name, program, *rules, replicas=1, tag="3.9.0")
    await lab.app(namespace, large, replicas=10)
    lab.reserve(namespace, large)
    alert_on_load(lab)

    async def release() -> None:
        """Of an app that has many pods, as on any day."""
        await asyncio.sleep(lab.rng.uniform(9, 15))
        await lab.roll(by, namespace, large, "1.1.0")

    yield
    by = lab.rng.choice(("ci", "argocd"))
    await lab.roll(lab.rng.choice(("argocd", "flux", "bob")), "platform", name, "4.2.0", culprit=True)
    lab.start(release())


def _addressing(address: str, wanted: Callable[[Process], str]) -> Callable[[Process], Awaitable[None]]:
    """Write into the status of each Ingress of a class where it is reached, as each controller of Ingresses does."""

    async def work(process: Process) -> None:
        status = {"loadBalancer": {"ingress": [{"ip": address}]}}
        listed = await process.api.call("GET", path("Ingress"))
        for one in listed.body.get("items", []):
            if one["spec"].get("ingressClassName") == wanted(process) and one.get("status") != status:
                where = path("Ingress", one["metadata"]["namespace"], one["metadata"]["name"])
                await process.api.call("PATCH", f"{where}/status", {"status": status})

    return work


def _probe(lab: Lab, host: str) -> Callable[[], bool]:
    """From another place, as a blackbox exporter does: too many looks of the last seconds failed."""
    looks = deque[tuple[datetime, bool]]()

    def holds() -> bool:
        looks.append((now(), host in lab.outside.unreached or bool(unserved(lab.world, host))))
        while (looks[-1][0] - looks[0][0]).total_seconds() > PROBED_SECONDS:
            looks.popleft()
        return sum(missed for _, missed in looks) > MISSED * max(len(looks), PROBED_SECONDS / 2)

    return holds


@family(
    "The setting by which a second controller of Ingresses knows its class has another name in its new version: it"
    " takes the class of the first one, both write their address into each Ingress, and public names follow.",
    joined=20,
)
async def two_addresses(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    name = lab.rng.choice(("ingress-internal", "intranet-proxy", "ingress-office"))
    own = lab.rng.choice(("internal", "intranet", "office"))
    records: dict[str, str] = {}

    def wanted(process: Process) -> str:
        """Of the old version by one variable, of the new one by another; where there is none, the usual class."""
        variable = "INGRESS_CLASS" if process.tag.startswith("1.") else "CONTROLLER_INGRESS_CLASS"
        return process.env.get(variable, INGRESS_CLASS)

    async def resolve(process: Process) -> None:
        """As external-dns: a name leads where the status of its Ingress says."""
        listed = await process.api.call("GET", path("Ingress"))
        for one in listed.body.get("items", []):
            for told in one.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
                records.update({rule["host"]: told["ip"] for rule in one["spec"].get("rules", ())})

    async def reach() -> None:
        while True:
            lab.outside.unreached = {host for host, address in records.items() if address == PRIVATE}
            await asyncio.sleep(0.5)

    first = lab.apps[f"registry.corp.example/{'/'.join(INGRESS_CONTROLLER)}"]
    assert first.program
    first.program = both(first.program, every(3, _addressing(PUBLIC, lambda _: INGRESS_CLASS)))
    rules = (("networking.k8s.io", "ingresses", "get,list,watch"), ("networking.k8s.io", "ingresses/status", "patch"))
    await lab.apply(objects.cluster_role("ingress-status", *rules))
    await lab.apply(objects.binding("ingress-status", "ingress-status", *INGRESS_CONTROLLER))
    await lab.roll("admin", *INGRESS_CONTROLLER, "1.0.1")
    program = both(informer(path("Service")), every(3, _addressing(PRIVATE, wanted)))
    env = [{"name": "INGRESS_CLASS", "value": own}]
    await lab.controller("platform", name, program, ("", "services", "list,watch"), *rules, tag="1.12.3", env=env)
    await lab.controller("platform", "external-dns", every(2, resolve), rules[0], replicas=1)
    await lab.app("platform", "backoffice")
    places = (("shop", "frontend"), ("payments", "checkout"), ("search", "query"))
    await lab.until(lambda: all(backends(lab.world, *place) for place in (*places, ("platform", "backoffice"))))
    await publish(lab, "platform", "backoffice", by_class=own)
    for place in places:
        host = await publish(lab, *place)
        url = f"https://{host}"
        lab.alert("ProbeFailing", _probe(lab, host), f"{url} is often not answered", 5, job="blackbox", instance=url)
    lab.start(reach())
    await lab.until(lambda: len(records) > len(places))
    yield
    await lab.roll(lab.rng.choice(("argocd", "flux", "carol")), "platform", name, "2.0.1", culprit=True)
