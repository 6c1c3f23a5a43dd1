"""Not enough for it: the time that a probe gives to who starts, and the room of a smaller machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pending, restarts
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.upgraded import empty
from tests.lab.lab import LATER, Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, leading, tell
from tests.lab.scenario import family

# -- the time of a probe

REFUSED = "probe failed: dial tcp :8080: connect: connection refused"
QUICK_SECONDS = 3.0
"""For which a version of before needs to start."""


@dataclass
class _Starting:
    """An app whose new version has more to do before it listens: it fills a cache, or compiles what it has."""

    new: str
    needs: float
    started: int = 0

    def check(self, container: Container) -> Problem | None:
        if container.seconds >= (self.needs if container.tag == self.new else QUICK_SECONDS):
            return None
        probe = container.spec["livenessProbe"]
        gives = probe["initialDelaySeconds"] + probe["periodSeconds"] * probe["failureThreshold"]
        return Problem("killed" if container.seconds >= gives else "unready", REFUSED, at_once=True)


@family(
    "A new version of an app takes longer to start, as it reads more before it listens. Its liveness probe does not"
    " wait for that: the container is killed shortly before it is through, and starts from the beginning, again and"
    " again.",
    joined=103,
)
async def longer_than_its_probe(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose new version ran on a laptop, where nobody asks it whether it is alive."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "bundle-rules", "bundle-page", "bundle-sync"),
            ("payments", "risk-scores", "risk-page", "risk-export"),
            ("media", "subtitle-search", "subtitle-page", "subtitle-sync"),
            ("search", "ranking-model", "results-view", "model-metrics"),
        )
    )
    by, minor = lab.rng.choice(("ci", "argocd", "flux", *TEAMS)), lab.rng.randrange(2, 40)
    old, new, one_away = f"3.{minor}.4", f"3.{minor + 1}.0", lab.rng.random() < 0.5
    delay, period, failures = lab.rng.choice(((3, 2, 3), (5, 1, 3), (4, 3, 2)))
    starting = _Starting(new, delay + period * failures + lab.rng.uniform(4, 12))
    alive: Json = {"httpGet": {"path": "/healthz", "port": 8080}}
    alive |= {"initialDelaySeconds": delay, "periodSeconds": period, "failureThreshold": failures}
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="300"))
    like = App("", asked=lambda: 19.0, check=starting.check)
    await lab.app(namespace, name, like=like, replicas=4, tag=old, config=name, liveness=alive)
    if one_away:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}
        await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": strategy}})
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.2.0", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.2.0")
    await set_before(lab, namespace, front, name)
    many = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    summary = f"containers of {namespace}/{name} restart again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=15)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 4)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.2.1")
    await lab.pause(lab.rng.uniform(4, 9))
    level = {"data": {"CACHE_SECONDS": lab.rng.choice(("240", "600"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, level)
    await lab.pause(lab.rng.uniform(5, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


# -- the room of a machine

KARPENTER, GROUP, POOL = ("platform", "karpenter"), "karpenter.sh", "workers"
TYPE = "node.kubernetes.io/instance-type"
LARGE, SMALLER = "m6i.4xlarge", {"c6i.4xlarge": "28Gi", "m6i.2xlarge": "30Gi"}
"""What a pool has machines of, and what there is room for on others."""
BOOT_SECONDS, UNPLACED_SECONDS = 4.0, 14


@dataclass
class _Pool:
    """What provides machines: those of another type than is declared are replaced, one after the other."""

    lab: Lab
    kind: Kind
    spare: str = LATER
    is_at_it: bool = False
    told: set[str] = field(default_factory=set)

    async def look(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(None, POOL))
        listed = await process.api.call("GET", f"{path('Node')}?labelSelector=pool={POOL}")
        waiting = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName%3D")
        if not (declared.ok and listed.ok and waiting.ok):
            return
        [wanted] = declared.body["spec"]["template"]["spec"]["requirements"][0]["values"]
        for pod in waiting.body["items"]:
            if pod["metadata"]["uid"] not in self.told and pod.get("status", {}).get("conditions"):
                self.told.add(pod["metadata"]["uid"])
                why = f'incompatible with nodepool "{POOL}", no instance type satisfied resources and requirements'
                about = {**pod, "kind": "Pod"}
                await tell(
                    process, about, "Warning", "FailedScheduling", f"Failed to schedule pod, {why}", by=KARPENTER[1]
                )
        drifted = [one["metadata"]["name"] for one in listed.body["items"] if one["metadata"]["labels"][TYPE] != wanted]
        if drifted and not self.is_at_it:
            self.is_at_it = True
            self.lab.start(self._replace(process, min(drifted), wanted))

    async def _replace(self, process: Process, node: str, to: str) -> None:
        """First another machine comes, then the pods are asked to leave, and then the old one goes."""
        await asyncio.sleep(BOOT_SECONDS)
        await self.lab.kubelets.join(self.spare, "v1.36.1", {"pool": "general", TYPE: to})
        await self.lab.kubelets.allot(self.spare, SMALLER[to])
        await process.api.call("PATCH", path("Node", None, self.spare), {"metadata": {"labels": {"pool": POOL}}})
        about = {"kind": "Node", "metadata": {"namespace": "default", "name": node, "uid": node}}
        await tell(process, about, "Normal", "DisruptionTerminating", "Disrupting Node: Drifted", by=KARPENTER[1])
        going = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        await process.api.call("PATCH", path("Node", None, node), {"spec": {"taints": [going]}})
        await empty(process, node)
        await process.api.call("DELETE", path("Node", None, node))
        self.lab.kubelets.crash(node)
        self.spare, self.is_at_it = node, False


def _spec(instance_type: str, limit: str) -> Json:
    requirement = {"key": TYPE, "operator": "In", "values": [instance_type]}
    return {"spec": {"limits": {"cpu": limit}, "template": {"spec": {"requirements": [requirement]}}}}


@family(
    "A pool of machines gets a smaller type, as most of the room on them is not used, and is replaced machine by"
    " machine. Nearly all pods go along. Those of one app ask for more memory than one such machine has: whatever of it"
    " has to leave an old machine waits for a node.",
    joined=103,
)
async def larger_than_the_machine(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had looked at the mean of all pods."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "assortment-cache", "assortment-page", "assortment-sync"),
            ("payments", "fraud-graph", "fraud-page", "fraud-export"),
            ("media", "similar-titles", "similar-page", "similar-stats"),
            ("search", "vector-index", "related-page", "vector-sync"),
        )
    )
    by, minor, smaller = (
        lab.rng.choice(("flux", "ci", *TEAMS)),
        lab.rng.randrange(2, 30),
        lab.rng.choice(sorted(SMALLER)),
    )
    pool = _Pool(lab, await lab.custom("NodePool", GROUP, ANY, namespaced=False))
    await lab.served(pool.kind)
    for node in spare(lab, 3):
        labels = {"pool": POOL, TYPE: LARGE}
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": labels}})
    declared = {"kind": "NodePool", "apiVersion": f"{GROUP}/v1", "metadata": {"name": POOL}, **_spec(LARGE, "200")}
    await lab.apply(declared)
    rights = (GROUP, pool.kind.plural, "get,list,watch"), ("", "nodes", "get,list,watch,patch,delete")
    more = (
        ("", "pods", "get,list,watch"),
        ("", "pods/eviction,events", "create"),
        ("coordination.k8s.io", "leases", "*"),
    )
    program = both(every(2.0, pool.look), leading(*KARPENTER))
    general = {"pool": "general"}
    await lab.controller(*KARPENTER, program, *rights, *more, replicas=1, tag="1.6.2", nodeSelector=general)
    await rolled(lab, *KARPENTER, "1.6.2")
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, asked=lambda: 25.0)
    made = objects.deployment(namespace, name, f"{image}:2.{minor}.0", replicas=3, nodeSelector={"pool": POOL})
    room = {"requests": {"cpu": "2", "memory": "40Gi"}, "limits": {"memory": "40Gi"}}
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = room
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=3, tag="1.7.0", config=other, nodeSelector={"pool": POOL})
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await rolled(lab, namespace, other, "1.7.0")
    await set_before(lab, namespace, front, name)
    summary = f"a pod of {namespace} has had no node for a while"
    unplaced = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", unplaced, summary, UNPLACED_SECONDS, namespace=namespace)
    lab.alert_lacking(namespace, name, seconds=18)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 3)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.7.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice(TEAMS), pool.kind.name, "", POOL, {"spec": {"limits": {"cpu": "240"}}})
    await lab.pause(lab.rng.uniform(6, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.culprit(by, "update", pool.kind.name, "", POOL, _spec(smaller, "240"))
    lab.start(afterwards())
