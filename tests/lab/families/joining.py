"""Incidents without a culprit among the changes: no machine joins any more, and pods find no room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Process, Program
from tests.lab.company import READ
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.programs import both, every, tell
from tests.lab.scenario import family

AUTOSCALER = ("kube-system", "cluster-autoscaler")
LARGE = {"requests": {"cpu": "4", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
"""Of which three fit on a node beside what else runs there."""
LOOK_SECONDS = 3
Failing = Callable[[Process, Sequence[Json]], Awaitable[None]]


async def say(process: Process, about: Json, kind: str, reason: str, message: str) -> None:
    """An event of the autoscaler's."""
    await tell(process, about, kind, reason, message, by="cluster-autoscaler")


def enlarging(group: str, fails: Failing, *, patience: int) -> Program:
    """As the autoscaler: who finds no node wants one more. That one does not come, and it is not asked for again soon.

    ``patience`` is for how many looks it waits for that node. Its words: processors/status/eventing_scale_up_processor.
    """
    looks = [0]

    async def look(process: Process) -> None:
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName=")
        waiting = [
            {"kind": "Pod", **pod}
            for pod in listed.body.get("items", [])
            if any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))
        ]
        if not waiting:
            return
        if looks[0] == patience:
            await fails(process, waiting)
        for pod in waiting:
            if looks[0] == 0:
                grown = f"{group} {len(NODES)}->{len(NODES) + 1} (max: 20)"
                await say(process, pod, "Normal", "TriggeredScaleUp", f"pod triggered scale-up: [{{{grown}}}]")
            elif looks[0] > patience:
                kept = "pod didn't trigger scale-up: 1 in backoff after failed scale-up"
                await say(process, pod, "Normal", "NotTriggerScaleUp", kept)
        looks[0] += 1

    return every(LOOK_SECONDS, look)


async def autoscaled(lab: Lab, program: Program) -> None:
    """The company's autoscaler does this besides, from a restart on. Raises RefusedError."""
    app = lab.apps[f"registry.corp.example/{'/'.join(AUTOSCALER)}"]
    assert app.program
    app.program = both(app.program, program)
    rules = READ, ("", "configmaps", "*"), ("", "events", "create")
    await lab.edit("admin", "ClusterRole", "", AUTOSCALER[1], objects.cluster_role(AUTOSCALER[1], *rules))
    for pod in pods(lab.world, *AUTOSCALER):
        await lab.who["admin"].must("DELETE", path("Pod", AUTOSCALER[0], pod["metadata"]["name"]))


async def large(lab: Lab, namespace: str, name: str, replicas: int) -> None:
    """An app whose pods need much. Raises RefusedError."""
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    body: Json = objects.deployment(namespace, name, f"{image}:1.0.0", replicas=replicas)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = LARGE
    await lab.apply(body)
    await lab.apply(objects.service(namespace, name))


@family(
    "The range of addresses that nodes get theirs from was large once, and has nothing left for one more: as traffic"
    " grows, an autoscaler fills the nodes that there are, and the pods of a harmless rollout find none.",
    culprit=False,
    joined=11,
)
async def node_range(lab: Lab) -> AsyncIterator[None]:
    """As loveholidays tells of its 256 nodes."""
    busy, released = lab.rng.sample([("search", "offers"), ("shop", "availability"), ("media", "galleries")], 2)
    traffic, where = [100.0], f"{path('Deployment', *busy)}/scale"

    async def exhausted(process: Process, waiting: Sequence[Json]) -> None:
        """In the words of GKE."""
        why = "Node scale up in zones europe-west1-b associated with this pod failed: IP space exhausted."
        for pod in waiting:
            await say(process, pod, "Warning", "FailedScaleUp", f"{why} Pod is at risk of not being scheduled.")

    async def scale(process: Process) -> None:
        """Each pod takes ten."""
        found, wanted = await process.api.call("GET", where), int(traffic[0] / 10)
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def grow() -> None:
        """Until the evening, when somebody releases something as well."""
        while traffic[0] < 160:
            traffic[0] += 10
            await asyncio.sleep(1)
        await asyncio.sleep(lab.rng.uniform(6, 10))
        await lab.roll(lab.rng.choice(("argocd", "flux", "ci")), *released, "1.0.1")

    group = "https://www.googleapis.com/compute/v1/projects/corp/zones/europe-west1-b/instanceGroups/gke-main-pool-grp"
    await autoscaled(lab, enlarging(group, exhausted, patience=1))
    may = ("apps", "deployments/scale", "get,patch")
    await large(lab, *busy, 10)
    await large(lab, *released, 2)
    await lab.controller("platform", "traffic-scaler", every(2, scale), may, replicas=1)
    lab.alert_stuck(*released)
    yield
    lab.start(grow())


def leaving(told: set[str]) -> Program:
    """As a handler of notices that a machine will be taken: nothing new comes to its node, what is there goes."""

    async def leave(process: Process) -> None:
        node = process.see().pod["spec"]["nodeName"]
        if node not in told:
            return
        await process.api.call("PATCH", path("Node", None, node), {"spec": {"unschedulable": True}})
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
        for meta in [pod["metadata"] for pod in listed.body.get("items", [])]:
            if not any(owner["kind"] == "DaemonSet" for owner in meta.get("ownerReferences", ())):
                one = {key: meta[key] for key in ("namespace", "name")}
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": one}
                await process.api.call("POST", f"{path('Pod', meta['namespace'], meta['name'])}/eviction", body)

    return every(2, leave)


def forgetting(gone: Callable[[], set[str]]) -> Program:
    """As a cloud's controller: the node of a machine that is gone is no more."""

    async def forget(process: Process) -> None:
        listed = await process.api.call("GET", path("Node"))
        for name in [one["metadata"]["name"] for one in listed.body.get("items", [])]:
            if name in gone():
                await process.api.call("DELETE", path("Node", None, name))

    return every(1, forget)


@family(
    "The cloud takes two spot machines back, and no others come: a package that they install as they boot is gone from"
    " the mirror of their distribution, they do not join, and pods of those two find no room.",
    culprit=False,
    joined=11,
)
async def missing_package(lab: Lab) -> AsyncIterator[None]:
    """As FREE NOW tells of September 2019."""
    deploy = {pod["spec"]["nodeName"] for place in ROBOTS.values() for pod in pods(lab.world, *place[:2])}
    taken = lab.rng.sample([node for node in NODES if node not in deploy], 2)  # a robot keeps the token of its pod
    told: set[str] = set()

    async def timed_out(process: Process, waiting: Sequence[Json]) -> None:
        found = await process.api.call("GET", path("ConfigMap", AUTOSCALER[0], f"{AUTOSCALER[1]}-status"))
        late = "Nodes added to group nodes.corp.example failed to register within 15m0s"
        await say(process, {"kind": "ConfigMap", **found.body}, "Warning", "ScaleUpTimedOut", late)

    async def take() -> None:
        told.update(taken)
        await asyncio.sleep(8)
        for node in taken:
            lab.kubelets.crash(node)

    await lab.namespace("staging")
    await autoscaled(lab, enlarging("nodes.corp.example", timed_out, patience=5))
    rules = ("", "nodes", "get,list,patch"), ("", "pods", "get,list"), ("", "pods/eviction", "create")
    await lab.controller("kube-system", "node-termination-handler", leaving(told), *rules, kind="DaemonSet")
    program, may = forgetting(lambda: told & lab.outside.dead_nodes), ("", "nodes", "get,list,delete")
    await lab.controller("kube-system", "cloud-controller-manager", program, may, replicas=1)
    for namespace, name in (("staging", "dispatch"), ("staging", "pricing"), ("shop", "dispatch"), ("shop", "pricing")):
        await large(lab, namespace, name, 4)
    for namespace in ("staging", "shop"):
        holds = lambda namespace=namespace: pending(lab.world, namespace)  # noqa: E731
        summary = f"a pod of {namespace} has had no node for a while"
        lab.alert("KubePodPending", holds, summary, 15, namespace=namespace)
    yield
    lab.start(take())
