"""Of which there is one: an app's only pod, on a node that is emptied, and a volume that one node may have."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Caller, Json, now
from tests.lab.apps import App
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.scenario import family
from tests.lab.volumes import refusing_attachments

OLDER, NEWER = "v1.35.4", "v1.36.1"
CORDON, UNCORDON = {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}
UPGRADES_SECONDS = 5.0
"""Until a node's kubelet is of the newer version, once the node is empty."""


@family(
    "The nodes are upgraded one after the other, each once it is empty. What runs there has others elsewhere, but for"
    " an app with one replica, which takes its time to start: it is away until it has done so on another node.",
    joined=89,
)
async def drained_alone(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose app had one pod, no budget, and a node that was drained in the daytime."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "tax-tables", "basket-totals"),
            ("payments", "bank-directory", "transfer-form"),
            ("media", "licence-server", "player-start"),
            ("search", "spelling-model", "did-you-mean"),
        )
    )
    by, starts, minor = lab.rng.choice(TEAMS), lab.rng.uniform(34, 50), lab.rng.randrange(2, 40)
    machines, pool = spare(lab, 3), f"{namespace}-web"
    waits = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 2, "failureThreshold": 60}
    for node in machines:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": pool}}})
        await lab.kubelets.update(node, OLDER)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PRELOAD="all"))
    like = App("", start_seconds=starts, asked=lambda: 16.0)
    manifest: Json = {"config": name, "startup": waits, "nodeSelector": {"pool": pool}}
    await lab.app(namespace, name, like=like, replicas=1, tag=f"2.{minor}.0", **manifest)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await set_before(lab, namespace, front, name)
    [only] = pods(lab.world, namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    home = str(only["spec"]["nodeName"])
    [first, *_] = [node for node in machines if node != home]

    async def upgrade(node: str) -> None:
        """Once it takes no pod any more it is emptied; as soon as it is upgraded, pods may go there again."""
        await lab.until(lambda: lab.world["Node"]["", node]["spec"].get("unschedulable"))
        await drain(lab, by, node)
        await lab.pause(UPGRADES_SECONDS)
        await lab.kubelets.update(node, NEWER)
        await lab.edit(by, "Node", "", node, UNCORDON)

    yield
    await lab.edit(by, "Node", "", first, CORDON)
    await upgrade(first)
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 6))
    data = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, data)
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", "Node", "", home, CORDON)
    lab.start(upgrade(home))


@family(
    "An app of one pod keeps its data on a volume that one node at a time may have, and its Deployment has the usual"
    " strategy: the pod of the next version is made before the old one goes, elsewhere, and waits for the volume.",
    joined=89,
)
async def waits_for_volume(lab: Lab) -> AsyncIterator[None]:
    """As all tell who read *Multi-Attach error*, and changed the strategy to Recreate afterwards."""
    namespace, name, front, size = lab.rng.choice(
        (
            ("shop", "label-archive", "label-page", "50Gi"),
            ("payments", "report-store", "report-page", "100Gi"),
            ("media", "gallery-index", "gallery-page", "20Gi"),
            ("search", "crawl-state", "crawl-view", "80Gi"),
        )
    )
    by, is_restart, minor = lab.rng.choice(("ci", "argocd", *TEAMS)), lab.rng.random() < 0.3, lab.rng.randrange(2, 40)
    claim, volume = f"{name}-data", f"pvc-{lab.rng.getrandbits(32):08x}"
    room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    claimed = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim}
    disk = {"driver": "disk.csi.example", "volumeHandle": f"vol-{lab.rng.getrandbits(48):012x}"}
    spec = {**room, "capacity": {"storage": size}, "claimRef": claimed, "csi": disk}
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "disk.csi.example"})
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec})
    asked = {**room, "volumeName": volume, "resources": {"requests": {"storage": size}}}
    meta = {"namespace": namespace, "name": claim}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": asked})
    labels = {"matchLabels": {"app.kubernetes.io/name": name}}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    pod: Json = {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        "topologySpreadConstraints": [{**spread, "labelSelector": labels}],
    }
    await lab.app(namespace, name, like=App("", asked=lambda: 12.0), replicas=1, tag=f"4.{minor}.0", **pod)
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await set_before(lab, namespace, front, name)
    user = "system:kube-controller-manager"
    agent = "kube-controller-manager/v1.36.1 (linux/amd64) kubernetes/93248f9/system:serviceaccount:kube-system"
    attaching = Caller(lab.client, user, lab.plane.token(user), f"{agent}:attachdetach-controller")
    lab.start(refusing_attachments(lab.world, attaching))

    def waits() -> bool:
        return any(not is_ready(one) for one in pods(lab.world, namespace, name))

    summary = f"a container of {namespace}/{name} has been waiting for a while"
    lab.alert("KubeContainerWaiting", waits, summary, 12, namespace=namespace, deployment=name)
    lab.alert_stuck(namespace, name)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice(TEAMS), "PersistentVolumeClaim", namespace, claim, _noted(namespace))
    await lab.pause(lab.rng.uniform(4, 8))
    if is_restart:
        at = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
        body = {"spec": {"template": {"metadata": {"annotations": at}}}}
        await lab.culprit(lab.rng.choice(TEAMS), "update", "Deployment", namespace, name, body)
    else:
        await lab.roll(by, namespace, name, f"4.{minor + 1}.0", culprit=True)
    lab.start(afterwards())


def _noted(team: str) -> Json:
    return {"metadata": {"labels": {"backup.corp.example/plan": "daily", "team": team}}}
