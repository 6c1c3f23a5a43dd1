"""What fits elsewhere and not here: a plugin ahead of its nodes, an even spread over zones that are not even."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

OLD_PLUGIN, NEW_PLUGIN, AGENT = "1.12.6", "1.18.0", "aws-node"
AHEAD = (
    'plugin type="aws-cni" name="aws-cni" failed: incompatible CNI versions; config is "1.1.0", plugin supports'
    ' ["0.3.0" "0.3.1" "0.4.0" "1.0.0"]'
)
RUNS, RUN_SECONDS, LATE_SECONDS = 4, 3.0, 15.0
"""Runs of a batch at a time, how long one takes, and after how long it should have come to its end."""


@dataclass
class _Runs:
    """What settles all that was paid: one run after another."""

    namespace: str
    name: str
    image: str
    begun: dict[str, float] = field(default_factory=dict)
    """When those were made that have not come to their end."""

    async def dispatch(self, process: Process) -> None:
        jobs = path("Job", self.namespace)
        listed = await process.api.call("GET", f"{jobs}?labelSelector=batch={self.name}")
        if not listed.ok:
            return
        there: dict[str, Json] = {one["metadata"]["name"]: one for one in listed.body["items"]}
        done = sorted(name for name, one in there.items() if one.get("status", {}).get("succeeded"))
        self.begun = {name: at for name, at in self.begun.items() if name not in done}
        for old in done[:-4]:
            await process.api.call("DELETE", f"{jobs}/{old}", {"propagationPolicy": "Background"})
        if len(self.begun) >= RUNS:
            return
        name = f"{self.name}-{int(now().timestamp())}"
        pod: Json = {"restartPolicy": "Never"}
        template = objects.deployment(self.namespace, self.name, f"{self.image}:2.3.0", **pod)["spec"]["template"]
        meta = {"name": name, "labels": {"batch": self.name}}
        if (await process.api.call("POST", jobs, {"metadata": meta, "spec": {"template": template}})).ok:
            self.begun[name] = now().timestamp()

    def late(self) -> int:
        return sum(now().timestamp() - at > LATE_SECONDS for at in self.begun.values())


@family(
    "Somebody raises how many nodes a group may have, by what declares the cluster's infrastructure. It has not pinned"
    " the version of the network's plugin, and applies the newest with it: where its agent is made anew, a node has a"
    " configuration of a version that the rest of it does not speak. What runs goes on; no pod is connected there any"
    " more, and none is let go.",
    joined=55,
)
async def plugin_ahead(lab: Lab) -> AsyncIterator[None]:
    """As CoW Protocol tells of the nineteenth of April 2024 (hackmd.io)."""
    namespace, name = lab.rng.choice((("payments", "settlement"), ("shop", "stock-count"), ("search", "reindex")))
    by, image = lab.rng.choice(("alice", "bob", "carol")), f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, ends_after=RUN_SECONDS)
    ahead = set[str]()

    def unplugged(node: str, pod: Json) -> str:
        """A node has the configuration that the last agent has written there which has come up."""
        there = [one for one in pods(lab.world, "kube-system", AGENT) if one["spec"].get("nodeName") == node]
        if any(images(one)[0].endswith(NEW_PLUGIN) and is_ready(one) for one in there):
            ahead.add(node)
        return AHEAD if node in ahead and not pod["spec"].get("hostNetwork") else ""

    lab.outside.unplugged = unplugged
    like = App("", serves=False)
    await lab.app("kube-system", AGENT, like=like, kind="DaemonSet", tag=OLD_PLUGIN, hostNetwork=True)
    await rolled(lab, "kube-system", AGENT, OLD_PLUGIN)
    runs = _Runs(namespace, name, image)
    rule = ("batch", "jobs", "list,create,delete")
    await lab.controller(namespace, f"{name}-dispatcher", every(1, runs.dispatch), rule, replicas=1, tag="1.9.0")
    lab.measure("runs_in_progress", lambda: float(len(runs.begun)), namespace=namespace, service=f"{name}-dispatcher")
    summary = f"runs of {namespace}/{name} have not come to their end for {LATE_SECONDS:.0f}s"
    lab.alert("KubeJobNotCompleted", lambda: runs.late() >= 2, summary, 3, namespace=namespace, job=name)
    await lab.until(lambda: runs.begun)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    args = ["--nodes=6:12:general", "--balance-similar-node-groups"]
    tag = images(pods(lab.world, "kube-system", "cluster-autoscaler")[0])[0].rsplit(":", 1)[1]
    await lab.roll(by, "kube-system", "cluster-autoscaler", tag, args=args)
    await lab.pause(lab.rng.uniform(1, 2))
    [container] = lab.world["DaemonSet"]["kube-system", AGENT]["spec"]["template"]["spec"]["containers"]
    containers = [{**container, "image": f"{like.image}:{NEW_PLUGIN}"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    await lab.culprit(by, "update", "DaemonSet", "kube-system", AGENT, body)


ZONE = "topology.kubernetes.io/zone"
EVEN, UNEVEN = "aabbcc", "aaabbc"
"""The zones of the nodes, in a sibling and here."""
EACH_STANDS, SPARE, LEAST = 20.0, 1.1, 6
AFTERNOON, EVENING = 100.0, 330.0
"""Requests a second that one pod stands, how much more of them there are, the fewest pods, and what comes in all."""
PROCESSORS = "3500m"
"""What a pod asks for, of the sixteen that a node has."""


@dataclass
class _Scaled:
    """An app that gets pods as users come."""

    lab: Lab
    namespace: str
    name: str
    asked: float = AFTERNOON

    async def scale(self, process: Process) -> None:
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        wanted = max(LEAST, math.ceil(self.asked * SPARE / EACH_STANDS))
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def come(self, most: float) -> None:
        while self.asked < most:
            self.asked = min(most, self.asked + 12)
            await asyncio.sleep(1)

    def short(self, _: Container) -> float:
        there = len(backends(self.lab.world, self.namespace, self.name))
        return max(0.0, 1 - EACH_STANDS * there / self.asked)

    def has(self, number: int) -> bool:
        return len(backends(self.lab.world, self.namespace, self.name)) == number


async def _zones(lab: Lab, zones: str) -> None:
    for node, zone in zip(NODES, zones, strict=True):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {ZONE: f"eu-1{zone}"}}})


@family(
    "An app is to be spread evenly over the zones, so that it stands the loss of one: so it is done in a sibling, whose"
    " zones are the same size. Here one of them has a single node. By day the app has its pods there too; in the"
    " evening it gets more, that node is full, and no further pod may be anywhere else.",
    joined=55,
)
async def small_zone(lab: Lab) -> AsyncIterator[None]:
    """As told of hard constraints where zones have not the same room (waymark.network, besthub.dev)."""
    namespace, name, front = lab.rng.choice(
        (
            ("media", "transcripts", "watch-page"),
            ("search", "rerank", "answers-page"),
            ("shop", "bundles", "offers-page"),
        )
    )
    by = lab.rng.choice(("ci", "flux", "carol"))
    scaled = _Scaled(lab, namespace, name)
    await _zones(lab, EVEN)
    like = App("", asked=lambda: scaled.asked, failing=scaled.short, fails_with=lambda _: "503")
    like.capacity, like.start_seconds = 4 * EACH_STANDS, 1.0
    await lab.app(namespace, name, like=like, replicas=LEAST, tag="14.2.0")
    requests = {"requests": {"cpu": PROCESSORS, "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    await lab.roll("admin", namespace, name, "14.2.0", resources=requests)
    await lab.until(lambda: scaled.has(LEAST))
    rules = (("apps", "deployments/scale", "get,patch"),)
    await lab.controller("platform", "keda-operator", every(1, scaled.scale), *rules, replicas=1, tag="2.17.2")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.9.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    holds = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", holds, f"a pod of {namespace} has had no node for a while", 8, namespace=namespace)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    constraint |= {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}

    def spread(*constraints: Json) -> Json:
        return {"spec": {"template": {"spec": {"topologySpreadConstraints": list(constraints)}}}}

    def is_through() -> bool:
        there = lab.world["Deployment"][namespace, name]
        status, seen = there["status"], there["status"].get("observedGeneration") == there["metadata"]["generation"]
        return bool(seen and status.get("updatedReplicas") == status.get("readyReplicas") == status["replicas"])

    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.choice((2, 6, 13)), cluster=lab.rng.choice(("eu-2", "us-1"))):
        await lab.edit(by, "Deployment", namespace, name, spread(constraint))
        await lab.until(is_through)
        scaled.asked = EVENING
        await lab.until(lambda: scaled.has(math.ceil(EVENING * SPARE / EACH_STANDS)))
        await lab.pause(6)
    scaled.asked = AFTERNOON
    await _zones(lab, UNEVEN)
    await lab.edit("admin", "Deployment", namespace, name, spread())
    await lab.until(lambda: scaled.has(LEAST) and is_through())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.culprit(by, "update", "Deployment", namespace, name, spread(constraint))
    await lab.until(is_through)
    await lab.pause(lab.rng.uniform(4, 9))
    lab.start(scaled.come(EVENING))
