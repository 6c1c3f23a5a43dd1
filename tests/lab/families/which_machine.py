"""What rests on the machine where it runs: how its kernel counts memory, and for which processors an image is built."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.alerts import restarts
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.families.upgraded import LOOKS_EVERY, empty, replaced
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

GROUP, LABEL = "nodes.corp.example", "nodes.corp.example/image"
POOL = {"pool": "workers"}
OLD, NEW = "linux-2026.02.11", "linux-2026.05.06"
KERNELS = {OLD: "4.19.315", NEW: "5.4.219"}
"""Of the images of machines."""
ARM = "arm64"
RESERVED: Json = {"key": "arch", "value": ARM, "effect": "NoSchedule"}
EACH_STANDS, LEAST, EVENING_PODS = 20.0, 3, 6
AFTERNOON, EVENING, RISES_BY = 42.0, 95.0, 4.5
"""Requests a second by the time of day, and by how much those grow each minute in between."""


@dataclass
class _Machines:
    """A group of machines, which have the image that is declared; one after the other is replaced."""

    lab: Lab
    kind: Kind

    def kernel(self, node: str) -> str:
        labels = self.lab.world["Node"].get(("", node), {}).get("metadata", {}).get("labels", {})
        return KERNELS.get(labels.get(LABEL, ""), "")

    async def renew(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path("platform", "workers"))
        nodes = (await process.api.call("GET", f"{path('Node')}?labelSelector=pool=workers")).body.get("items", [])
        image = declared.body.get("spec", {}).get("image", "")
        for one in nodes if declared.ok else ():
            node = one["metadata"]["name"]
            if one["metadata"]["labels"].get(LABEL) != image:
                await process.api.call("PATCH", path("Node", None, node), {"spec": {"unschedulable": True}})
                await empty(process, node)
                await replaced(self.lab, process, node, "v1.36.1", {**POOL, LABEL: image})
                await self.lab.kubelets.run_kernel(node, KERNELS[image])
                return


@family(
    "A group of machines gets a newer image, with a newer kernel. That one counts what a container has written to files"
    " and is still in memory against its limit, and does not let go of it in time: one app writes large files all the"
    " time, and is killed for memory again and again wherever it comes up on a new machine.",
    joined=61,
)
async def page_cache(lab: Lab) -> AsyncIterator[None]:
    """As told of newer kernels that end who writes files (kubernetes 114142, coreos/bugs 2398)."""
    namespace, name, caller = lab.rng.choice(
        (
            ("media", "clip-exporter", "studio"),
            ("shop", "feed-writer", "merchant-desk"),
            ("payments", "archive-writer", "statement-page"),
        )
    )
    group, by = spare(lab, 3), lab.rng.choice(("carol", "flux", "argocd"))
    fills = lab.rng.uniform(6, 9)
    machines = _Machines(lab, await lab.custom("NodeGroup", GROUP, ANY))

    def check(container: Container) -> Problem | None:
        """What it writes fills what it may have, a little sooner or later for each pod."""
        if machines.kernel(container.pod["spec"].get("nodeName", "")) != KERNELS[NEW]:
            return None
        turn = int(container.pod["metadata"]["uid"][:2], 16) / 255
        if container.seconds < fills * (1 + turn / 2):
            return None
        return Problem("oom", f"needs more than {container.spec['resources']['limits']['memory']}")

    for node in group:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {**POOL, LABEL: OLD}}})
        await lab.kubelets.run_kernel(node, KERNELS[OLD])
    await lab.served(machines.kind)
    meta = {"namespace": "platform", "name": "workers"}
    spec = {"image": OLD, "maxUnavailable": 1}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": machines.kind.name, "metadata": meta, "spec": spec})
    rules = (
        (GROUP, machines.kind.plural, "get,list,watch"),
        ("", "nodes", "get,list,patch,delete"),
        ("", "pods", "list"),
        ("", "pods/eviction", "create"),
    )
    general: Json = {"nodeSelector": {"pool": "general"}}
    renewing = every(LOOKS_EVERY, machines.renew)
    await lab.controller("platform", "node-groups", renewing, *rules, replicas=1, **general)
    await lab.app(namespace, name, like=App("", check=check, asked=lambda: 24.0), replicas=4, nodeSelector=POOL)
    await lab.app("search", "suggestions", replicas=2, nodeSelector=POOL)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2, **general)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, caller))
    await publish(lab, namespace, caller)
    lab.reserve(namespace, name)
    restarted = lab.rate(lambda: restarts(lab.world, namespace, name), 0.06, seconds=20)
    summary = f"pods of {namespace}/{name} are restarting"
    lab.alert("KubePodCrashLooping", restarted, summary, 3, namespace=namespace, deployment=name)
    lab.alert_errors(namespace, caller, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 5))
    await lab.culprit(by, "update", machines.kind.name, "platform", "workers", {"spec": {"image": NEW}})


@family(
    "Some machines have cheaper processors of another kind, and a taint keeps them for the app that is built for those."
    " Half of them is idle, so somebody takes the taint away: what runs goes on, and the further pods that an app gets"
    " in the evening come up there, where its image does not run, and end at each start.",
    joined=61,
)
async def other_architecture(lab: Lab) -> AsyncIterator[None]:
    """As told of nodes with a taint for ARM, and of images that are not for it (antfarm.world)."""
    namespace, name, front, home, built = lab.rng.choice(
        (
            ("shop", "bundles", "bundle-page", "search", "embeddings"),
            ("media", "playlists", "playlist-page", "shop", "price-crawler"),
            ("payments", "instalments", "plan-page", "media", "transcriber"),
        )
    )
    by, team = lab.rng.choice(("alice", "bob", "carol")), lab.rng.choice(("ci", "argocd"))
    asked, cheap = [AFTERNOON], spare(lab, 2)

    def check(container: Container) -> Problem | None:
        """All that the company builds is for both, but for this one."""
        node = lab.world["Node"].get(("", container.pod["spec"].get("nodeName", "")), {})
        is_other = node.get("metadata", {}).get("labels", {}).get("kubernetes.io/arch") == ARM
        told = "exec /usr/local/bin/server: exec format error"
        return Problem("crash", told, at_once=True) if is_other else None

    def short(_: Container) -> float:
        """What those that are there do not stand."""
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked[0])

    async def evening() -> None:
        while asked[0] < EVENING:
            asked[0] += RISES_BY * lab.rng.uniform(0.9, 1.1)
            await lab.pause(1)

    for node in NODES:
        if node in cheap:
            await lab.kubelets.run_on(node, ARM)
            await lab.edit("admin", "Node", "", node, {"spec": {"taints": [RESERVED]}})
            await drain(lab, "admin", node)
        else:
            await lab.kubelets.run_on(node, "amd64")
    tolerated = [{"key": "arch", "operator": "Equal", "value": ARM, "effect": "NoSchedule"}]
    selector = {"kubernetes.io/arch": ARM}
    await lab.app(home, built, replicas=2, tag="0.18.0", nodeSelector=selector, tolerations=tolerated)
    like = App("", check=check, asked=lambda: asked[0], capacity=3 * EACH_STANDS)
    like.failing, like.fails_with = short, lambda _: "503"
    await lab.app(namespace, name, like=like, replicas=LEAST, tag="3.7.2")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.15.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == LEAST)
    await lab.until(lambda: backends(lab.world, namespace, front) and backends(lab.world, home, built))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=9)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    for node in cheap:
        await lab.culprit(by, "update", "Node", "", node, {"spec": {"taints": None}})
    await lab.pause(lab.rng.uniform(9, 15))
    lab.start(evening())
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": EVENING_PODS}})
