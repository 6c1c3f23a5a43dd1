"""Whoever scales: one that is told to let go at once, and one whose new version does not get up."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab.alerts import pending, pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, CrashError, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.families.joining import AUTOSCALER, LOOK_SECONDS, autoscaled, say
from tests.lab.lab import LATER, Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

GROUP = "keda.sh"
EACH_STANDS, LEAST, SPARE = 40.0, 2, 1.15
"""Requests a second of a pod, how many of those there are at least, and by how much more are wanted."""
BUSY, LULL = (7.0, 9.0), (4.0, 6.0)
"""Seconds of each."""
WINDOW = "stabilizationWindowSeconds"
OLD, NEW = "1.29.4", "1.30.1"
"""Versions of the autoscaler of nodes."""
CLOUD_CONFIG = "/etc/gce.conf"
LEADS_AFTER, BUILD_SECONDS = 4.0, 70.0
"""Seconds until an autoscaler holds its Lease and reads how its cloud is configured, and those of a build."""
AGENT = {"requests": {"cpu": "4", "memory": "64Mi"}}
FEW, MANY = 8, 21
"""Builds at a time on an afternoon, and with the pull requests of the weekend's updates: one node more holds them."""


def behaviour(seconds: int) -> Json:
    """A ScaledObject whose scaler goes by the most that it has wanted for so long."""
    by_policy = {"scaleDown": {WINDOW: seconds}}
    return {"spec": {"advanced": {"horizontalPodAutoscalerConfig": {"behavior": by_policy}}}}


@dataclass
class _Scaler:
    """By requests: up at once, down to the most that was wanted within its window."""

    kind: Kind
    namespace: str
    name: str
    asked: float
    wanted: deque[tuple[datetime, int]] = field(default_factory=deque)

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        if not (declared.ok and found.ok):
            return
        behavior = declared.body["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        window = timedelta(minutes=behavior["scaleDown"][WINDOW] / 3600)  # a second stands for a minute
        self.wanted.append((now(), max(LEAST, math.ceil(self.asked * SPARE / EACH_STANDS))))
        while now() - self.wanted[0][0] > window and len(self.wanted) > 1:
            self.wanted.popleft()
        replicas = max(number for _, number in self.wanted)
        if found.body["spec"]["replicas"] != replicas:
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})

    async def rise_and_fall(self, lab: Lab, peak: float) -> None:
        """As each message to all users has it."""
        while True:
            self.asked = peak * lab.rng.uniform(0.9, 1.0)
            await asyncio.sleep(lab.rng.uniform(*BUSY))
            self.asked = peak * lab.rng.uniform(0.15, 0.25)
            await asyncio.sleep(lab.rng.uniform(*LULL))


@family(
    "To save money, an autoscaler is told to let pods go as soon as they are not needed, and not after a while of it."
    " Where users come in waves, each lull ends most of them, and new ones are slow to start in the next wave.",
    joined=28,
)
async def scale_down_window(lab: Lab) -> AsyncIterator[None]:
    """As told of autoscalers that thrash (yennj12's war stories; johal.in, March 2026)."""
    namespace, name = lab.rng.choice((("shop", "deals"), ("media", "live-scores"), ("search", "trending")))
    peak, by = lab.rng.uniform(300, 340), lab.rng.choice(("bob", "ci", "flux"))
    kind = await lab.custom("ScaledObject", GROUP, ANY)
    scaler = _Scaler(kind, namespace, name, asked=peak)
    first = math.ceil(peak * SPARE / EACH_STANDS)

    def short(_: Container) -> float:
        """All of it comes to those that are there."""
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / scaler.asked)

    like = App("", asked=lambda: scaler.asked, failing=short, fails_with=lambda _: "503", start_seconds=6.0)
    like.capacity = 3 * EACH_STANDS
    await lab.app(namespace, name, like=like, replicas=first, tag="5.0.2")
    await lab.served(kind)
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": LEAST, "maxReplicaCount": 16, **behaviour(900)["spec"]}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == first)
    rules = (GROUP, "scaledobjects", "get,list,watch"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(1.5, scaler.scale), *rules, replicas=1)
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    async with before(lab, days=2, cluster=lab.rng.choice(("us-1", "ap-1"))):  # where users come all day
        await lab.edit(by, kind.name, namespace, name, behaviour(0))
        await lab.pause(10)
    await lab.edit("admin", kind.name, namespace, name, behaviour(900))
    lab.start(scaler.rise_and_fall(lab, peak))
    yield
    await lab.culprit(by, "update", kind.name, namespace, name, behaviour(0))


@dataclass
class _Builds:
    """Agents for builds, a pod each, and machines for those that find no node."""

    lab: Lab
    image: str
    wanted: int = FEW
    made: int = 0
    joined: bool = False

    async def dispatch(self, process: Process) -> None:
        where = path("Pod", "builds")
        listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name=agent")
        room = self.wanted
        for pod in listed.body.get("items", []):
            if pod["status"].get("phase") == "Succeeded":
                await process.api.call("DELETE", f"{where}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
            else:
                room -= 1
        for _ in range(min(3, room)):
            self.made += 1
            container = {"name": "agent", "image": f"{self.image}:3.2.0", "resources": AGENT}
            meta = {"name": f"agent-{self.made:05}", "labels": {"app.kubernetes.io/name": "agent"}}
            spec = {"restartPolicy": "Never", "containers": [container]}
            await process.api.call("POST", where, {"metadata": meta, "spec": spec})

    async def enlarge(self, process: Process) -> None:
        """As the autoscaler of nodes, once it leads."""
        await asyncio.sleep(LEADS_AFTER)
        args = process.see().spec.get("args", ())
        if f"--cloud-config={CLOUD_CONFIG}" in args:
            why = f"Couldn't open cloud provider configuration {CLOUD_CONFIG}"
            raise CrashError(f"{why}: open {CLOUD_CONFIG}: no such file or directory")
        while True:
            listed = await process.api.call("GET", f"{path('Pod', 'builds')}?fieldSelector=spec.nodeName=")
            waiting = [one for one in listed.body.get("items", []) if one["status"].get("conditions")]
            if waiting and not self.joined:
                grown = "pod triggered scale-up: [{linux-agents 6->7 (max: 20)}]"
                await say(process, {"kind": "Pod", **waiting[0]}, "Normal", "TriggeredScaleUp", grown)
                await asyncio.sleep(LOOK_SECONDS)
                await self.lab.kubelets.join(LATER, "v1.36.1", {"pool": "linux-agents"})
                self.joined = True
            await asyncio.sleep(LOOK_SECONDS)


@family(
    "The chart of the autoscaler of nodes gets a new version, which names a file for the cloud's settings that is not"
    " there: it ends at each start. Nobody minds, until there are more builds than the nodes have room for.",
    joined=28,
)
async def autoscaler_chart(lab: Lab) -> AsyncIterator[None]:
    """As the team of Jenkins' infrastructure tells (jenkins-infra/helpdesk 3110, August 2022)."""
    namespace, name = AUTOSCALER
    image = "registry.corp.example/builds/agent"
    builds = _Builds(lab, image)
    await lab.namespace("builds")
    lab.apps[image] = App(image, ends_after=BUILD_SECONDS, serves=False)
    await autoscaled(lab, builds.enlarge)
    args = ["--cloud-provider=gce", "--balance-similar-node-groups", "--expander=least-waste"]
    await lab.roll("admin", namespace, name, OLD, readinessProbe=None, args=args)
    await lab.until(lambda: {images(pod)[0].rsplit(":", 1)[1] for pod in pods(lab.world, namespace, name)} == {OLD})
    rules = ("", "pods", "list,create,delete")
    await lab.controller("platform", "build-dispatcher", every(1, builds.dispatch), rules, replicas=1, tag="2.361.0")
    await lab.until(lambda: len(pods(lab.world, "builds", "agent")) == FEW)
    waiting = lambda: sum(not pod["spec"].get("nodeName") for pod in pods(lab.world, "builds", "agent"))  # noqa: E731
    lab.measure("jenkins_queue_size_value", waiting, namespace="platform", service="build-dispatcher")
    summary = "a pod of builds has had no node for a while"
    lab.alert("KubePodPending", lambda: pending(lab.world, "builds"), summary, 14, namespace="builds")
    yield
    by = lab.rng.choice(("ci", "argocd", "flux"))
    newer = [*args, f"--cloud-config={CLOUD_CONFIG}"]
    await lab.roll(by, namespace, name, NEW, culprit=True, readinessProbe=None, args=newer)
    await lab.pause(lab.rng.uniform(14, 20))
    builds.wanted = MANY
