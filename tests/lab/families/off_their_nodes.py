"""What goes off its node and is not put anywhere again: nobody saw it go, or all nodes keep it out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from tests.lab import objects
from tests.lab.alerts import lacking, pending, pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import LATE, App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import image_of, is_ready, uid_of
from tests.lab.network import backends
from tests.lab.programs import both, changes, every, tell
from tests.lab.scenario import family

GROUP, OPERATOR, TUNNEL = "tunnels.corp.example", "connector-operator", "registry.corp.example/platform/connector"
LEASE_SECONDS = 5
QUORUM = "drbd.linbit.com/lost-quorum"
RESYNC_SECONDS, FAIL_OVER_AFTER = 150, timedelta(seconds=4)
"""For how long a volume copies what it has missed until it has its quorum back, and when its pod is sent away."""


@dataclass
class _Connectors:
    """Their operator: it makes a pod for each new one, and another one as it hears that such a pod ends.

    One that has been given its pod is not looked at again.
    """

    lab: Lab
    kind: Kind

    async def run(self, process: Process) -> None:
        me = process.see().pod["metadata"]["name"]
        await self._lead(process, me)
        heard: dict[str, Json] = {}
        ending: dict[str, str] = {}  # the connectors of pods, by their uid

        def hear(one: Json) -> None:
            heard[one["metadata"]["uid"]] = one

        def end(pod: Json) -> None:
            if "deletionTimestamp" in pod["metadata"] and image_of(pod) == TUNNEL:
                ending.setdefault(uid_of(pod), pod["metadata"]["ownerReferences"][0]["name"])

        async def watch(process: Process) -> None:
            await changes(process, self.kind.path(), hear, of_all=True)

        async def watch_pods(process: Process) -> None:
            await changes(process, path("Pod", "platform"), end)

        async def work(process: Process) -> None:
            """Until it is told to end."""
            if not self._was_told_to_end(me):
                await process.api.call("PATCH", path("Lease", "platform", OPERATOR), {"spec": _held(me)})
                await self._reconcile(process, heard, ending)

        await both(watch, watch_pods, every(0.4, work))(process)

    async def _reconcile(self, process: Process, heard: dict[str, Json], ending: dict[str, str]) -> None:
        for one in (heard.pop(uid) for uid in list(heard)):
            if not one.get("status", {}).get("pod"):
                await self._make(process, one)
        for uid, owner in [(uid, owner) for uid, owner in ending.items() if owner]:
            ending[uid] = ""
            found = await process.api.call("GET", self.kind.path("platform", owner))
            if found.ok:
                await self._make(process, found.body)

    async def _lead(self, process: Process, me: str) -> None:
        """Wait until nobody else has the lease."""
        while True:
            found = await process.api.call("GET", path("Lease", "platform", OPERATOR))
            if found.status == 404:
                body = {"metadata": {"name": OPERATOR}, "spec": _held(me)}
                await process.api.call("POST", path("Lease", "platform"), body)
                return
            renewed = datetime.fromisoformat(found.body["spec"]["renewTime"]) if found.ok else now()
            if now() - renewed > timedelta(seconds=LEASE_SECONDS):
                return
            await asyncio.sleep(0.5)

    def _was_told_to_end(self, me: str) -> bool:
        pod = self.lab.world["Pod"].get(("platform", me))
        return pod is None or "deletionTimestamp" in pod["metadata"]

    async def _make(self, process: Process, one: Json) -> None:
        name = one["metadata"]["name"]
        made = objects.deployment("platform", name, f"{TUNNEL}:1.78.0", nodeSelector={"pool": "edge"})
        pod: Json = made["spec"]["template"]
        owner = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "name": name, "uid": one["metadata"]["uid"]}
        reference = {**owner, "controller": True, "blockOwnerDeletion": True}
        meta = {**pod["metadata"], "generateName": f"{name}-", "ownerReferences": [reference]}
        done = await process.api.call("POST", path("Pod", "platform"), {**pod, "metadata": meta})
        if done.ok:
            told = {"status": {"pod": done.body["metadata"]["name"], "phase": "Created"}}
            await process.api.call("PATCH", self.kind.path("platform", name), told)


def _has(lab: Lab, namespace: str, name: str, count: int) -> bool:
    """Whether so many pods are behind a Service."""
    return len(backends(lab.world, namespace, name)) == count


def _held(by: str) -> Json:
    return {
        "holderIdentity": by,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }


@family(
    "A node is emptied for its upgrade. An operator runs there, and two connectors to partners that it has made as pods"
    " of its own: these end while nobody watches. The operator is elsewhere soon, takes both for what its objects say"
    " of them, and never makes them again.",
    joined=40,
)
async def deletion_unseen(lab: Lab) -> AsyncIterator[None]:
    """As Twingate's operator did not look for its pods as it resumed (Twingate/kubernetes-operator 161)."""
    by = lab.rng.choice(("alice", "bob"))
    callers = lab.rng.sample(
        (
            ("payments", "payouts", "bank-connector"),
            ("shop", "dispatch", "carrier-connector"),
            ("media", "licences", "studio-connector"),
        ),
        2,
    )
    edge = spare(lab, 2)
    for node in edge:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "edge"}}})
        await lab.kubelets.update(node, "v1.35.4")
    await lab.edit("admin", "Node", "", edge[1], {"spec": {"unschedulable": True}})  # it is not there yet
    kind = await lab.custom("Connector", GROUP, ANY)
    await lab.served(kind)
    lab.apps[TUNNEL] = App(TUNNEL, abroad=("relay.tunnels.example",), serves=False)
    rights = (
        (GROUP, "connectors", "get,list,watch,patch"),
        ("", "pods", "list,watch,create"),
        ("coordination.k8s.io", "leases", "*"),
    )
    operator = _Connectors(lab, kind).run
    pool = {"pool": "edge"}
    await lab.controller("platform", OPERATOR, operator, *rights, replicas=1, tag="0.9.3", nodeSelector=pool)
    await rolled(lab, "platform", OPERATOR, "0.9.3")
    for namespace, name, connector in callers:
        meta = {"namespace": "platform", "name": connector}
        spec = {"network": connector.split("-", maxsplit=1)[0], "logLevel": "info"}
        await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
        await lab.apply(objects.service("platform", connector))
        await lab.until(partial(_has, lab, "platform", connector, 1))
        like = App("", upstreams=(("platform", connector),))
        await lab.app(namespace, name, like=like, replicas=3, tag="2.14.0")
        await lab.until(partial(_has, lab, namespace, name, 3))
        lab.reserve(namespace, name)
        lab.alert_lacking(namespace, name, seconds=8)
        lab.alert_errors(namespace, name)
    await lab.edit("admin", "Node", "", edge[1], {"spec": {"unschedulable": None}})
    await lab.until(lab.is_well)
    yield
    await lab.culprit(by, "update", "Node", "", edge[0], {"spec": {"unschedulable": True}})
    await drain(lab, by, edge[0])

    async def upgrade() -> None:
        await lab.pause(8)
        await lab.kubelets.update(edge[0], "v1.36.1")
        await lab.edit(by, "Node", "", edge[0], {"spec": {"unschedulable": None}})

    lab.start(upgrade())


@dataclass
class _Volumes:
    """What each node has lost the quorum of, by the name of its pod's app, and until when."""

    lost: dict[str, dict[str, datetime]] = field(default_factory=dict)
    since: datetime = field(default_factory=now)

    def on(self, node: str) -> set[str]:
        return {name for name, until in self.lost.get(node, {}).items() if now() < until}

    def fails(self, container: Container) -> Problem | None:
        """Its node writes nothing to a volume without quorum."""
        meta, node = container.pod["metadata"], container.pod["spec"]["nodeName"]
        has_lost = meta["labels"]["app.kubernetes.io/name"] in self.on(node)
        return Problem("unready", LATE) if has_lost else None

    async def guard(self, process: Process) -> None:
        """As the controller of a storage on every node: it keeps others out, and sends away who cannot write."""
        node = process.see().pod["spec"]["nodeName"]
        found = await process.api.call("GET", path("Node", None, node))
        if not found.ok:
            return
        others = [one for one in found.body["spec"].get("taints", ()) if one["key"] != QUORUM]
        is_kept_out = len(others) < len(found.body["spec"].get("taints", ()))
        if is_kept_out != bool(self.on(node)):
            taints = [*others, {"key": QUORUM, "effect": "NoSchedule"}] if self.on(node) else others
            await process.api.call("PATCH", path("Node", None, node), {"spec": {"taints": taints}})
        if not self.on(node) or now() - self.since < FAIL_OVER_AFTER:
            return
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
        for pod in listed.body.get("items", []):
            meta = pod["metadata"]
            has_lost = meta.get("labels", {}).get("app.kubernetes.io/name") in self.on(node)
            if has_lost and "deletionTimestamp" not in meta:
                words = ("ForceDeleted", "pod deleted because a used volume is marked as failing")
                await tell(process, {"kind": "Pod", **pod}, "Warning", *words, by="linstor.linbit.com/HighAvailability")
                await process.api.call("DELETE", path("Pod", meta["namespace"], meta["name"]))


@family(
    "The network of a storage is away for a moment, and each node is left with some volume that has lost its quorum."
    " The storage's controller taints such a node, for all pods and not only for those with volumes: what it sends"
    " away, and what is just rolled out, finds no node at all.",
    culprit=False,
    joined=40,
)
async def quorum_taints(lab: Lab) -> AsyncIterator[None]:
    """As told of Piraeus' taints, which made a whole cluster unschedulable (tgbyte.de)."""
    volumes, by = _Volumes(), lab.rng.choice(("ci", "argocd"))
    databases = lab.rng.sample(
        (
            ("shop", "baskets-db", "baskets"),
            ("payments", "accounts-db", "accounts"),
            ("media", "shelves-db", "shelves"),
        ),
        2,
    )
    other = lab.rng.choice((("search", "hints"), ("search", "facets")))
    await lab.namespace("piraeus")
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "drbd-r3"}, "provisioner": "linstor.csi.linbit.com"})
    for namespace, database, name in databases:
        await _with_volume(lab, volumes, namespace, database)
        await lab.app(namespace, name, like=App("", upstreams=((namespace, database),)), replicas=3, tag="3.8.0")
    await lab.app(*other, replicas=4, tag="1.19.0")
    rights = ("", "nodes", "get,patch"), ("", "pods", "get,list,delete"), ("", "events", "create")
    guard, keeper = every(1.5, volumes.guard), "ha-controller"
    await lab.controller("piraeus", keeper, guard, *rights, kind="DaemonSet", tag="1.3.1")
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, "piraeus", keeper))) == len(NODES))
    for namespace, database, name in databases:
        await lab.until(partial(_has, lab, namespace, name, 3))
        await publish(lab, namespace, name)
        lab.reserve(namespace, database)
        lacks = partial(lacking, lab.world, namespace, database)
        summary = f"{namespace}/{database} has not had its replicas for a while"
        of_set = {"namespace": namespace, "statefulset": database}
        lab.alert("KubeStatefulSetReplicasMismatch", lacks, summary, 10, **of_set)
        lab.alert_errors(namespace, name)
    for node in NODES:
        unquorate = partial(lambda node: float(len(volumes.on(node))), node)
        lab.measure("drbd_device_unquorate", unquorate, namespace="piraeus", service=keeper, node=node)
    for namespace in (other[0], *(one[0] for one in databases)):
        holds = lambda namespace=namespace: pending(lab.world, namespace)  # noqa: E731
        summary = f"a pod of {namespace} has had no node for a while"
        lab.alert("KubePodPending", holds, summary, 8, namespace=namespace)
    await lab.until(lab.is_well)

    async def lose() -> None:
        """Whoever is cut off from both others of a volume has lost it; the longer it was away the more is missed."""
        volumes.since = now()
        until = volumes.since + timedelta(seconds=RESYNC_SECONDS)
        for number, node in enumerate(NODES):
            volumes.lost[node] = {f"volume-{number}": until + timedelta(seconds=lab.rng.uniform(0, 30))}
        for namespace, database, _ in databases:
            [pod] = pods(lab.world, namespace, database)
            volumes.lost[pod["spec"]["nodeName"]][database] = until

    yield
    await lab.pause(lab.rng.uniform(3, 6))
    await lose()
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.roll(by, *other, "1.20.0")


async def _with_volume(lab: Lab, volumes: _Volumes, namespace: str, name: str) -> None:
    """One pod with a volume that any node may have. Raises RefusedError."""
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": f"data-{name}"}
    room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "drbd-r3"}
    made = f"pvc-{lab.rng.getrandbits(32):08x}"
    there = {"driver": "linstor.csi.linbit.com", "volumeHandle": made}
    volume = {**room, "capacity": {"storage": "40Gi"}, "claimRef": claim, "csi": there}
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": made}, "spec": volume})
    spec = {**room, "volumeName": made, "resources": {"requests": {"storage": "40Gi"}}}
    meta = {"namespace": namespace, "name": f"data-{name}"}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
    like = App("", check=volumes.fails, serves=False)
    await lab.app(namespace, name, like=like, kind="StatefulSet", replicas=1, tag="16.3", volumes=mounts)
