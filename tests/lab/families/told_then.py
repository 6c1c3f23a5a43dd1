"""What was told of those in front: a balancer that hears late who has ended, and proxies that wait for everybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, path
from tests.lab.apps import Container, Problem, Process, mebibytes
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, sleeps_before_end
from tests.lab.network import INGRESS_CLASS, INGRESS_CONTROLLER, unserved
from tests.lab.programs import both, every
from tests.lab.scenario import family

REPLICAS = 8
SYNC_SECONDS, ASK_EVERY = 2.5, 0.12
"""How often a balancer looks who is there, and how often somebody asks it."""
USUAL_MIB, REQUEST_MIB, GIVE_UP_SECONDS = 90.0, 0.5, 60.0
"""What a proxy needs, what each request adds that waits for its answer, and for how long it waits."""


@family(
    "A release of an API ends gracefully by itself, as it stops to listen when it is told to end, and does without the"
    " sleep before: a load balancer hears of it seconds later, and at each further, harmless rollout callers get 502.",
    joined=10,
)
async def graceful_end(lab: Lab) -> AsyncIterator[None]:
    """As in "Kubernetes' dirty endpoint secret and Ingress" (Ravelin, 2019)."""
    namespace, name = lab.rng.choice((("payments", "score-api"), ("search", "query-api"), ("media", "upload-api")))
    behind: list[str] = []
    failed = [0]

    async def look(process: Process) -> None:
        """Who is ready, as the controller of a cloud's load balancer writes it to that one."""
        where = path("EndpointSlice", namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector=kubernetes.io/service-name={name}")
        endpoints = [one for piece in listed.body.get("items", []) for one in piece.get("endpoints") or ()]
        if listed.ok:
            behind[:] = [one["targetRef"]["name"] for one in endpoints if one["conditions"].get("ready")]

    async def ask(process: Process) -> None:
        """A caller's request goes to one of those that the balancer knows: who has ended does not listen."""
        failed[0] += bool(behind) and (namespace, process.rng.choice(behind)) not in lab.world["Pod"]

    balancer = both(every(SYNC_SECONDS, look), every(ASK_EVERY, ask))
    rule = ("discovery.k8s.io", "endpointslices", "list")
    await lab.controller("kube-system", "lb-controller", balancer, rule, replicas=1)
    await lab.app(namespace, name, tag="1.9.0", replicas=REPLICAS)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    await lab.roll("admin", namespace, name, "1.9.0", lifecycle={"preStop": {"sleep": {"seconds": 6}}})
    await lab.until(lambda: _is_rolled_out(lab, namespace, name, sleeps=True))
    count = lambda: failed[0]  # noqa: E731
    lab.measure("loadbalancer_responses_total", count, "counter", namespace=namespace, service=name, code="502")
    gateway = lab.rate(lambda: failed[0], 0.25, seconds=15)
    lab.alert("BadGatewayHigh", gateway, f"callers of {name} get 502", 4, namespace=namespace, service=name)
    yield
    by = lab.rng.choice(("argocd", "ci"))
    await lab.roll(by, namespace, name, "2.0.0", culprit=True, lifecycle=None)

    async def go_on() -> None:
        """The team delivers often."""
        await lab.until(lambda: _is_rolled_out(lab, namespace, name, sleeps=False))
        for tag in ("2.0.1", "2.0.2"):
            await lab.pause(lab.rng.uniform(6, 9))
            await lab.roll(by, namespace, name, tag)

    lab.start(go_on())


def _is_rolled_out(lab: Lab, namespace: str, name: str, *, sleeps: bool) -> bool:
    """Each of the pods that an app wants is ready, sleeps before its end or does not, and no others are left."""
    there = pods(lab.world, namespace, name)
    new = [is_ready(pod) and bool(sleeps_before_end(pod)) is sleeps for pod in there]
    return all(new) and len(new) == REPLICAS


@family(
    "A search engine outside of the cluster answers late, and only the app that asks it is about that: but the proxies"
    " that all apps share keep each of its requests in memory until it is answered, and are killed for it.",
    culprit=False,
    joined=10,
)
async def shared_proxies(lab: Lab) -> AsyncIterator[None]:
    """As the first incident of "Kubernetes Failure Stories" (Zalando, KubeCon Europe 2019)."""
    hosts = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
    for namespace, name in hosts.items():
        service = {"service": {"name": name, "port": {"number": 80}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": service}]
        rules = [{"host": f"{namespace}.corp.example", "http": {"paths": paths}}]
        spec: Json = {"ingressClassName": INGRESS_CLASS, "rules": rules}
        await lab.apply({"kind": "Ingress", "metadata": {"namespace": namespace, "name": namespace}, "spec": spec})
        lab.reserve(namespace, name)
        _probe(lab, f"{namespace}.corp.example")
    waiting: dict[str, float] = {}  # by uid and restarts of a proxy's pod: requests that it has not answered
    rate = lab.rng.choice((90.0, 110.0, 130.0))

    def process(pod: Json) -> str:
        told = pod.get("status", {}).get("containerStatuses", ())
        return f"{pod['metadata']['uid']} {sum(one['restartCount'] for one in told)}"

    def check(container: Container) -> Problem | None:
        limit = container.spec["resources"]["limits"]["memory"]
        needed = USUAL_MIB + REQUEST_MIB * waiting.get(process(container.pod), 0.0)
        return Problem("oom", f"needs {needed:.0f}Mi, may have {limit}") if needed > mebibytes(limit) else None

    async def wait() -> None:
        """Each proxy that is ready gets its share of the requests, and gives one up after a while."""
        while True:
            await asyncio.sleep(1)
            ready = [pod for pod in pods(lab.world, *INGRESS_CONTROLLER) if is_ready(pod)]
            for pod in ready if "search.example" in lab.outside.broken else ():
                so_far = waiting.get(process(pod), 0.0)
                share = lab.rng.uniform(0.7, 1.3) / len(ready)
                waiting[process(pod)] = so_far * (1 - 1 / GIVE_UP_SECONDS) + rate * share

    lab.apps["registry.corp.example/ingress-nginx/ingress-nginx"].check = check
    crashing = lambda: restarts(lab.world, *INGRESS_CONTROLLER) >= 4  # noqa: E731
    namespace, name = INGRESS_CONTROLLER
    lab.alert("KubePodRestarting", crashing, f"pods of {name} restart", 2, namespace=namespace, deployment=name)
    lab.start(wait())
    yield
    lab.outside.broken["search.example"] = "answers after 40s"


def _probe(lab: Lab, host: str) -> None:
    """As a blackbox exporter at another place."""
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 4, job="blackbox", instance=f"https://{host}")
