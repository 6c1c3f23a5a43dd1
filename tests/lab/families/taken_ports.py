"""What was told of ports that two programs want on one node: a storage driver that an updater brings by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.programs import every, getting
from tests.lab.scenario import family

NAMESPACE, CONTROLLER, PLUGIN = "nfs-csi", "csi-nfs-controller", "csi-nfs-node"
DRIVER = "nfs.csi.k8s.io"
OLD, NEW = "4.13.1", "4.13.2"
PORTS = {(CONTROLLER, OLD): 29652, (PLUGIN, OLD): 29651, (CONTROLLER, NEW): 29653, (PLUGIN, NEW): 29653}
"""Where each of them is asked after its health, on the network of its node."""


@family(
    "An updater brings a new version of a storage driver by itself: its controller and its plugin on each node listen"
    " at one port of the node, and where the controller has it the plugin does not come up, and nothing is mounted.",
    joined=18,
)
async def probe_port(lab: Lab) -> AsyncIterator[None]:
    """As Viktor Barzin tells of 17 May 2026; which ports the old version had is not told there."""
    holders: dict[tuple[str, int], str] = {}

    def check(container: Container) -> Problem | None:
        """Who came first has the port for as long as its pod is there."""
        name = container.spec["name"]
        key = (container.pod["spec"]["nodeName"], PORTS[name, container.tag])
        if holders.get(key) not in {
            uid_of(pod) for one in (CONTROLLER, PLUGIN) for pod in pods(lab.world, NAMESPACE, one)
        }:
            holders[key] = uid_of(container.pod)
        if holders[key] == uid_of(container.pod):
            return None
        return Problem("crash", f"listen tcp 127.0.0.1:{key[1]}: bind: address already in use")

    def is_registered(node: str) -> bool:
        return any(is_ready(pod) and pod["spec"]["nodeName"] == node for pod in pods(lab.world, NAMESPACE, PLUGIN))

    on_node: Json = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "tag": OLD}
    await lab.namespace(NAMESPACE)
    await lab.app(NAMESPACE, PLUGIN, like=App("", check=check, serves=False), kind="DaemonSet", **on_node)
    await lab.app(NAMESPACE, CONTROLLER, like=App("", check=check, serves=False), replicas=2, **on_node)
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, NAMESPACE, PLUGIN))) == len(NODES))
    lab.outside.drivers[DRIVER] = is_registered
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {},
    }
    users = lab.rng.sample((("media", "library"), ("platform", "git"), ("search", "archive"), ("payments", "scans")), 2)
    for namespace, name in users:
        share = {"server": "10.0.9.20", "share": f"/srv/{namespace}/{name}"}
        volumes = [{"name": "data", "csi": {"driver": DRIVER, "volumeAttributes": share}}]
        spread_so = {**spread, "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}
        await lab.app(namespace, name, replicas=6, topologySpreadConstraints=[spread_so], volumes=volumes)
        lab.alert_lacking(namespace, name, seconds=10)
    rules = ("apps", "deployments,daemonsets", "get,list,watch,patch"), ("", "pods", "list")
    await lab.namespace("keel")
    asks = every(4, getting(path("Deployment"), path("DaemonSet")))
    await lab.controller("keel", "keel", asks, *rules, replicas=1)
    await lab.robot("keel", "keel", "keel", "keel/0.21.1")
    crashing = lambda: restarts(lab.world, NAMESPACE, PLUGIN) >= 3  # noqa: E731
    summary = f"a pod of {NAMESPACE}/{PLUGIN} is crash looping"
    lab.alert("KubePodCrashLooping", crashing, summary, 3, namespace=NAMESPACE, daemonset=PLUGIN)
    yield
    for kind, name in (("Deployment", CONTROLLER), ("DaemonSet", PLUGIN)):
        there = lab.world[kind][NAMESPACE, name]["spec"]["template"]["spec"]["containers"][0]
        one = {**there, "image": f"registry.corp.example/{NAMESPACE}/{name}:{NEW}"}
        body = {"spec": {"template": {"spec": {"containers": [one]}}}}
        await lab.culprit("keel", "update", kind, NAMESPACE, name, body)
        await lab.pause(lab.rng.uniform(3, 5))

    async def deliver() -> None:
        """Teams go on."""
        for namespace, name in users:
            await lab.pause(lab.rng.uniform(4, 8))
            await lab.roll("argocd", namespace, name, "1.0.1")

    lab.start(deliver())
