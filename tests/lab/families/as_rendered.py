"""What tools make of what teams declare: variables in another order, settings that an overlay replaces as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import environment
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import every, tell
from tests.lab.scenario import family

AGENT_PORT = 3130


def _of_pod(variable: str, field: str) -> Json:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _by_kind(listed: list[Json]) -> list[Json]:
    """As the newer pipeline renders variables: what is written down first, what is of the pod after it."""
    return sorted(listed, key=lambda one: "valueFrom" in one)


@family(
    "A pipeline's new version renders the variables of a container in another order: those that are taken from the pod"
    " come last. A reference is to what stands above it only: the address of the agent on the pod's own node, which is"
    " made of such a variable, stays as it is written, and each request that needs the agent fails.",
    joined=62,
)
async def rendered_order(lab: Lab) -> AsyncIterator[None]:
    """As users of a tool for deployments tell of variables that refer to others (OctopusDeploy issues 6975)."""
    namespace, name, agent, other = lab.rng.choice(
        (
            ("shop", "price-labels", "rules-agent", "store-hours"),
            ("payments", "limits-desk", "policy-agent", "holiday-calendar"),
            ("media", "ad-slots", "targeting-agent", "captions-page"),
        )
    )
    number, share = lab.rng.randrange(12, 60), lab.rng.uniform(0.35, 0.7)
    old, new, variable = f"2.{number}.0", f"2.{number + 1}.0", f"{agent.split('-')[0].upper()}_URL"

    def is_led(container: Container) -> bool:
        return container.seconds < lab.lag or "$(" not in environment(container.spec)[variable]

    def led() -> float:
        """Which part of the app's pods asks the agent on its node."""
        there = [one.container for one in lab.kubelets.running() if one.app is app]
        return sum(map(is_led, there)) / max(1, len(there))

    await lab.app(namespace, agent, like=App("", asked=lambda: 30.0 * share * led()), kind="DaemonSet", tag="0.9.4")
    app = App("", upstreams=((namespace, agent),), asked=lambda: 30.0)
    app.failing = lambda one: 0.0 if is_led(one) else share
    env = [
        _of_pod("NODE_IP", "status.hostIP"),
        {"name": variable, "value": f"http://$(NODE_IP):{AGENT_PORT}/{agent}"},
        {"name": "LOG_FORMAT", "value": "json"},
    ]
    await lab.until(lambda: backends(lab.world, namespace, agent))
    await lab.app(namespace, name, like=app, replicas=4, tag=old, env=env)
    pod_name = [_of_pod("POD_NAME", "metadata.name"), {"name": "LOG_FORMAT", "value": "json"}]
    await lab.app(namespace, other, replicas=2, tag="4.0.1", env=pod_name)
    await rolled(lab, namespace, name, old)
    await lab.until(lambda: backends(lab.world, namespace, other))
    await publish(lab, namespace, name)
    lab.reserve(namespace, agent, other)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    lab.alert_lacking(namespace, name, seconds=15)
    await lab.until(lab.is_well)

    def anew(which: str) -> list[Json]:
        spec = lab.world["Deployment"][namespace, which]["spec"]["template"]["spec"]
        return _by_kind(spec["containers"][0]["env"])

    yield
    await lab.roll("ci", namespace, other, "4.0.2", env=anew(other))
    await lab.pause(lab.rng.uniform(5, 12))
    await lab.roll("ci", namespace, name, new, culprit=True, env=anew(name))


HOME, CONTROLLER = INGRESS_CONTROLLER
SETTINGS = "ingress-nginx-controller"
MARK = "service.beta.kubernetes.io/cloud-load-balancer-proxy-protocol"


@dataclass
class _Balancer:
    """In front of the Ingresses' controller: it begins each connection with the client's address, or does not."""

    lab: Lab
    sends: bool = False

    async def keep(self, process: Process) -> None:
        """As the part of the cloud that keeps it as its Service says."""
        found = await process.api.call("GET", path("Service", HOME, CONTROLLER))
        wanted = found.body.get("metadata", {}).get("annotations", {}).get(MARK) == "v2"
        if found.ok and wanted is not self.sends:
            self.sends = wanted
            about = {"kind": "Service", **found.body}
            await tell(
                process, about, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer", by="service-controller"
            )
            await tell(
                process, about, "Normal", "EnsuredLoadBalancer", "Ensured load balancer", by="service-controller"
            )

    def is_understood(self) -> bool:
        """Whether the proxies expect what it sends: they read their settings anew as these change."""
        settings = self.lab.world["ConfigMap"].get((HOME, SETTINGS), {}).get("data", {})
        return (settings.get("use-proxy-protocol") == "true") is self.sends


async def _sends(lab: Lab, by: str, *, is_on: bool, is_it: bool = False) -> None:
    """The load balancer is to send each client's address."""
    body = {"metadata": {"annotations": {MARK: "v2" if is_on else None}}}
    if is_it:
        await lab.culprit(by, "update", "Service", HOME, CONTROLLER, body)
    else:
        await lab.edit(by, "Service", HOME, CONTROLLER, body)


async def _expects(lab: Lab, by: str, *, is_on: bool) -> None:
    """So are the proxies to expect it."""
    body = {"data": {"use-proxy-protocol": "true" if is_on else "false"}}
    await lab.edit(by, "ConfigMap", HOME, SETTINGS, body)


@family(
    "Apps are to know the addresses of their users: the load balancer in front of the Ingresses' controller is told to"
    " begin each connection with it, and the proxies to expect that, as in a sibling. In this cluster an overlay"
    " replaces the proxies' settings as a whole, so only the load balancer hears of it: no connection is understood.",
    joined=62,
)
async def client_addresses(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a header that one side sends and the other does not read (ingress-nginx 3558, 3996, 11319)."""
    first, second = lab.rng.choice(
        (
            (("shop", "frontend"), ("media", "uploads")),
            (("search", "query"), ("shop", "frontend")),
            (("media", "thumbnails"), ("search", "query")),
        )
    )
    by, balancer = lab.rng.choice(("argocd", "flux", "alice")), _Balancer(lab)
    settings = {"use-proxy-protocol": "false", "proxy-body-size": "16m", "keep-alive-requests": "1000"}
    await lab.apply(objects.config_map(HOME, SETTINGS, **settings))
    await lab.edit("admin", "Service", HOME, CONTROLLER, {"spec": {"type": "LoadBalancer"}})
    address: Json = {"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}}
    await lab.who["admin"].must("PATCH", f"{path('Service', HOME, CONTROLLER)}/status", address)
    rules = ("", "services", "get,list"), ("", "events", "create")
    ways = every(1.5, balancer.keep)
    await lab.controller("kube-system", "cloud-controller-manager", ways, *rules, replicas=1, tag="1.33.2")
    hosts = [await publish(lab, *place) for place in (first, second)]
    lab.outside.reached = balancer.is_understood
    for host in hosts:
        fails = lambda host=host: not balancer.is_understood() or bool(unserved(lab.world, host))  # noqa: E731
        url = f"https://{host}"
        lab.alert("ProbeFailed", fails, f"{url} is not answered", 7, job="blackbox", instance=url)
    told: Json = {"namespace": "monitoring", "service": "loadbalancer-exporter", "load_balancer": "ingress-nginx"}
    resets = lab.adding_up(lambda: 0.2 if balancer.is_understood() else 40.0)
    lab.measure("loadbalancer_tcp_target_resets_total", resets, "counter", **told)
    await lab.until(lambda: backends(lab.world, HOME, CONTROLLER))
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.choice((3, 6, 9)), cluster=lab.rng.choice(("eu-2", "us-1"))):
        await _expects(lab, by, is_on=True)
        await _sends(lab, by, is_on=True)
        await lab.until(balancer.is_understood)
        await lab.pause(6)
    await _expects(lab, "admin", is_on=False)
    await _sends(lab, "admin", is_on=False)
    await lab.until(lambda: not balancer.sends)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 8))
    await _sends(lab, by, is_on=True, is_it=True)
