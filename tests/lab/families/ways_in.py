"""What was told of the way in: proxies whose buffers grew, and an agent that keeps namespaces apart."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.apps import Container, Problem, mebibytes
from tests.lab.families.after_boot import process_of
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import INGRESS_CONTROLLER, unserved
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
