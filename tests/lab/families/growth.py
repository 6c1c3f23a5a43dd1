"""Room that is counted twice, series that are counted for ever, and a version that needs more of it than the last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import lacking, restarts
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.company import APPS
from tests.lab.families.moving import spare
from tests.lab.families.nodes import provide
from tests.lab.lab import Lab
from tests.lab.programs import both, every, informer, leading
from tests.lab.scenario import family

WORKSPACES, IMAGE = "workspaces", "registry.corp.example/workspaces/editor"
MEMORY = "15Gi"
"""What each workspace asks for: four fit on a node."""
FEW, MANY = 4, 12
"""Workspaces that are open at once: on an ordinary day, and when all nodes of the pool are full."""
OPEN_SECONDS, COUNTED_SECONDS = 10.0, 5.0
"""For how long one is open, and a kubelet counts it afterwards."""


@dataclass
class Opened:
    """Opens so many workspaces for users as want one, and closes each after a while."""

    wanted: int = 0
    failed: int = 0

    async def work(self, process: Process) -> None:
        where = path("Pod", WORKSPACES)
        listed = await process.api.call("GET", where)
        if not listed.ok:
            return
        there = [pod for pod in listed.body["items"] if "deletionTimestamp" not in pod["metadata"]]
        over = [pod for pod in there if pod["status"]["phase"] == "Failed" or _age(pod) > OPEN_SECONDS]
        self.failed += sum(pod["status"]["phase"] == "Failed" for pod in over)
        for pod in over:
            await process.api.call("DELETE", f"{where}/{pod['metadata']['name']}")
        for _ in range(self.wanted - len(there) + len(over)):
            await process.api.call("POST", where, _workspace(f"ws-{process.rng.randrange(16**8):08x}"))


def _age(pod: Json) -> float:
    return (now() - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])).total_seconds()


def _workspace(name: str) -> Json:
    made = objects.deployment(WORKSPACES, name, f"{IMAGE}:2022.2", nodeSelector={"pool": "workspaces"})
    spec: Json = made["spec"]["template"]["spec"]
    spec["containers"][0]["name"] = "workspace"
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": MEMORY}, "limits": {"memory": MEMORY}}
    return {"metadata": {"name": name, "labels": {"component": "workspace"}}, "spec": spec}


@family(
    "As many users open workspaces as their nodes have room for, and each place is taken again at once. The scheduler"
    " gives it away when a workspace has ended, and the kubelet, which counts it for a while still, refuses the next.",
    culprit=False,
    joined=14,
)
async def ended_counted(lab: Lab) -> AsyncIterator[None]:
    """As users of Gitpod tell of January to April 2022 (gitpod 8463, 8238 and 9259)."""
    for node in spare(lab, 3):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "workspaces"}}})
    lab.outside.counted_seconds = COUNTED_SECONDS
    lab.apps[IMAGE] = App(IMAGE)
    await lab.namespace(WORKSPACES)
    manager, general = Opened(), {"pool": "general"}
    rule = ("", "pods", "get,list,create,delete")
    await lab.controller("platform", "ws-manager", every(0.7, manager.work), rule, replicas=1, nodeSelector=general)
    failing = lab.rate(lambda: manager.failed, 0.3, seconds=8)
    failures = lambda: manager.failed  # noqa: E731
    labels = {"namespace": "platform", "service": "ws-manager"}
    lab.measure("workspace_starts_failed_total", failures, "counter", **labels)
    summary = "workspaces fail to start"
    lab.alert("WorkspaceFailedStarts", failing, summary, 4, namespace=WORKSPACES, service="ws-manager")

    async def open_soon() -> None:
        await lab.pause(6)
        manager.wanted = FEW

    async def come() -> None:
        """More and more users, as on every morning of a new term."""
        while manager.wanted < MANY:
            manager.wanted += 1
            await lab.pause(1.5)

    lab.start(open_soon())
    yield
    lab.start(come())


CLAIMS, HEAD_SECONDS, REPLAY_SECONDS = 36, 60.0, 2.0
"""Volumes of the company, for how long what is gone is kept in memory, and until an old state is read again."""
MIB_BY_KIND = {"Pod": 5.0, "Job": 8.0, "PersistentVolumeClaim": 10.0}
"""What the series of one object take."""
LIMIT_MIB, BASE_MIB = 2000.0, 700.0


@family(
    "All volumes are moved to another tool for backups at once: it makes a claim, a Job and a pod for each, what"
    " monitors the cluster keeps series of all that ever was there, and has no memory left.",
    joined=14,
)
async def series_growth(lab: Lab) -> AsyncIterator[None]:
    """As rafaribe tells of a cluster at home (July 2026, home-ops 5911)."""
    name, key = "backup-migrator", "NAMESPACES"
    seen: dict[str, tuple[str, datetime]] = {}
    moved = "registry.corp.example/platform/backup-mover"
    lab.apps[moved] = App(moved, ends_after=4)

    def needed() -> float:
        """By what it has seen since the beginning of its head, which a restart reads again from its log."""
        for kind in MIB_BY_KIND:
            for thing in lab.world[kind].values():
                seen[thing["metadata"]["uid"]] = (kind, now())
        kept = (kind for kind, at in seen.values() if (now() - at).total_seconds() < HEAD_SECONDS)
        return BASE_MIB + sum(MIB_BY_KIND[kind] for kind in kept)

    def check(container: Container) -> Problem | None:
        much = needed()
        if container.seconds < REPLAY_SECONDS or much < LIMIT_MIB:
            return None
        return Problem("oom", f"needs {much:.0f}Mi, may have {LIMIT_MIB:.0f}Mi")

    async def migrate(process: Process) -> None:
        """Each claim of the namespaces that are named, once: a place for what is copied, and who copies it."""
        listed = await process.api.call("GET", path("PersistentVolumeClaim"))
        claims = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in listed.body.get("items", [])]
        wanted = process.config[key].split(",")
        for where, claim in claims:
            cache = f"{claim}-backup"
            if where in wanted and not claim.endswith("-backup") and (where, cache) not in claims:
                await process.api.call("POST", path("PersistentVolumeClaim", where), _claim(where, cache))
                run = objects.deployment(where, cache, f"{moved}:1.4.0", restartPolicy="Never")["spec"]["template"]
                job = {"metadata": {"name": cache}, "spec": {"template": run, "backoffLimit": 2}}
                await process.api.call("POST", path("Job", where), job)

    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "storageclasses", "list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "standard"}, "provisioner": "disk.csi.example"})
    for number in range(CLAIMS):
        namespace = sorted(APPS)[number % len(APPS)]
        await lab.apply(_claim(namespace, f"data-{number:02}"))
    await lab.apply(objects.config_map("platform", name, **{key: "staging", "MOVER_VERSION": "1.4.0"}))
    may = ("", "persistentvolumeclaims", "list,create"), ("batch", "jobs", "create")
    await lab.controller("platform", name, every(2, migrate), *may, replicas=1, config=name)
    await lab.app("monitoring", "prometheus", like=App("", check=check), replicas=1, memory="2000Mi")
    holds = lambda: lacking(lab.world, "monitoring", "prometheus")  # noqa: E731
    summary = "nothing has been heard of the monitoring of this cluster for a while"
    lab.alert("WatchdogMissing", holds, summary, 6, namespace="monitoring", service="prometheus")
    yield
    by = lab.rng.choice(("flux", "argocd", "bob"))
    await lab.culprit(by, "update", "ConfigMap", "platform", name, {"data": {key: ",".join(sorted(APPS))}})


def _claim(namespace: str, name: str) -> Json:
    wanted = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": wanted}
    return {"kind": "PersistentVolumeClaim", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


OLD_MIB, NEW_MIB, FILL_MIB = 180.0, 350.0, 60.0
"""What an operator keeps of the cluster, by its version, and how much of it comes in each second after its start."""


@family(
    "A chart brings a new version of an operator and the memory limit of ever: the new one keeps nearly twice as much"
    " of the cluster, and is killed each time it has read all of it.",
    joined=14,
)
async def operator_memory(lab: Lab) -> AsyncIterator[None]:
    """As a user of the Instana agent's operator tells of its version 2.1.0 (June 2024, instana-agent-operator 170)."""
    name, namespace = lab.rng.choice(("tracing", "profiling", "inventory")), "monitoring"
    operator = f"{name}-operator"

    def check(container: Container) -> Problem | None:
        most = OLD_MIB if container.tag.startswith("2.0.") else NEW_MIB
        much = min(most, FILL_MIB * container.seconds)
        return Problem("oom", f"needs {much:.0f}Mi, may have 200Mi") if much > 200 else None

    rules = ("", "pods,nodes", "list,watch"), ("coordination.k8s.io", "leases", "*")
    program = both(informer(path("Pod")), informer(path("Node")), leading(namespace, operator))
    app = await lab.controller(namespace, operator, program, *rules, memory="200Mi", tag="2.0.32")
    app.check = check
    holds = lambda: restarts(lab.world, namespace, operator) >= 3  # noqa: E731
    lab.alert("KubePodCrashLooping", holds, f"pods of {operator} restart", 3, namespace=namespace, deployment=operator)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd", "flux")), namespace, operator, "2.1.0", culprit=True)
