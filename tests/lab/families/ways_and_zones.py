"""Where something is: the address by which the world comes in, the zone of a machine."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial

from tests.lab.alerts import is_lost, pending
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.families.node_groups import ZONE
from tests.lab.families.renumbered import helm_kept
from tests.lab.lab import NODES, Lab
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import every
from tests.lab.scenario import family

HOME, CONTROLLER = INGRESS_CONTROLLER
OWN_CHART, UPSTREAM_CHART = "nginx-ingress-controller", "ingress-nginx-controller"
"""What the Service with the public address is called in the chart of old, and in that of the project itself."""
OLD, NEW = "1.12.4", "1.13.3"
ZONES = ("eu-3a", "eu-3b", "eu-3c")
ASKED, EACH_STANDS, SPREAD_OVER = 150.0, 29.0, 6
"""Requests a second that an app gets in all and that one pod stands, and how many pods it has."""
GIVEN_UP = 9
"""Seconds after which the pods of a lost node are given up: somebody shortened the five minutes there are."""


@dataclass
class _Cloud:
    """It gives each Service of the type LoadBalancer an address of its own; ``record`` is whom public names lead to."""

    lab: Lab
    addresses: Iterator[int]
    record: str = ""
    follows: bool = False
    """Whether an agent keeps the record as the Services have it."""

    async def provide(self, process: Process) -> None:
        listed = await process.api.call("GET", path("Service"))
        for one in listed.body.get("items", []):
            if one["spec"]["type"] == "LoadBalancer" and not one["status"]["loadBalancer"]:
                meta, told = one["metadata"], {"ingress": [{"ip": f"203.0.113.{next(self.addresses)}"}]}
                where = f"{path('Service', meta['namespace'], meta['name'])}/status"
                await process.api.call("PATCH", where, {"status": {"loadBalancer": told}})

    def held(self) -> set[str]:
        """The addresses that lead to the controller."""
        found = (one for (where, _), one in self.lab.world["Service"].items() if where == HOME)
        given = (one.get("status", {}).get("loadBalancer", {}).get("ingress", ()) for one in found)
        return {address["ip"] for listed in given for address in listed}

    def is_reached(self) -> bool:
        return bool(self.held()) if self.follows else self.record in self.held()


def _fails(lab: Lab, namespace: str, name: str) -> bool:
    return lab.traffic.of_app(namespace, name, 10).failed > 0.05


def _balanced(name: str, chart: str) -> Json:
    """The Service with the public address, as a chart has it."""
    labels = {"helm.sh/chart": chart, "app.kubernetes.io/managed-by": "Helm"}
    ports = [{"name": "https", "port": 443, "targetPort": 8080}]
    spec = {"type": "LoadBalancer", "selector": {"app.kubernetes.io/name": CONTROLLER}, "ports": ports}
    meta = {"namespace": HOME, "name": name, "labels": labels}
    return {"kind": "Service", "metadata": meta, "spec": spec}


@family(
    "The chart of the Ingresses' controller is based on the project's own from now on, which calls the Service with the"
    " public address by another name: Helm makes the new one, which gets another address, and deletes the old one. In a"
    " sibling an agent keeps the public names, here they are kept by hand: all of them lead where nobody is.",
    joined=40,
)
async def new_balancer(lab: Lab) -> AsyncIterator[None]:
    """As Kubermatic tells of its chart, for which the address must not change (kubermatic 8295)."""
    cloud = _Cloud(lab, itertools.count(lab.rng.randrange(10, 90)))
    number = lab.rng.randrange(12, 40)
    rights = ("", "services", "list"), ("", "services/status", "patch")
    cloud_program = every(1.0, cloud.provide)
    await lab.controller("kube-system", "cloud-controller", cloud_program, *rights, replicas=1, tag="1.36.0")
    await lab.apply(_balanced(OWN_CHART, "nginx-ingress-controller-2.18.7"), "ci")
    await lab.apply(helm_kept(OWN_CHART, HOME, number), "ci")
    places = lab.rng.sample(
        (("shop", "frontend"), ("media", "uploads"), ("search", "query"), ("payments", "ledger")), 2
    )
    hosts = [await publish(lab, *place) for place in places]
    await lab.roll("admin", HOME, CONTROLLER, OLD)
    await rolled(lab, HOME, CONTROLLER, OLD)
    await lab.until(cloud.held)
    [cloud.record] = cloud.held()
    lab.outside.reached = cloud.is_reached
    for host in hosts:
        fails = partial(lambda host: not cloud.is_reached() or bool(unserved(lab.world, host)), host)
        url = f"https://{host}"
        lab.alert("ProbeFailed", fails, f"{url} is not answered", 7, job="blackbox", instance=url)
    await lab.until(lab.is_well)

    async def upgrade(*, is_it: bool) -> None:
        """As Helm: what is new or changed first, and then what is not in the chart any more is deleted."""
        made = _balanced(UPSTREAM_CHART, "ingress-nginx-4.13.3")
        secret = helm_kept(OWN_CHART, HOME, number + 1)
        if not is_it:
            await lab.apply(made, "ci")
            await lab.roll("ci", HOME, CONTROLLER, NEW)
            await lab.who["ci"].must("DELETE", path("Service", HOME, OWN_CHART))
            return
        why = "the same release, which makes the other Service"
        await lab.also(why, "ci", "create", "Secret", HOME, secret["metadata"]["name"], secret)
        await lab.also(why, "ci", "create", "Service", HOME, UPSTREAM_CHART, made)
        await lab.roll("ci", HOME, CONTROLLER, NEW)
        await lab.culprit("ci", "delete", "Service", HOME, OWN_CHART)

    async with before(lab, days=lab.rng.randrange(1, 6), cluster=lab.rng.choice(("staging", "eu-2"))):
        cloud.follows = True
        await lab.pause(3)
        await upgrade(is_it=False)
        await rolled(lab, HOME, CONTROLLER, NEW)
        await lab.pause(5)
    await lab.apply(_balanced(OWN_CHART, "nginx-ingress-controller-2.18.7"))
    await lab.who["admin"].must("DELETE", path("Service", HOME, UPSTREAM_CHART))
    await lab.roll("admin", HOME, CONTROLLER, OLD)
    await rolled(lab, HOME, CONTROLLER, OLD)
    await lab.until(lambda: len(cloud.held()) == 1)
    [cloud.record], cloud.follows = cloud.held(), False
    await lab.until(lab.is_well)
    yield
    await upgrade(is_it=True)


@family(
    "The cloud loses the network of one of three zones. An app has its pods spread evenly over the zones, and may not"
    " have one more in any: those that are to replace what was lost wait for the zone that is away, and the others do"
    " not stand what comes.",
    culprit=False,
    joined=40,
)
async def zone_lost(lab: Lab) -> AsyncIterator[None]:
    """As told of the first of June 2018, when one zone of a region was hardly reached (loggly.com)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "product-api", "product-page"),
            ("media", "stream-api", "stream-page"),
            ("search", "find", "find-page"),
        )
    )
    asked = ASKED * lab.rng.uniform(0.95, 1.05)
    away = sorted(spare(lab, 2))
    there = [node for node in NODES if node not in away]
    where = lab.rng.sample(ZONES, 3)
    for number, node in enumerate((*away, *there)):
        labels = {ZONE: where[number // 2], "topology.kubernetes.io/region": "eu-3"}
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": labels}})

    def short(_: Container) -> float:
        """What is more than those stand that are reached."""
        reached = [
            pod for pod in backends(lab.world, namespace, name) if pod["spec"]["nodeName"] not in lab.outside.cut_off
        ]
        return max(0.0, 1 - EACH_STANDS * len(reached) / asked)

    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    soon = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": GIVEN_UP}
        for key in ("unreachable", "not-ready")
    ]
    like = App("", asked=lambda: asked, capacity=300, failing=short, fails_with=lambda _: "503")
    spread_out = {"topologySpreadConstraints": [spread], "tolerations": soon}
    await lab.app(namespace, name, like=like, replicas=SPREAD_OVER, tag="11.2.0", **spread_out)
    like = App("", upstreams=((namespace, name),))
    await lab.app(namespace, front, like=like, replicas=3, tag="7.0.3", tolerations=soon)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == SPREAD_OVER)
    await lab.until(lambda: bool(backends(lab.world, namespace, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for node in NODES:
        lost = partial(is_lost, lab.world, node)
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 25, node=node)
    for one in (name, front):
        failing = partial(_fails, lab, namespace, one)
        summary = f"more than 5% of the requests to {namespace}/{one} are answered with 5xx"
        lab.alert("HighErrorRate", failing, summary, 30, namespace=namespace, service=one)
    lab.alert_lacking(namespace, name, seconds=20)
    summary = f"a pod of {namespace} has had no node for a while"
    holds = partial(pending, lab.world, namespace)
    lab.alert("KubePodPending", holds, summary, 8, namespace=namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    lab.outside.cut_off.update(away)
    lab.outside.silent_nodes.update(away)
