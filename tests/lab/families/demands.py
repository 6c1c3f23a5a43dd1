"""What a manifest demands that it cannot have: a network, a quick start, a place, a volume."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.alerts import pending, restarts
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.nodes import provide
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family


@family(
    "A rollout puts an app into its node's network, to save a hop, and leaves its DNS policy: it asks as its node does,"
    " and no name of a Service is resolved.",
    joined=5,
)
async def host_network(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice(CALLERS)
    lab.reserve(namespace, name)
    lab.alert_stuck(namespace, name)
    yield
    by = lab.rng.choice(("argocd", "flux", "ci"))
    body = {"spec": {"template": {"spec": {"hostNetwork": True}}}}
    await lab.culprit(by, "update", "Deployment", namespace, name, body)


@family(
    "Probes are made the same for all apps, and the one that starts slowly loses its startup probe: it is killed before"
    " it is up, each time.",
    joined=5,
)
async def startup_probe(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("search", "spelling"), ("payments", "fraud"), ("media", "captions")))
    alive: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1}
    patient = {**alive, "failureThreshold": 30}
    await lab.app(namespace, name, like=App("", start_seconds=9), replicas=3, liveness=alive, startup=patient)
    holds = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    lab.alert("KubePodRestarting", holds, f"pods of {name} restart", 4, namespace=namespace, deployment=name)
    yield
    await lab.roll("argocd", namespace, name, "1.0.1", culprit=True, startupProbe=None)


@family(
    "An app's replicas may no longer share a node, and there are more of them than nodes: the pods of the rollout find"
    " none.",
    joined=5,
)
async def anti_affinity(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("shop", "sessions"), ("media", "packager"), ("search", "shards")))
    await lab.app(namespace, name, replicas=7)
    holds = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodPending", holds, f"a pod of {namespace} has had no node for a while", 6, namespace=namespace)
    yield
    labels = {"matchLabels": {"app.kubernetes.io/name": name}}
    apart = [{"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    body = {"spec": {"template": {"spec": {"affinity": affinity}}}}
    await lab.culprit(lab.rng.choice(("alice", "flux")), "update", "Deployment", namespace, name, body)


@family(
    "An autoscaler is made for an app that has one volume, which a single node may write: the second pod is on another"
    " node and waits for it.",
    joined=5,
)
async def multi_attach(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("search", "wiki"), ("media", "catalogue"), ("payments", "archive")))
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "storageclasses", "list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    meta = {"name": "standard"}
    await lab.apply({"kind": "StorageClass", "metadata": meta, "provisioner": "disk.csi.example"})
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "standard",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    await lab.app(namespace, name, replicas=1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])
    lab.alert_lacking(namespace, name)
    yield
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    body = {"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4}}
    await lab.culprit("carol", "create", "HorizontalPodAutoscaler", namespace, name, body)
