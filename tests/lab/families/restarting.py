"""What was told of starting again: proxies that do not come up any more, nodes that restart for a Secret."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from tests.lab import objects
from tests.lab.alerts import is_lost
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem, Process, Program
from tests.lab.families.moving import spare
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

PROXIES, NEEDED, EVICT_SECONDS = 6, 3, 6.0
"""How many there are, how many of them stand all calls, and until the next one is evicted."""
STARTUP_SECONDS = 8.0
"""After which a startup probe has failed as often as it may."""
BOOT_SECONDS = 34.0
"""For how long a machine is away that boots again."""
CONFIG = "machineconfiguration.openshift.io/currentConfig"
HOME, SECRET = "kube-system", "pull-secret"
REFUSED = "probe failed: dial tcp :8080: connect: connection refused"


@family(
    "A flag switches a path on that an upgrade will need: proxies of a store connect to the new one as they start, and"
    " that times out. Those that run go on; one after another is evicted, as ever, and does not come up again.",
    joined=13,
)
async def startup_path(lab: Lab) -> AsyncIterator[None]:
    """As Inngest tells of 16 July 2026."""
    namespace, caller = lab.rng.choice((("payments", "checkpoints"), ("media", "sessions"), ("search", "runs")))
    proxy = "state-proxy"
    flagged: dict[str, bool] = {}  # by uid and restarts: what a container's flag was at its start

    def check(container: Container) -> Problem | None:
        """The flag is read once. Without an answer of the new store it never listens, and is killed for that."""
        told = container.pod["status"].get("containerStatuses", ())
        process = f"{container.pod['metadata']['uid']} {sum(one['restartCount'] for one in told)}"
        if not flagged.setdefault(process, container.config["UPGRADE_READINESS"] == "on"):
            return None
        return Problem("starting" if container.seconds < STARTUP_SECONDS else "killed", REFUSED, "Startup")

    def check_caller(_: Container) -> Problem | None:
        """A few proxies do not stand the calls of all."""
        if len(backends(lab.world, namespace, proxy)) >= NEEDED:
            return None
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({proxy}: i/o timeout)")

    async def evict(process: Process) -> None:
        """As a descheduler that evens nodes out: the oldest goes."""
        where = path("Pod", namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name={proxy}")
        for pod in sorted(listed.body.get("items", []), key=lambda one: str(one["metadata"]["creationTimestamp"]))[:1]:
            name = pod["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await process.api.call("POST", f"{where}/{name}/eviction", body)

    await lab.apply(objects.config_map(namespace, proxy, UPGRADE_READINESS="off", POOL_SIZE="40"))
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 8}
    await lab.app(namespace, proxy, like=App("", check=check), replicas=PROXIES, config=proxy, startup=probe)
    await lab.app(namespace, caller, like=App("", check=check_caller), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, proxy)) == PROXIES)
    rules = (("", "pods", "list"), ("", "pods/eviction", "create"))
    await lab.controller("kube-system", "descheduler", every(EVICT_SECONDS, evict), *rules, replicas=1)
    lab.alert_lacking(namespace, caller)
    yield
    by = lab.rng.choice(("alice", "ci", "flux"))
    await lab.culprit(by, "update", "ConfigMap", namespace, proxy, {"data": {"UPGRADE_READINESS": "on"}})


@family(
    "A pull secret is changed, which seems to be no more than that: what configures the machines writes it to each node"
    " and lets one after another boot again for it.",
    joined=13,
)
async def node_secret(lab: Lab) -> AsyncIterator[None]:
    """As Operate First tells of 15 June 2021."""
    workers = spare(lab, 4)
    await lab.apply({"kind": "Secret", "metadata": {"namespace": HOME, "name": SECRET}, **_credentials("b2xk")})
    for node in set(NODES) - set(workers):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "masters"}}})
    rules = (
        ("", "nodes", "get,patch"),
        ("", "pods", "list"),
        ("", "secrets", "get"),
        ("", "pods/eviction", "create"),
    )
    place, name = {"pool": "masters"}, "machine-config-operator"
    await lab.controller("platform", name, _configuring(lab, workers), *rules, replicas=1, nodeSelector=place)
    nodes = lab.world["Node"]
    await lab.until(lambda: all(CONFIG in nodes["", node]["metadata"].get("annotations", {}) for node in workers))
    for node in NODES:
        holds = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", holds, f"node {node} has been unready", 4, node=node)
    yield
    await lab.culprit(lab.rng.choice(("argocd", "flux")), "update", "Secret", HOME, SECRET, _credentials("bmV3"))


def _credentials(token: str) -> Json:
    return {"stringData": {".dockerconfigjson": f'{{"auths": {{"registry.corp.example": {{"auth": "{token}"}}}}}}'}}


def _configuring(lab: Lab, workers: Sequence[str]) -> Program:
    """As a machine config operator: a node that has not what is declared is emptied and booted, one at a time."""

    async def look(process: Process) -> None:
        declared = await process.api.call("GET", path("Secret", HOME, SECRET))
        for node in workers if declared.ok else ():
            where = path("Node", None, node)
            found = await process.api.call("GET", where)
            has = found.body.get("metadata", {}).get("annotations", {}).get(CONFIG, "")
            rendered = f"rendered-worker-{declared.body['metadata']['resourceVersion']}"
            if not found.ok or has == rendered:
                continue
            if has:  # it is not new
                await process.api.call("PATCH", where, {"spec": {"unschedulable": True}})
                await _empty(process, node)
                lab.kubelets.crash(node)
                await asyncio.sleep(BOOT_SECONDS)
                await lab.kubelets.come_back(node, rebooted=True)
            body = {"metadata": {"annotations": {CONFIG: rendered}}, "spec": {"unschedulable": None}}
            await process.api.call("PATCH", where, body)

    return every(2, look)


async def _empty(process: Process, node: str) -> None:
    """What a DaemonSet owns stays, what a budget keeps is asked for again."""
    while True:
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
        there = [pod["metadata"] for pod in listed.body.get("items", ()) if not _is_of_each_node(pod)]
        if listed.ok and not there:
            return
        for meta in there:
            body = {"metadata": {key: meta[key] for key in ("namespace", "name")}}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", **body}
            await process.api.call("POST", f"{path('Pod', meta['namespace'], meta['name'])}/eviction", eviction)
        await asyncio.sleep(1)


def _is_of_each_node(pod: Json) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))
