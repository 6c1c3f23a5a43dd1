"""Of another class: disks that are made from now on are cheaper ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, leading, tell
from tests.lab.scenario import family
from tests.lab.volumes import claims

DRIVER, PROVISIONER, CLASS = "ebs.csi.aws.com", ("kube-system", "ebs-csi-controller"), "database"
DEAR = {"type": "io2", "iops": "16000", "csi.storage.k8s.io/fstype": "ext4"}
CHEAP: tuple[dict[str, str], ...] = (
    {"type": "gp3", "csi.storage.k8s.io/fstype": "ext4"},
    {"type": "gp2", "csi.storage.k8s.io/fstype": "ext4"},
    {"type": "st1", "csi.storage.k8s.io/fstype": "ext4"},
)
"""Of the last one a disk is not made below a size."""
LEAST_GIB = {"st1": 125}
GIVEN = {"io2": 16000.0, "gp3": 3000.0, "gp2": 300.0}
"""Operations a second of a disk of that type."""


@dataclass
class _Disks:
    """What makes them as they are claimed, and as their class says at that moment."""

    lab: Lab
    failed: int = 0
    later: dict[str, float] = field(default_factory=dict)

    async def provide(self, process: Process) -> None:
        listed = (await process.api.call("GET", path("StorageClass"))).body.get("items", ())
        classes = {one["metadata"]["name"]: one for one in listed}
        for claim in (await process.api.call("GET", path("PersistentVolumeClaim"))).body.get("items", ()):
            of_class, uid = classes.get(claim["spec"].get("storageClassName", "")), claim["metadata"]["uid"]
            is_put_off = self.later.get(uid, 0.0) > now().timestamp()
            if of_class and claim["status"]["phase"] == "Pending" and not is_put_off:
                await self._create(process, {**claim, "kind": "PersistentVolumeClaim"}, of_class)

    async def _create(self, process: Process, claim: Json, of_class: Json) -> None:
        meta, by = claim["metadata"], f"{DRIVER}_{PROVISIONER[1]}"
        kind, size = of_class["parameters"]["type"], str(claim["spec"]["resources"]["requests"]["storage"])
        if int(size.removesuffix("Gi")) < (least := LEAST_GIB.get(kind, 1)):
            self.failed, self.later[meta["uid"]] = self.failed + 1, now().timestamp() + 4
            said = f"Volume of {size}B is too small for volume type {kind}; minimum is {least}GiB."
            why = f"code = Internal desc = Could not create volume: api error InvalidParameterValue: {said}"
            message = f'failed to provision volume with StorageClass "{CLASS}": rpc error: {why}'
            await tell(process, claim, "Warning", "ProvisioningFailed", message, by=by)
            return
        reference = {key: meta[key] for key in ("namespace", "name", "uid")}
        named = {"type": kind, **({"iops": of_class["parameters"]["iops"]} if "iops" in of_class["parameters"] else {})}
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
            "csi": {"driver": DRIVER, "volumeHandle": f"vol-{meta['uid'][:13]}", "volumeAttributes": named},
        }
        note = {"pv.kubernetes.io/provisioned-by": DRIVER}
        body = {"metadata": {"name": f"pvc-{meta['uid']}", "annotations": note}, "spec": spec}
        if (await process.api.call("POST", path("PersistentVolume"), body)).ok:
            message = f"Successfully provisioned volume pvc-{meta['uid']}"
            await tell(process, claim, "Normal", "ProvisioningSucceeded", message, by=by)

    def given(self, container: Container) -> float:
        """Operations a second of the disk of a member."""
        namespace = container.pod["metadata"]["namespace"]
        for claim in claims(container.pod):
            bound = self.lab.world["PersistentVolumeClaim"].get((namespace, claim), {}).get("spec", {})
            found = self.lab.world["PersistentVolume"].get(("", bound.get("volumeName", "")), {})
            return GIVEN.get(found.get("spec", {}).get("csi", {}).get("volumeAttributes", {}).get("type", ""), 16000.0)
        return 16000.0

    def waits(self, container: Container, needed: float) -> float:
        """Seconds that each answer of a member takes beside the usual, whose disk is asked for so much a second."""
        is_short = container.seconds >= self.lab.lag and self.given(container) < needed
        return min(4.0, 1.6 + 0.25 * needed / self.given(container)) if is_short else 0.0


async def _set_up(lab: Lab, disks: _Disks, of_class: Json) -> None:
    """The driver and its class. Raises RefusedError, TimeoutError."""
    await lab.apply({"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"attachRequired": True}})
    await lab.apply(of_class)
    rights = (
        ("", "persistentvolumeclaims", "get,list,watch"),
        ("", "persistentvolumes", "*"),
        ("", "events", "create"),
        ("storage.k8s.io", "storageclasses", "get,list,watch"),
        ("coordination.k8s.io", "leases", "*"),
    )
    program = both(every(1.0, disks.provide), informer(path("StorageClass")), leading(*PROVISIONER))
    await lab.controller(*PROVISIONER, program, *rights, replicas=1, tag="v1.47.0")
    await rolled(lab, *PROVISIONER, "v1.47.0")


@family(
    "Disks of a class cost much, and the class is made anew under its name with a cheaper type; those that are there"
    " stay as they are, so nobody sees a difference. A team adds members to its store, as it has done before. Their"
    " disks are of the new type: they are slow, and all answers that need them, or so small that none is made.",
    joined=106,
)
async def under_the_same_name(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose bill had been looked at by somebody."""
    namespace, store, name, front = lab.rng.choice(
        (
            ("shop", "events-store", "event-api", "event-page"),
            ("payments", "journal-store", "journal-api", "journal-page"),
            ("media", "segments-store", "segment-api", "segment-page"),
            ("search", "vectors-store", "vector-api", "vector-page"),
        )
    )
    by, cheap, minor = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.choice(CHEAP), lab.rng.randrange(2, 40)
    disks, needed = _Disks(lab), lab.rng.uniform(4500, 7000)
    anew: Json = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS}}
    anew |= {"provisioner": DRIVER, "allowVolumeExpansion": True}
    await _set_up(lab, disks, {**anew, "parameters": DEAR})
    image = f"registry.corp.example/{namespace}/{store}"
    like = App(image, asked=lambda: 36.0, latency=lambda container: disks.waits(container, needed))
    lab.apps[image] = like
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "resources": {"requests": {"storage": "80Gi"}},
    }
    whole = objects.deployment(namespace, store, f"{image}:2.19.3", kind="StatefulSet", replicas=3, memory="2Gi")
    whole["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    whole["spec"] |= {"serviceName": store, "podManagementPolicy": "Parallel"}
    whole["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    await lab.apply(objects.service(namespace, store))
    await lab.apply(whole)
    await lab.until(lambda: len(backends(lab.world, namespace, store)) == 3)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", FETCH="200"))
    caller = App("", upstreams=((namespace, store),), asked=lambda: 18.0)
    await lab.app(namespace, name, like=caller, replicas=3, tag=f"6.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"6.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, store)
    told = {"namespace": PROVISIONER[0], "service": PROVISIONER[1], "request": "CreateVolume"}
    lab.measure("cloudprovider_aws_api_request_errors_total", lambda: disks.failed, "counter", **told)
    for one in (store, name):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_lacking(namespace, store, seconds=18)
    is_waiting = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", is_waiting, f"a pod of {namespace} has no node", 15, namespace=namespace)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 10))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(
            lab.rng.choice(("ci", "argocd", *TEAMS)), "StatefulSet", namespace, store, {"spec": {"replicas": 5}}
        )

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"6.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"FETCH": "150"}})
    await lab.pause(lab.rng.uniform(3, 8))
    why = "a class cannot be changed, so it is deleted to be made anew"
    await lab.also(why, by, "delete", "StorageClass", "", CLASS)
    await asyncio.sleep(lab.rng.uniform(0.3, 1.2))
    await lab.culprit(by, "create", "StorageClass", "", CLASS, {**anew, "parameters": cheap})
    lab.start(afterwards())
