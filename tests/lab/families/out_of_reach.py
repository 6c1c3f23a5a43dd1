"""Incidents without a culprit among the changes: what is outside of the cluster is not told, or not found, any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from zlib import crc32

from tests.lab import objects
from tests.lab.api import path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import every, tell
from tests.lab.scenario import family

STANDS, ASKED, REPLICAS = 50.0, 150.0, 8
"""Requests a second that one pod stands and that all get, and how many pods there are."""
FIRST_MIB, LIMIT = 60, "128Mi"
SERVED = "kubernetes.io/service-name"
FILLED_SECONDS = (18, 40)
"""How long the container beside takes, at least and at most, to need more memory than it may have."""


@dataclass
class _Balancer:
    """In front of the cluster: it sends what comes from outside to the addresses that it was told last."""

    lab: Lab
    trusts: bool = True
    """Whether the certificate is good by which whoever tells it is known."""
    told: set[str] = field(default_factory=set)
    failed: int = 0

    def is_reached(self) -> bool:
        found = backends(self.lab.world, *INGRESS_CONTROLLER)
        return any(pod["status"].get("podIP") in self.told for pod in found)

    async def tell(self, process: Process) -> None:
        """As the agent that keeps it up to date."""
        namespace, name = INGRESS_CONTROLLER
        listed = await process.api.call("GET", f"{path('EndpointSlice', namespace)}?labelSelector={SERVED}={name}")
        slices = listed.body.get("items", [])
        ends = [one for each in slices for one in each.get("endpoints") or () if one["conditions"].get("ready")]
        addresses = {address for one in ends for address in one["addresses"]}
        if self.trusts:
            self.told = addresses
        elif addresses != self.told:
            self.failed += 1
            found = await process.api.call("GET", path("Service", namespace, name))
            why = 'Error syncing load balancer: Put "https://lb.corp.example/v2/pools/edge/members": '
            expired = f"{why}remote error: tls: expired certificate"
            about = {"kind": "Service", **found.body}
            await tell(process, about, "Warning", "SyncLoadBalancerFailed", expired, by="lb-agent")


@family(
    "The certificate runs out by which an agent is known to the load balancer outside, which keeps what it was told"
    " last. Nobody notices, until the Ingresses' controller gets its next, harmless version and other addresses.",
    culprit=False,
    joined=26,
)
async def balancer_stale(lab: Lab) -> AsyncIterator[None]:
    """As SysEleven tells of its MetaKube, 10 February 2024."""
    balancer = _Balancer(lab)
    rules = ("discovery.k8s.io", "endpointslices", "list"), ("", "services", "get"), ("", "events", "create")
    await lab.controller("kube-system", "lb-agent", every(2, balancer.tell), *rules, replicas=1, tag="3.2.0")
    hosts = [await publish(lab, *place) for place in (("shop", "frontend"), ("media", "uploads"))]
    await lab.roll("admin", *INGRESS_CONTROLLER, "1.13.4")
    await rolled(lab, *INGRESS_CONTROLLER, "1.13.4")
    await lab.until(balancer.is_reached)
    lab.outside.reached = balancer.is_reached
    for host in hosts:
        fails = lambda host=host: not balancer.is_reached() or bool(unserved(lab.world, host))  # noqa: E731
        instance = f"https://{host}"
        lab.alert("ProbeFailed", fails, f"{instance} is not answered", 7, job="blackbox", instance=instance)
    of_agent = {"namespace": "kube-system", "service": "lb-agent"}
    lab.measure("lb_agent_sync_errors_total", lambda: balancer.failed, "counter", **of_agent)
    yield
    balancer.trusts = False
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.roll(lab.rng.choice(("argocd", "flux")), *INGRESS_CONTROLLER, "1.13.5")


@family(
    "A container beside an app's own needs more memory with time, is ended, and is there again in a moment, as ever."
    " Its image is to be pulled at each start, and whoever maintains the names outside has the registry's lead nowhere:"
    " one pod after another does not get it back.",
    culprit=False,
    joined=26,
)
async def pulled_each_time(lab: Lab) -> AsyncIterator[None]:
    """As GitHub tells of 13 July 2020."""
    namespace, name = lab.rng.choice((("shop", "pages"), ("media", "repositories"), ("search", "browse")))
    beside = f"registry.corp.example/platform/{lab.rng.choice(('stats-relay', 'trace-relay'))}"

    def memory(container: Container) -> Problem | None:
        least, most = FILLED_SECONDS
        filled = least + crc32(container.pod["metadata"]["uid"].encode()) % (most - least)
        needed = FIRST_MIB + (mebibytes(LIMIT) - FIRST_MIB) * container.seconds / filled
        return Problem("oom", f"needs {needed:.0f}Mi, may have {LIMIT}") if needed > mebibytes(LIMIT) else None

    def short(_: Container) -> float:
        """All of it comes to those that are there."""
        return max(0.0, 1 - STANDS * len(backends(lab.world, namespace, name)) / ASKED)

    lab.apps[beside] = App(beside, check=memory, serves=False)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="900"))
    like = App("", asked=lambda: ASKED, failing=short, fails_with=lambda _: "503", capacity=2 * ASKED)
    await lab.app(namespace, name, like=like, replicas=REPLICAS, config=name, tag="8.2.0")
    [own] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    relay = {
        "name": beside.rsplit("/", 1)[1],
        "image": f"{beside}:1.9.0",
        "imagePullPolicy": "Always",
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": LIMIT}},
    }
    body = {"spec": {"template": {"spec": {"containers": [own, relay]}}}}
    await lab.edit("admin", "Deployment", namespace, name, body)
    await asyncio.sleep(2)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == REPLICAS)
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    lab.outside.registry_up = False
