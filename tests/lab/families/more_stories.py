"""Changes whose harm waits for the usual: a restart of proxies, a change of anybody's pods, the next release."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import LATE, App, Container, CrashError, Problem, Process
from tests.lab.company import READ
from tests.lab.families.between import publish
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import both, informer
from tests.lab.scenario import family

TURN_SECONDS, QUEUE_SECONDS = 3.0, 1.5
"""For which proxies that go round together are at the same pod, and until that one answers late."""
TEMPLATE = """backend {{ $backend.Name }}
    balance roundrobin
    {{- range $server := RANGE }}
    server {{ $server.Name }} {{ $server.Address }}:{{ $server.Port }} check inter 2s
    {{- end }}
"""
SHUFFLED, BY_ADDRESS = "shuffle $backend.Servers", "$backend.ServersByAddress"
"""The second is a map: Go goes through it in any order, but its templates in that of the keys."""


@family(
    "A line in the template of the ingress's proxies goes through a map, in the belief that its order is anybody's"
    " guess: all proxies begin at the same pod now whenever they are restarted, and one pod after another has it all.",
    joined=10,
)
async def hot_pods(lab: Lab) -> AsyncIterator[None]:
    """As Skyscanner tells of one line of a template."""
    namespace, name = lab.rng.choice((("search", "fares"), ("shop", "deals"), ("media", "covers")))
    calls, template = lab.rng.choice((380.0, 420.0, 460.0)), "haproxy.tmpl"
    kept = [("", now())]  # what the proxies were configured with, and since when

    def check(container: Container) -> Problem | None:
        """They are restarted with every change of a template or of somebody's pods."""
        line = lab.world["ConfigMap"]["platform", "haproxy-template"]["data"][template]
        served = {place: [pod["status"]["podIP"] for pod in backends(lab.world, *place)] for place in places}
        told = f"{line}{sorted((place, sorted(addresses)) for place, addresses in served.items())}"
        if told != kept[0][0]:
            kept[0] = told, now()
        if SHUFFLED in line or not served[namespace, name]:
            return None
        turn, seconds = divmod((now() - kept[0][1]).total_seconds(), TURN_SECONDS)
        hot = sorted(served[namespace, name])[int(turn) % len(served[namespace, name])]
        if seconds < QUEUE_SECONDS or container.pod.get("status", {}).get("podIP") != hot or calls <= app.capacity:
            return None
        return Problem("unready", LATE)

    places = [(namespace, name), ("payments", "checkout")]
    await lab.apply(
        objects.config_map("platform", "haproxy-template", **{template: TEMPLATE.replace("RANGE", SHUFFLED)})
    )
    program = both(informer(path("Ingress")), informer(path("EndpointSlice")))
    await lab.controller("platform", "haproxy-ingress", program, READ, kind="DaemonSet", config="haproxy-template")
    app = await lab.app(namespace, name, like=App("", check=check), replicas=6)
    app.load = calls
    for place in places:
        await publish(lab, *place, by_class="haproxy")
    lab.alert_lacking(namespace, name)
    yield
    body = {"data": {template: TEMPLATE.replace("RANGE", BY_ADDRESS)}}
    by = lab.rng.choice(("bob", "flux", "argocd"))
    await lab.culprit(by, "update", "ConfigMap", "platform", "haproxy-template", body)


@family(
    "A faulty app is scaled to nothing and leaves its Service behind: the proxies of the mesh, which have not met one"
    " without any endpoints, end on it as they are restarted one after another, and nobody calls anybody any more.",
    joined=10,
)
async def empty_service(lab: Lab) -> AsyncIterator[None]:
    """As Monzo tells of October 2017."""
    namespace, name = lab.rng.choice((("payments", "roundups"), ("shop", "vouchers"), ("media", "reactions")))

    async def route(process: Process) -> None:
        """Reads what there is, and is told of what changes."""
        listed = await process.api.call("GET", path("EndpointSlice"))
        if any(piece["endpoints"] is None for piece in listed.body.get("items", [])):
            raise CrashError('Exception in thread "main" java.lang.NullPointerException')
        await informer(path("EndpointSlice"))(process)

    def check(container: Container) -> Problem | None:
        """Every call goes through the proxy of the node."""
        node = container.pod["spec"]["nodeName"]
        here = [one for one in pods(lab.world, "platform", "mesh-proxy") if one["spec"].get("nodeName") == node]
        if any(is_ready(one) for one in here):
            return None
        refused = f"dial tcp {node}:4140: connect: connection refused"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({refused})")

    await lab.app(namespace, name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 2)
    await lab.controller("platform", "mesh-proxy", route, READ, kind="DaemonSet")
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, "platform", "mesh-proxy"))) == len(NODES))
    for app in lab.apps.values():
        if app.upstreams:
            app.check = check
    for place in (("shop", "frontend"), ("payments", "checkout"), ("search", "query")):
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    await lab.culprit(
        lab.rng.choice(("bob", "carol")), "update", "Deployment", namespace, name, {"spec": {"replicas": 0}}
    )
    await lab.pause(lab.rng.uniform(8, 13))
    lab.start(_restart(lab, "alice", "platform", "mesh-proxy"))


async def _restart(lab: Lab, by: str, namespace: str, name: str) -> None:
    """Every pod of an app by hand, one after another. Raises RefusedError."""
    for pod in pods(lab.world, namespace, name):
        await lab.who[by].must("DELETE", path("Pod", namespace, pod["metadata"]["name"]))
        await asyncio.sleep(1.5)


@family(
    "The release of a test environment is installed for every market at once, and none of its containers says what it"
    " needs: the scheduler finds room where there is none, and one node after another is busy with its memory only.",
    joined=10,
)
async def no_requests(lab: Lab) -> AsyncIterator[None]:
    """As Saltside tells of its first outage."""
    markets = lab.rng.sample(("se", "no", "dk", "fi", "nl", "be", "at"), 5)
    services = ("classifieds", "accounts", "chat", "moderation")
    await lab.namespace("staging")
    for service in services:
        image = f"registry.corp.example/staging/{service}"
        lab.apps[image] = App(image, memory_mi=9700)

    def lost() -> bool:
        conditions = [one for node in NODES for one in lab.world["Node"]["", node]["status"]["conditions"]]
        return [one["status"] for one in conditions if one["type"] == "Ready"].count("True") <= len(NODES) - 2

    lab.alert("KubeNodesNotReady", lost, "several nodes have been unready", 4, job="apiserver")
    yield
    for market in markets:
        for service in services:
            image, name = f"registry.corp.example/staging/{service}:1.0.0", f"{service}-{market}"
            body: Json = objects.deployment("staging", name, image)
            del body["spec"]["template"]["spec"]["containers"][0]["resources"]
            await lab.culprit("ci", "create", "Deployment", "staging", name, body)
            await lab.apply(objects.service("staging", name), by="ci")
        await lab.pause(2)
