"""Less room for all: what is set aside on each node, and how many machines there may be."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import LATER, NODES, Lab
from tests.lab.metrics_api import MetricsApi
from tests.lab.programs import both, every, informer, tell
from tests.lab.scenario import family

# -- what is set aside

SETTINGS, AGENT = "node-config", "node-config-agent"
APPLIED = "node.corp.example/config"
MACHINE_GI = 64.0
SPLAY = 2.0, 9.0
"""Seconds after which an agent restarts its kubelet with new settings."""
LINE = re.compile(r"(\d+)Gi")


def _settings(system: int, kube: int, threshold: int) -> str:
    """A KubeletConfiguration, of whole Gi."""
    reserved = f"systemReserved:\n  memory: {system}Gi\nkubeReserved:\n  memory: {kube}Gi\n"
    head = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\nmaxPods: 110\n"
    )
    return f"{head}{reserved}evictionHard:\n  memory.available: {threshold}Gi\n"


@dataclass
class _Agents:
    """They restart the kubelet of their node with what the ConfigMap has, which then tells what it has for pods."""

    lab: Lab
    due: dict[str, tuple[str, float]] = field(default_factory=dict)
    """What each node has seen, and when it applies that."""

    async def look(self, process: Process) -> None:
        node = process.see().pod["spec"]["nodeName"]
        found = await process.api.call("GET", path("ConfigMap", "kube-system", SETTINGS))
        there = await process.api.call("GET", path("Node", None, node))
        if not (found.ok and there.ok):
            return
        settings = found.body["data"]["kubelet"]
        mark = _mark(settings)
        if there.body["metadata"].get("annotations", {}).get(APPLIED) == mark:
            return
        seen, at = self.due.get(node, ("", 0.0))
        if seen != mark:
            self.due[node] = mark, now().timestamp() + process.rng.uniform(*SPLAY)
        elif now().timestamp() >= at:
            kept = sum(int(one) for one in LINE.findall(settings))
            await self.lab.kubelets.allot(node, f"{round((MACHINE_GI - kept) * 1024)}Mi")
            await process.api.call("PATCH", path("Node", None, node), {"metadata": {"annotations": {APPLIED: mark}}})

    def has_all(self) -> bool:
        """Whether all nodes are at the settings of now."""
        mark = _mark(self.lab.world["ConfigMap"]["kube-system", SETTINGS]["data"]["kubelet"])
        nodes = (self.lab.world["Node"].get(("", node), {}) for node in NODES)
        return all(one.get("metadata", {}).get("annotations", {}).get(APPLIED) == mark for one in nodes)


def _mark(settings: str) -> str:
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


def _needs(memory: str) -> Json:
    return {"requests": {"cpu": "500m", "memory": memory}, "limits": {"memory": memory}}


@family(
    "The settings of all kubelets are rolled out anew, node by node: more memory is set aside for the system, or pods"
    " are to leave earlier. What is left of a node is less than what runs there has asked for. It goes on; the next"
    " pods of a release find no node.",
    joined=101,
)
async def more_set_aside(lab: Lab) -> AsyncIterator[None]:
    """As those tell who took the figures over from a cluster with larger machines."""
    namespace, name, front, caches = lab.rng.choice(
        (
            ("shop", "stock-model", "stock-page", ("search", "vector-cache")),
            ("payments", "risk-model", "risk-page", ("media", "frame-cache")),
            ("media", "scene-model", "scene-page", ("search", "term-cache")),
            ("search", "rank-model", "rank-page", ("shop", "price-cache")),
        )
    )
    by, minor = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30)
    old, new = (1, 1, 1), lab.rng.choice(((11, 9, 2), (8, 6, 8), (4, 2, 16)))
    agents = _Agents(lab)
    await lab.apply(objects.config_map("kube-system", SETTINGS, kubelet=_settings(*old)))
    rights = ("", "configmaps", "get"), ("", "nodes", "get,patch")
    await lab.controller("kube-system", AGENT, every(1.5, agents.look), *rights, kind="DaemonSet", tag="0.7.2")
    await lab.until(agents.has_all)
    sizes = ((caches, 6, "28Gi"), ((namespace, f"{name}-batch"), 3, "15Gi"), ((namespace, name), 3, "15Gi"))
    for place, many, memory in sizes:
        like = App("", asked=lambda: 14.0, serves=place == (namespace, name))
        await lab.app(*place, like=like, replicas=many, tag=f"1.{minor}.0")
        await rolled(lab, *place, f"1.{minor}.0")
        await lab.roll("admin", *place, f"1.{minor}.1", resources=_needs(memory))
        await rolled(lab, *place, f"1.{minor}.1")
        await lab.until(lambda place=place, many=many: lab.world["Deployment"][place]["status"]["replicas"] == many)  # type: ignore[misc]
        lab.alert_stuck(*place)
    await set_before(lab, namespace, front, name)
    for one in (namespace, caches[0]):
        unplaced = partial(pending, lab.world, one)
        lab.alert("KubePodNotScheduled", unplaced, f"pods of {one} have had no node for a while", 12, namespace=one)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        """Once all nodes are through, two apps are released."""
        await lab.until(agents.has_all)
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"1.{minor}.2")
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, f"{name}-batch", f"1.{minor}.3")

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, f"{name}-batch", f"1.{minor}.2")
    await lab.pause(lab.rng.uniform(6, 11))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(6, 11))
    body = {"data": {"kubelet": _settings(*new)}}
    await lab.culprit(by, "update", "ConfigMap", "kube-system", SETTINGS, body)
    lab.start(afterwards())


# -- how many machines

SCALER, GROUP, EACH = ("kube-system", "cluster-autoscaler"), "workers-eu-1", 2.0
"""The autoscaler of nodes, its group, and how much a worker does in a second."""
TAG = "k8s.io/cluster-autoscaler"
BACKLOG, UNPLACED_SECONDS = 150, 18


@dataclass
class _Machines:
    """Work that comes, and who has further machines made for those who do it, as far as it may."""

    lab: Lab
    app: App
    arrives: float = 18.6
    waiting: float = 0.0
    is_asked: bool = False

    async def work(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(0.5)
            there = sum(one.app is self.app and one.problem is None for one in self.lab.kubelets.running())
            self.waiting = max(0.0, self.waiting + 0.5 * (self.arrives - EACH * there))

    async def be_scaled(self, namespace: str, name: str, metric: str) -> None:
        """Those who do it are as many as what comes needs. Raises RefusedError."""
        api = MetricsApi(lambda: {f"{metric}_per_second": lambda: self.arrives})
        await api.start()
        self.lab.servers.append(api)
        await api.register(self.lab.who["admin"], "monitoring", "external-metrics")
        target = {"type": "AverageValue", "averageValue": f"{EACH:g}"}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": math.ceil(self.arrives / EACH),
            "maxReplicas": 20,
            "metrics": [
                {"type": "External", "external": {"metric": {"name": f"{metric}_per_second"}, "target": target}}
            ],
        }
        meta = {"namespace": namespace, "name": name}
        await self.lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})

    async def evening(self, to: float) -> None:
        first = self.arrives
        for step in range(6):
            self.arrives = first + (to - first) * (step + 1) / 6
            await asyncio.sleep(0.5)

    def most(self, process: Process) -> int:
        """How many machines the group may have by the flags; 0 where it is not among those that are found."""
        flags = " ".join(process.see().spec.get("args", ()))
        if found := re.search(rf"--nodes=\d+:(\d+):{GROUP}", flags):
            return int(found[1])
        return 10 if f"{TAG}/eu-1" in flags.replace(",", " ").split("tag=")[-1].split() else 0

    async def look(self, process: Process) -> None:
        """Whether somebody finds no node, and what may be done for that one."""
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName%3D")
        left = [one for one in listed.body.get("items", ()) if one.get("status", {}).get("conditions")]
        most, there = self.most(process), len(self.lab.world["Node"])
        if not left or self.is_asked:
            return
        about = {**left[0], "kind": "Pod"}
        if there < most:
            self.is_asked = True
            said = f"pod triggered scale-up: [{{{GROUP} {there}->{there + 1} (max: {most})}}]"
            await tell(process, about, "Normal", "TriggeredScaleUp", said, by=SCALER[1])
            await asyncio.sleep(4)
            await self.lab.kubelets.join(LATER, "v1.36.1", {"pool": "general"})
            return
        why = "1 max node group size reached" if most else ""
        await tell(process, about, "Normal", "NotTriggerScaleUp", f"pod didn't trigger scale-up: {why}", by=SCALER[1])


@family(
    "The group of machines may have fewer from now on, to save money, or the autoscaler of nodes looks for its groups"
    " by another tag and finds this one no more. There are enough by day. In the evening, as each day, more pods are"
    " needed than find a node, and no machine comes.",
    joined=101,
)
async def no_further_machine(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods waited beside: max node group size reached."""
    namespace, name, metric = lab.rng.choice(
        (
            ("media", "cut-worker", "cuts"),
            ("search", "parse-worker", "documents"),
            ("shop", "label-worker", "labels"),
            ("payments", "match-worker", "bookings"),
        )
    )
    by, by_size, minor = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.random() < 0.5, lab.rng.randrange(2, 30)
    like = App("", serves=False)
    jobs = _Machines(lab, like)
    before, after = [f"--nodes=3:{lab.rng.choice((9, 10, 12))}:{GROUP}"], [f"--nodes=3:6:{GROUP}"]
    if not by_size:
        found = f"--node-group-auto-discovery=asg:tag={TAG}/enabled,{TAG}/"
        before, after = [f"{found}eu-1"], [f"{found}{lab.rng.choice(('eu-1-prod', 'production', 'eu1'))}"]
    program = both(informer(path("Pod")), every(4, jobs.look))
    lab.apps[f"registry.corp.example/{'/'.join(SCALER)}"].program = program
    events = f"{SCALER[1]}-events"
    await lab.apply(objects.cluster_role(events, ("", "events", "create")))
    await lab.apply(objects.binding(events, events, *SCALER))
    usual = ["--cloud-provider=aws", "--balance-similar-node-groups"]
    await lab.roll("admin", *SCALER, "1.33.1", args=[*before, *usual])
    await rolled(lab, *SCALER, "1.33.1")
    await lab.app(namespace, name, like=like, replicas=10, tag=f"3.{minor}.0")
    resources = {"requests": {"cpu": "6", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    await lab.roll("admin", namespace, name, f"3.{minor}.1", resources=resources)
    await rolled(lab, namespace, name, f"3.{minor}.1")
    await jobs.be_scaled(namespace, name, metric)
    lab.start(jobs.work())
    told = {"namespace": namespace, "service": name}
    lab.measure(f"{metric}_waiting", lambda: jobs.waiting, **told)
    summary = f"more {metric} wait for {namespace}/{name} than are done in a quarter of an hour"
    lab.alert("QueueBacklogHigh", lambda: jobs.waiting > BACKLOG, summary, 5, **told)
    summary = f"pods of {namespace} have had no node for a quarter of an hour"
    unplaced = partial(pending, lab.world, namespace)
    lab.alert("KubePodNotScheduled", unplaced, summary, UNPLACED_SECONDS, namespace=namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        """The rest of the day, and the evening."""
        await lab.pause(lab.rng.uniform(8, 14))
        note = {"metadata": {"annotations": {"corp.example/owner": f"team-{namespace}"}}}
        await lab.edit(lab.rng.choice(TEAMS), "Deployment", namespace, name, note)
        await lab.pause(lab.rng.uniform(4, 9))
        await jobs.evening(lab.rng.uniform(27.2, 27.9))

    yield
    body = {"spec": {"maxReplicas": lab.rng.choice((18, 24))}}
    await lab.edit(lab.rng.choice(TEAMS), "HorizontalPodAutoscaler", namespace, name, body)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(by, *SCALER, "1.33.1", culprit=True, args=[*after, *usual])
    lab.start(afterwards())
