"""What was told of the way in: proxies whose buffers grew, and an agent that keeps namespaces apart."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.after_boot import process_of
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import INGRESS_CONTROLLER, unserved
from tests.lab.programs import every
from tests.lab.scenario import family

SETTINGS = ("ingress-nginx", "ingress-nginx-controller")
"""The ConfigMap that the controller of the Ingresses follows, without a restart."""
USUAL_MIB, CONNECTIONS, SALE = 90.0, 600, 5.0
"""What a proxy has in memory beside its buffers, how many connections all of them have, and what a sale makes of it."""
FILLED = 0.4
"""The share of what is still to come to a proxy that comes within a second."""
CALICO = "crd.projectcalico.org"


@family(
    "The proxies of all Ingresses get larger and more buffers for the long headers of a partner: nobody sees it, until"
    " a sale brings five times the connections, each of which has its own, and the proxies are killed in turn.",
    joined=18,
)
async def proxy_buffers(lab: Lab) -> AsyncIterator[None]:
    """As Ramiel Vectors tells of a sale in November 2025."""
    crowd = [1.0]
    open_now: defaultdict[str, float] = defaultdict(float)
    """Connections, by process of a proxy."""

    def buffers_mib() -> float:
        """Of one connection: that of the head of an answer, and those of the rest."""
        data = lab.world["ConfigMap"][SETTINGS]["data"]
        size = int(data["proxy-buffer-size"].removesuffix("k"))
        return size * (1 + int(data["proxy-buffers-number"])) / 1024

    def check(container: Container) -> Problem | None:
        limit = container.spec["resources"]["limits"]["memory"]
        needed = USUAL_MIB + open_now[process_of(container.pod)] * buffers_mib()
        return Problem("oom", f"needs {needed:.0f}Mi, may have {limit}") if needed > mebibytes(limit) else None

    async def connect() -> None:
        """Those that are ready share all connections; who is started anew begins with none."""
        while True:
            await asyncio.sleep(1)
            ready = [pod for pod in pods(lab.world, *INGRESS_CONTROLLER) if is_ready(pod)]
            for pod in ready:
                share = lab.rng.uniform(0.9, 1.1) * CONNECTIONS * crowd[0] / len(ready)
                open_now[process_of(pod)] += (share - open_now[process_of(pod)]) * FILLED

    async def sell() -> None:
        await lab.pause(lab.rng.uniform(13, 18))
        while crowd[0] < SALE:
            crowd[0] += 0.5
            await asyncio.sleep(1)

    data = {"proxy-buffer-size": "8k", "proxy-buffers-number": "4", "proxy-body-size": "20m", "use-gzip": "true"}
    await lab.apply(objects.config_map(*SETTINGS, **data))
    lab.apps["registry.corp.example/ingress-nginx/ingress-nginx"].check = check
    for namespace, name, usual in (("shop", "frontend", 14.0), ("payments", "checkout", 8.0), ("search", "query", 9.0)):
        url = f"https://{await publish(lab, namespace, name)}"
        lab.apps[f"registry.corp.example/{namespace}/{name}"].asked = lambda usual=usual: usual * crowd[0]
        holds = lambda url=url: bool(unserved(lab.world, url.removeprefix("https://")))  # noqa: E731
        lab.alert("ProbeFailed", holds, f"{url} is not answered", 4, job="blackbox", instance=url)
    namespace, name = INGRESS_CONTROLLER
    crashing = lambda: restarts(lab.world, namespace, name) >= 4  # noqa: E731
    lab.alert("KubePodRestarting", crashing, f"pods of {name} restart", 2, namespace=namespace, deployment=name)
    lab.start(connect())
    yield
    size, number = lab.rng.choice((("32k", "8"), ("64k", "4"), ("32k", "10")))
    more = {"data": {"proxy-buffer-size": size, "proxy-buffers-number": number}}
    await lab.culprit("ci", "update", "ConfigMap", *SETTINGS, more)
    lab.start(sell())


@family(
    "A second plugin for the network, which knows policies, is put on top of the one that the cluster has: its agent on"
    " each node lets nobody in from another namespace, and the proxies of all Ingresses get no answer any more.",
    joined=18,
)
async def second_plugin(lab: Lab) -> AsyncIterator[None]:
    """As Abdennour Toumi tells of Calico (February 2020)."""
    namespace, name = "kube-system", "calico-node"
    image = f"registry.corp.example/{namespace}/{name}"
    kinds = ("FelixConfiguration", "GlobalNetworkPolicy", "IPPool", "ClusterInformation")

    async def enforce(process: Process) -> None:
        """Each agent for its own node, once it can read what there is."""
        listed = [await process.api.call("GET", f"/apis/{CALICO}/v1/{_plural(kind)}") for kind in kinds]
        if all(one.ok for one in listed):
            lab.outside.apart.add(process.see().pod["spec"]["nodeName"])

    lab.apps[image] = App(image, program=every(3, enforce), serves=False)
    for place in (("shop", "frontend"), ("payments", "checkout"), ("search", "query"), ("media", "uploads")):
        await publish(lab, *place)
        lab.alert_ingress_errors(place[0], place[0])
    yield
    by = lab.rng.choice(("alice", "bob", "carol"))
    for kind in kinds:
        names = {"plural": _plural(kind), "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": loose}}
        spec = {"group": CALICO, "scope": "Cluster", "names": names, "versions": [version]}
        called = f"{_plural(kind)}.{CALICO}"
        body: Json = {"metadata": {"name": called}, "spec": spec}
        await lab.culprit(by, "create", "CustomResourceDefinition", "", called, body)
    rules = (CALICO, "*", "*"), ("", "nodes,pods,namespaces", "get,list,watch")
    await lab.apply(objects.account(namespace, name), by)
    await lab.apply(objects.cluster_role(name, *rules), by)
    await lab.apply(objects.binding(name, name, namespace, name), by)
    made = objects.deployment(namespace, name, f"{image}:3.12.0", account=name, kind="DaemonSet")
    await lab.culprit(by, "create", "DaemonSet", namespace, name, made)


def _plural(kind: str) -> str:
    return f"{kind[:-1].lower()}ies" if kind.endswith("y") else f"{kind.lower()}s"
