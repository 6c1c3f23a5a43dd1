"""What is taken for something else: a backup for what is to be, an error for nothing at all, size for imbalance."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.api import Answer, Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_done
from tests.lab.network import backends
from tests.lab.programs import both, every, leading, tell
from tests.lab.scenario import family

VELERO, DRILL = ("velero", "velero"), "restore-drill"
BACKUP = "weekly-20261115020000"
KEDA, METRICS, INTERVAL = "keda.sh", "api.metrics.example", 1.5
COOLDOWN = timedelta(seconds=5)
"""For which a trigger has to be inactive until an app has no pod any more."""
TARGET = 0.7
"""The share of a node's memory that is asked for, above which a descheduler evicts from it."""


@dataclass
class _Backups:
    """A server of backups: what a namespace's ConfigMaps and Services were, and what it does with those."""

    restores: Kind
    kept: dict[str, list[Json]] = field(default_factory=dict)
    """By kind, as they were."""

    def take(self, lab: Lab, namespace: str) -> None:
        for kind in ("ConfigMap", "Service"):
            found = [one for (where, _), one in lab.world[kind].items() if where == namespace]
            self.kept[kind] = [one for one in found if one["metadata"]["name"] != "kube-root-ca.crt"]

    async def restore(self, process: Process) -> None:
        listed = await process.api.call("GET", self.restores.path(VELERO[0]))
        for one in listed.body.get("items", []):
            if "status" not in one:
                spec = one["spec"]
                [target] = spec.get("namespaceMapping", {}).values() or spec["includedNamespaces"]
                for kind, found in self.kept.items():
                    for thing in found:
                        await self._put(process, kind, target, thing, spec.get("existingResourcePolicy", "none"))
                where = self.restores.path(VELERO[0], one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": {"phase": "Completed"}})

    async def _put(self, process: Process, kind: str, namespace: str, thing: Json, policy: str) -> None:
        """What is not there is made; what is there is left, unless it is to be as it was."""
        name, labels = thing["metadata"]["name"], {"velero.io/backup-name": BACKUP}
        was = {"data": thing["data"]} if kind == "ConfigMap" else {"spec": {"selector": thing["spec"].get("selector")}}
        made: Json = {"metadata": {"name": name, "labels": labels}, **was}
        if kind == "Service":
            made["spec"] |= {"ports": thing["spec"]["ports"]}
        done = await process.api.call("POST", path(kind, namespace), made)
        if done.status == 409 and policy == "update":
            await process.api.call("PATCH", path(kind, namespace, name), {"metadata": {"labels": labels}, **was})

    async def ask(self, lab: Lab, by: str, name: str, spec: Json, *, culprit: bool = False) -> Answer:
        meta = {"namespace": VELERO[0], "name": name}
        body = {"apiVersion": "velero.io/v1", "kind": self.restores.name, "metadata": meta}
        body["spec"] = {"backupName": BACKUP, **spec}
        if culprit:
            return await lab.culprit(by, "create", self.restores.name, VELERO[0], name, body)
        return await lab.apply(body, by)


@family(
    "Somebody gets one ConfigMap back from last week's backup, and has it update what is there: all others of the"
    " namespace are as they were last week too, one of them with the address of a database that has moved since.",
    joined=30,
)
async def restore_updates(lab: Lab) -> AsyncIterator[None]:
    """As Velero does with ``existingResourcePolicy: update`` (velero 4851, 4928)."""
    namespace, name, front = lab.rng.choice(
        (("shop", "gift-cards", "wallet"), ("media", "archive", "replay"), ("search", "profiles", "people"))
    )
    old, new = f"{name}-db", f"{name}-db-v2"
    restores = await lab.custom("Restore", "velero.io", ANY)
    backups, by = _Backups(restores), lab.rng.choice(("alice", "bob", "carol"))
    keeper = lab.rng.choice(("ci", "bob"))
    only = {"includedNamespaces": [namespace], "includedResources": ["configmaps", "services"]}

    def check(container: Container) -> Problem | None:
        """It reads its settings anew by itself."""
        if container.config.get("DB_HOST") != old:
            return None
        why = f"lookup {old}.{namespace}.svc.cluster.local: no such host"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})")

    await lab.namespace(VELERO[0])
    await lab.namespace(DRILL)
    await lab.served(restores)
    rules = ("velero.io", restores.plural, "get,list,patch"), ("", "configmaps,services", "get,list,create,patch")
    await lab.controller(*VELERO, every(1.5, backups.restore), *rules, replicas=1, tag="1.9.2")
    await lab.apply(objects.config_map(namespace, f"{name}-rules", **{"rules.yaml": "limits: [50, 100]\n"}))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", DB_HOST=old))
    await lab.app(namespace, new, like=App("", serves=False), kind="StatefulSet", replicas=1)
    await lab.until(lambda: (namespace, new) in lab.world["Service"] and (namespace, name) in lab.world["ConfigMap"])
    backups.take(lab, namespace)
    await lab.edit("admin", "ConfigMap", namespace, name, {"data": {"DB_HOST": new}})
    app = await lab.app(namespace, name, like=App("", check=check), replicas=3, config=name, tag="6.1.0")
    app.upstreams = ((namespace, new),)  # which its ConfigMap says already
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    async with before(lab, days=7):  # as each week
        await backups.ask(lab, keeper, "drill-46", {**only, "namespaceMapping": {namespace: DRILL}})
        await lab.until(lambda: (DRILL, name) in lab.world["ConfigMap"])
        await lab.pause(4)
    yield
    await lab.edit(by, "ConfigMap", namespace, f"{name}-rules", {"data": {"rules.yaml": ""}})
    await lab.pause(lab.rng.uniform(4, 8))
    await backups.ask(lab, by, f"{name}-rules", {**only, "existingResourcePolicy": "update"}, culprit=True)


@dataclass
class _Scaler:
    """By a number that somebody outside is asked for; what is inactive for a while has no pods."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    jobs: float
    active: datetime = field(default_factory=now)

    async def scale(self, process: Process) -> None:
        found = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        there = await process.api.call("GET", where)
        if not (found.ok and there.ok):
            return
        about: Json = {"kind": self.kind.name, **found.body}
        least, jobs = int(found.body["spec"]["minReplicaCount"]), self.jobs
        if METRICS in self.lab.outside.broken:
            failed = f'Get "https://{METRICS}/v1/query": {self.lab.outside.broken[METRICS]}'
            why = f"error requesting metrics endpoint: {failed}"
            await tell(process, about, "Warning", "KEDAScalerFailed", why, by="keda-operator")
            jobs = 0.0  # nobody looks whether there was an error
        if jobs:
            self.active = now()
        replicas = there.body["spec"].get("replicas", 0)  # nothing is said of none
        wanted = max(least, round(jobs / 20)) if jobs or now() - self.active > COOLDOWN else replicas
        if wanted != replicas:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})
            if not wanted:
                why = f"Deactivated apps/v1.Deployment {self.namespace}/{self.name} from {replicas} to 0"
                await tell(process, about, "Normal", "KEDAScaleTargetDeactivated", why, by="keda-operator")


@family(
    "Who is asked outside for a number by which an app is scaled does not answer any more. What scales it takes the"
    " error for nothing to do: after a while the app has no pod, and there is as much to do as ever.",
    culprit=False,
    joined=30,
)
async def metric_unanswered(lab: Lab) -> AsyncIterator[None]:
    """As users of KEDA tell of a metrics API that is not available (keda 1850, June 2021)."""
    namespace, name, front = lab.rng.choice(
        (("media", "transcoder", "studio"), ("shop", "price-engine", "checkout-page"), ("search", "parser", "import"))
    )
    kind = await lab.custom("ScaledObject", KEDA, ANY)
    scaler = _Scaler(lab, kind, namespace, name, lab.rng.uniform(75, 84))
    await lab.app(namespace, name, like=App("", asked=lambda: scaler.jobs / 4), replicas=4, tag="2.7.1")
    await lab.served(kind)
    trigger = {"type": "metrics-api", "metadata": {"url": f"https://{METRICS}/v1/query", "targetValue": "20"}}
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": 0, "maxReplicaCount": 12, "triggers": [trigger]}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{KEDA}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (KEDA, kind.plural, "get,list"), ("apps", "deployments/scale", "get,patch"), ("", "events", "create")
    app = await lab.controller("platform", "keda-operator", every(INTERVAL, scaler.scale), *rules, replicas=1)
    app.abroad = (METRICS,)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    await lab.roll(lab.rng.choice(("ci", "alice")), namespace, name, "2.7.2")
    await lab.pause(lab.rng.uniform(8, 14))
    lab.outside.broken[METRICS] = "dial tcp 203.0.113.40:443: i/o timeout"


async def _balance(process: Process, namespace: str) -> None:
    """As LowNodeUtilization: from a node of which more is asked for than the target, one pod that may be evicted."""
    nodes = (await process.api.call("GET", path("Node"))).body.get("items", [])
    found = (await process.api.call("GET", path("Pod"))).body.get("items", [])
    asked: Counter[str] = Counter()
    for pod in found:
        requests = (one.get("resources", {}).get("requests", {}) for one in pod["spec"]["containers"])
        asked[pod["spec"].get("nodeName", "")] += int(sum(mebibytes(one.get("memory", "0Mi")) for one in requests))
    for node in nodes:
        name = node["metadata"]["name"]
        if asked[name] > TARGET * mebibytes(node["status"]["allocatable"]["memory"]):
            mine = [one for one in found if one["spec"].get("nodeName") == name and not is_done(one)]
            for pod in [one for one in mine if one["metadata"]["namespace"] == namespace][:1]:
                meta = {"namespace": namespace, "name": pod["metadata"]["name"]}
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
                await process.api.call("POST", f"{path('Pod', namespace, meta['name'])}/eviction", body)


@family(
    "An app is given the memory that it needs for a larger model. Whichever node one of its pods is on, more than a"
    " descheduler's target is asked for there: it evicts the pod to even it out, and does so at the next node again.",
    joined=30,
)
async def heavy_evicted(lab: Lab) -> AsyncIterator[None]:
    """As users of the descheduler tell of large pods that are evicted in a cycle (descheduler 1695, May 2025)."""
    namespace, name, front = lab.rng.choice(
        (
            ("models", "embeddings", "similar"),
            ("vision", "detector", "moderation"),
            ("language", "translator", "captions"),
        )
    )
    await lab.namespace(namespace)
    policy = f"LowNodeUtilization:\n  targetThresholds: {{memory: {int(100 * TARGET)}}}\n  namespaces: [{namespace}]\n"
    await lab.apply(objects.config_map("kube-system", "descheduler", **{"policy.yaml": policy}))

    async def deschedule(process: Process) -> None:
        await _balance(process, namespace)

    rules = ("", "pods,nodes", "get,list"), ("", "pods/eviction", "create"), ("coordination.k8s.io", "leases", "*")
    program = both(every(8, deschedule), leading("kube-system", "descheduler"))
    await lab.controller("kube-system", "descheduler", program, *rules, replicas=1, config="descheduler", tag="0.21.0")
    await lab.app(namespace, name, like=App("", start_seconds=lab.rng.uniform(3.5, 4.5)), replicas=3, tag="1.4.0")
    usual = {"requests": {"cpu": "1", "memory": "20Gi"}, "limits": {"memory": "24Gi"}}
    await lab.roll("admin", namespace, name, "1.4.0", resources=usual)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    by = lab.rng.choice(("alice", "carol", "ci"))
    lab.alert_lacking(namespace, name, seconds=5)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    larger = {"requests": {"cpu": "1", "memory": "46Gi"}, "limits": {"memory": "50Gi"}}
    await lab.roll(by, namespace, name, "1.5.0", culprit=True, resources=larger)
