"""What was told of moving: a replica that is promoted, nodes that are emptied all at once, a kubelet that stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from tests.lab import objects
from tests.lab.alerts import is_lost, pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.manifests import is_done, is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

FAILOVER_SECONDS = 3.0
"""For how long an operator sees a primary that is not ready before it promotes another one."""
ASK_EVERY, OLD_SHARE = 0.25, 0.4
"""How often somebody looks for an order, and how many of those are older than what a replica lags behind."""
WARM_SECONDS = 24.0
"""Until a large cache is filled, and an app answers."""
RUNNERS, RUN_SECONDS, STUCK_SECONDS = 4, 5.0, 15.0
"""How many there are at most, for how long each has work, and after how long one should have come up."""


def spare(lab: Lab, count: int) -> list[str]:
    """So many nodes, none of which has a robot: those keep the token of their pod."""
    homes = {pod["spec"]["nodeName"] for place in ROBOTS.values() for pod in pods(lab.world, *place[:2])}
    return lab.rng.sample([node for node in NODES if node not in homes], count)


@family(
    "The machine of a database's primary dies, and its operator promotes the only replica, which has been hours behind"
    " and nobody knew: the database is there again, and what was written last is not.",
    culprit=False,
    joined=12,
)
async def stale_replica(lab: Lab) -> AsyncIterator[None]:
    """As Gravitational tells of streaming replication on Kubernetes (2018)."""
    namespace, name = lab.rng.choice((("shop", "orders"), ("payments", "invoices"), ("media", "comments")))
    database, role = f"{name}-db", "postgres.corp.example/role"
    primary, lost = [f"{database}-0"], [0]
    seen_well = [now()]

    async def keep(process: Process) -> None:
        """One of its pods is the primary: if that is not ready for a while, it is the other one."""
        where = path("Pod", namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name={database}")
        found = {pod["metadata"]["name"]: pod for pod in listed.body.get("items", [])}
        others = [one for one, pod in sorted(found.items()) if one != primary[0] and is_ready(pod)]
        if not listed.ok or (primary[0] in found and is_ready(found[primary[0]])):
            seen_well[0] = now()
        elif others and (now() - seen_well[0]).total_seconds() > FAILOVER_SECONDS:
            primary[0] = others[0]
        for one, pod in found.items():
            wanted = "primary" if one == primary[0] else "replica"
            if pod["metadata"]["labels"].get(role) != wanted:
                await process.api.call("PATCH", f"{where}/{one}", {"metadata": {"labels": {role: wanted}}})

    def is_behind() -> bool:
        served = [pod["metadata"]["name"] for pod in backends(lab.world, namespace, database)]
        return served == [f"{database}-1"]

    async def ask(process: Process) -> None:
        """Somebody looks for an order; what the first primary did not send to the replica is not there."""
        lost[0] += is_behind() and process.rng.random() > OLD_SHARE

    homes = spare(lab, 2)
    for node in homes:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "databases"}}})
    apart = {
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": database}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    like, pool = App("", serves=False), {"pool": "databases"}
    await lab.app(namespace, database, like=like, kind="StatefulSet", nodeSelector=pool, affinity=affinity)
    writable = {"spec": {"selector": {"app.kubernetes.io/name": database, role: "primary"}}}
    await lab.edit("admin", "Service", namespace, database, writable)
    general = {"pool": "general"}
    rule = ("", "pods", "get,list,patch")
    await lab.controller("platform", "postgres-operator", every(1, keep), rule, replicas=1, nodeSelector=general)
    asking, upstreams = every(ASK_EVERY, ask), ((namespace, database),)
    app = await lab.controller(namespace, name, asking, replicas=1, nodeSelector=general, upstreams=upstreams)
    app.serves = True
    app.failing, app.fails_with = lambda container: (1 - OLD_SHARE) * is_behind(), lambda container: "404"
    await lab.until(lambda: backends(lab.world, namespace, database))
    summary = f"{name} does not find what customers look for"
    missing = lab.rate(lambda: lost[0], 0.8, seconds=6)
    lab.alert("NotFoundHigh", missing, summary, 3, namespace=namespace, service=name)
    for node in NODES:
        holds = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", holds, f"node {node} has been unready", 20, node=node)
    yield
    lab.kubelets.crash(lab.world["Pod"][namespace, f"{database}-0"]["spec"]["nodeName"])


@family(
    "An upgrade takes one node after another and too long, so somebody drains all old nodes at once. No budget keeps"
    " anything there: an app that is slow to start is nowhere for a while.",
    joined=12,
)
async def drain_at_once(lab: Lab) -> AsyncIterator[None]:
    """As loveholidays tells of an upgrade of its cluster (2019)."""
    namespace, name = lab.rng.choice((("shop", "booking"), ("search", "offers"), ("media", "gallery")))
    old = sorted(spare(lab, 3))
    new = [node for node in NODES if node not in old]
    for node in new:  # which are not there yet
        await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": True}})
    await lab.app(namespace, name, like=App("", start_seconds=WARM_SECONDS), replicas=6)
    await lab.until(lambda: sum(is_ready(pod) for pod in pods(lab.world, namespace, name)) == 6)
    for node in new:
        await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": None}})
    lab.alert_lacking(namespace, name)
    yield
    by = lab.rng.choice(("alice", "bob"))
    for node in old:
        await lab.culprit(by, "update", "Node", "", node, {"spec": {"unschedulable": True}})
    for node in old:
        lab.start(drain(lab, by, node))


@family(
    "The runtime of one node has a broken record of a container, and its kubelet stands at it: it says that it is well,"
    " takes on nothing that is placed there and says nothing of it. Runners of builds wait there for ever.",
    culprit=False,
    joined=12,
)
async def hung_kubelet(lab: Lab) -> AsyncIterator[None]:
    """As a review of January 2026 tells of four runners (incidents.pgmac.net.au)."""
    nodes = lab.rng.sample(NODES, 3)
    for node in nodes:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "builders"}}})
    image = "registry.corp.example/platform/runner"
    lab.apps[image] = App(image, ends_after=RUN_SECONDS)
    template = objects.deployment("platform", "runner", f"{image}:2.330.0", restartPolicy="Never")["spec"]["template"]
    spec: Json = {**template["spec"], "nodeSelector": {"pool": "builders"}}
    spec["containers"][0]["resources"] = {"requests": {"cpu": "2", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    del spec["containers"][0]["readinessProbe"]
    is_open = asyncio.Event()

    async def scale(process: Process) -> None:
        """There is always work: a runner takes one job, is removed, and another one is made."""
        selector = "app.kubernetes.io/name=runner"
        listed = await process.api.call("GET", f"{path('Pod', 'platform')}?labelSelector={selector}")
        if not listed.ok or not is_open.is_set():
            return
        there: list[Json] = listed.body["items"]
        for pod in [one for one in there if is_done(one)]:
            await process.api.call("DELETE", path("Pod", "platform", pod["metadata"]["name"]))
        if sum(not is_done(pod) for pod in there) < RUNNERS:
            meta = {**template["metadata"], "name": f"runner-{process.rng.randrange(16**5):05x}"}
            await process.api.call("POST", path("Pod", "platform"), {"metadata": meta, "spec": spec})

    def waits() -> bool:
        """A runner has not come up for long."""
        since = stamp(now() - timedelta(seconds=STUCK_SECONDS))
        return any(
            pod.get("status", {}).get("phase") == "Pending" and pod["metadata"]["creationTimestamp"] < since
            for pod in pods(lab.world, "platform", "runner")
        )

    async def open_soon() -> None:
        await lab.pause(3)
        is_open.set()

    rule = ("", "pods", "get,list,create,delete")
    await lab.controller("platform", "runner-controller", every(0.8, scale), rule, replicas=1)
    summary = "a pod of platform has been in a non-ready state for a while"
    lab.alert("KubePodNotReady", waits, summary, 2, namespace="platform")
    await lab.until(lambda: all(is_ready(pod) for pod in pods(lab.world, "platform", "runner-controller")))
    lab.start(open_soon())
    yield
    lab.outside.hung.add(lab.rng.choice(nodes))
