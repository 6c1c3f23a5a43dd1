"""Machine by machine: a group gets another image, and kubelets another version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.upgraded import empty
from tests.lab.lab import LATER, Lab
from tests.lab.programs import both, every, leading, tell
from tests.lab.scenario import family

# -- another image of the machines

KARPENTER, CLASSES = ("platform", "karpenter"), "karpenter.k8s.aws"
OLD_IMAGE, NEW_IMAGE = "al2@v20250920", "al2023@v20250920"
OLD_KERNEL, NEW_KERNEL = "5.10.242-239.961.amzn2.x86_64", "6.1.150-174.273.amzn2023.x86_64"
MADE_FROM = f"{CLASSES}/ami-alias"
BOOT_SECONDS, HEATS_SECONDS = 4.0, 9.0
"""Until a machine is up, and until a process has filled what it takes for its memory."""
NO_FILE = (
    "panic: open /sys/fs/cgroup/memory/memory.limit_in_bytes: no such file or directory\n\ngoroutine 1 [running]:\n"
    "main.memoryLimit()\n\t/src/internal/limits/cgroup.go:27"
)


@dataclass
class _Drifting:
    """What provides machines: one that was not made of the image that is declared is replaced, one after the other."""

    lab: Lab
    kind: Kind
    pool: str
    spare: str = LATER
    is_at_it: bool = False

    async def look(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(None, self.pool))
        listed = await process.api.call("GET", f"{path('Node')}?labelSelector=pool={self.pool}")
        if self.is_at_it or not (declared.ok and listed.ok):
            return
        [wanted] = (one["alias"] for one in declared.body["spec"]["amiSelectorTerms"])
        drifted = [
            one["metadata"]["name"]
            for one in listed.body["items"]
            if one["metadata"].get("annotations", {}).get(MADE_FROM) != wanted
        ]
        if drifted:
            self.is_at_it = True
            self.lab.start(self._replace(process, min(drifted), wanted))

    async def _replace(self, process: Process, node: str, image: str) -> None:
        """First another machine comes, then the pods are asked to leave, and then the old one goes."""
        await self.boot(process, self.spare, image)
        going = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        await process.api.call("PATCH", path("Node", None, node), {"spec": {"taints": [going]}})
        about = {"kind": "Node", "metadata": {"namespace": "default", "name": node, "uid": node}}
        await tell(process, about, "Normal", "DisruptionTerminating", "Disrupting Node: Drifted", by="karpenter")
        await empty(process, node)
        await process.api.call("DELETE", path("Node", None, node))
        self.lab.kubelets.crash(node)
        self.spare, self.is_at_it = node, False

    async def boot(self, process: Process, node: str, image: str) -> None:
        await asyncio.sleep(BOOT_SECONDS)
        await self.lab.kubelets.join(node, "v1.36.1", {"pool": self.pool})
        await self.lab.kubelets.run_kernel(node, NEW_KERNEL if image == NEW_IMAGE else OLD_KERNEL)
        await process.api.call("PATCH", path("Node", None, node), {"metadata": {"annotations": {MADE_FROM: image}}})


@family(
    "A group of machines gets the image of the next generation, and is replaced machine by machine. A program of years"
    " ago looks for the limit of its memory where the older kernels have it: on the new machines it does not find it,"
    " and ends, or takes for itself what it likes.",
    joined=92,
)
async def image_of_the_machines(lab: Lab) -> AsyncIterator[None]:
    """As those tell of control groups of the second version, with Java 8 or something of their own."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "order-history", "history-page", "history-mails"),
            ("payments", "statements-pdf", "pdf-page", "pdf-archive"),
            ("media", "waveforms", "wave-page", "wave-cleaner"),
            ("search", "dictionary", "word-page", "word-sync"),
        )
    )
    by, minor, is_java = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    machines, pool = spare(lab, 3), "workers"
    drifting = _Drifting(lab, await lab.custom("EC2NodeClass", CLASSES, ANY, namespaced=False), pool)
    await lab.served(drifting.kind)
    meta, limit = {"name": pool}, 768

    def spec(image: str) -> Json:
        family_of = "AL2" if image == OLD_IMAGE else "AL2023"
        return {"spec": {"amiFamily": family_of, "amiSelectorTerms": [{"alias": image}], "role": "eks-workers"}}

    def check(container: Container) -> Problem | None:
        node = lab.world["Node"].get(("", str(container.pod["spec"].get("nodeName"))), {})
        if node.get("status", {}).get("nodeInfo", {}).get("kernelVersion") != NEW_KERNEL:
            return None
        if not is_java:
            return Problem("crash", NO_FILE, at_once=True)
        return Problem("oom", f"may have {limit}Mi") if container.seconds >= HEATS_SECONDS else None

    await lab.apply({"apiVersion": f"{CLASSES}/v1", "kind": drifting.kind.name, "metadata": meta, **spec(OLD_IMAGE)})
    for node in machines:
        told = {"labels": {"pool": pool}, "annotations": {MADE_FROM: OLD_IMAGE}}
        await lab.edit("admin", "Node", "", node, {"metadata": told})
        await lab.kubelets.run_kernel(node, OLD_KERNEL)
    rights = (CLASSES, drifting.kind.plural, "get,list"), ("", "nodes", "get,list,patch,delete"), ("", "pods", "list")
    more = ("", "pods/eviction", "create"), ("", "events", "create")
    general: Json = {"nodeSelector": {"pool": "general"}}
    await lab.controller(*KARPENTER, every(1.5, drifting.look), *rights, *more, replicas=1, tag="1.6.3", **general)
    await rolled(lab, *KARPENTER, "1.6.3")
    like = App("", asked=lambda: 20.0, check=check, memory_mi=420)
    there: Json = {"nodeSelector": {"pool": pool}}
    await lab.app(namespace, name, like=like, replicas=4, tag=f"1.{minor}.7", memory=f"{limit}Mi", **there)
    await rolled(lab, namespace, name, f"1.{minor}.7")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="2.2.0", config=other, **there)
    await rolled(lab, namespace, other, "2.2.0")
    await set_before(lab, namespace, front, name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"containers of {namespace}/{name} restart again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    lab.alert_lacking(namespace, name, seconds=14)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "30s"}})

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"1.{minor}.8")
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.culprit(by, "update", drifting.kind.name, "", pool, spec(NEW_IMAGE))
    lab.start(afterwards())


# -- another version of kubelets

UPGRADER, PLANS = ("platform", "system-upgrade-controller"), "upgrade.cattle.io"
OLDER, NEWER, UPGRADE_SECONDS = "v1.35.6", "v1.36.1", 5.0


@dataclass
class _Plans:
    """As its plan says: a node of another version is cordoned, emptied, upgraded and given back, one at a time."""

    lab: Lab
    kind: Kind
    pool: str
    at_it: list[str] = field(default_factory=list)

    async def look(self, process: Process) -> None:
        plan = await process.api.call("GET", self.kind.path(UPGRADER[0], self.pool))
        listed = await process.api.call("GET", f"{path('Node')}?labelSelector=pool={self.pool}")
        if self.at_it or not (plan.ok and listed.ok):
            return
        version = plan.body["spec"]["version"]
        older = [
            one["metadata"]["name"]
            for one in listed.body["items"]
            if one["status"]["nodeInfo"]["kubeletVersion"] != version
        ]
        if older:
            self.at_it.append(min(older))
            self.lab.start(self._upgrade(process, min(older), version))

    async def _upgrade(self, process: Process, node: str, version: str) -> None:
        where = path("Node", None, node)
        await process.api.call("PATCH", where, {"spec": {"unschedulable": True}})
        await empty(process, node)
        await asyncio.sleep(UPGRADE_SECONDS)
        await self.lab.kubelets.update(node, version)
        await process.api.call("PATCH", where, {"spec": {"unschedulable": None}})
        self.at_it.remove(node)


@family(
    "The plan by which nodes are upgraded gets the next version: one after the other is cordoned, emptied, upgraded and"
    " given back. An app has one replica, which takes its time to start, and is away each time that its node comes.",
    joined=92,
)
async def only_one_and_drained(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had never thought of an app that worked for three years."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "size-advisor", "advisor-page", "advisor-feed"),
            ("payments", "iban-check", "account-form", "form-export"),
            ("media", "subtitle-engine", "subtitle-page", "subtitle-sync"),
            ("search", "query-parser", "expert-page", "expert-feed"),
        )
    )
    by, starts, minor = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.uniform(36, 52), lab.rng.randrange(2, 30)
    machines, pool = spare(lab, 3), f"{namespace}-nodes"
    plans = _Plans(lab, await lab.custom("Plan", PLANS, ANY), pool)
    await lab.served(plans.kind)
    for node in machines:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": pool}}})
        await lab.kubelets.update(node, OLDER)
    await lab.until(
        lambda: all(lab.world["Node"]["", one]["status"]["nodeInfo"]["kubeletVersion"] == OLDER for one in machines)
    )
    spec = {
        "version": OLDER,
        "concurrency": 1,
        "cordon": True,
        "drain": {"deleteEmptydirData": True, "ignoreDaemonSets": True, "force": True},
        "nodeSelector": {"matchLabels": {"pool": pool}},
        "upgrade": {"image": "registry.corp.example/platform/kubelet-upgrade"},
    }
    meta = {"namespace": UPGRADER[0], "name": pool}
    await lab.apply({"apiVersion": f"{PLANS}/v1", "kind": "Plan", "metadata": meta, "spec": spec})
    rights = (PLANS, "plans", "get,list,watch"), ("", "nodes", "get,list,patch"), ("", "pods", "list")
    more = ("", "pods/eviction", "create"), ("coordination.k8s.io", "leases", "*")
    general: Json = {"nodeSelector": {"pool": "general"}}
    program = both(every(1.5, plans.look), leading(*UPGRADER))
    await lab.controller(*UPGRADER, program, *rights, *more, replicas=1, tag="v0.16.3", **general)
    await rolled(lab, *UPGRADER, "v0.16.3")
    waits = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 2, "failureThreshold": 60}
    like = App("", start_seconds=starts, asked=lambda: 16.0)
    where: Json = {"startup": waits, "nodeSelector": {"pool": pool}}
    await lab.app(namespace, name, like=like, replicas=1, tag=f"4.{minor}.0", **where)
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.1.4", config=other)
    await rolled(lab, namespace, other, "1.1.4")
    await set_before(lab, namespace, front, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and pods(lab.world, namespace, name))

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await lab.edit(lab.rng.choice(("flux", *TEAMS)), "ConfigMap", namespace, other, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(4, 8))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.culprit(by, "update", "Plan", UPGRADER[0], pool, {"spec": {"version": NEWER}})
    lab.start(afterwards())
