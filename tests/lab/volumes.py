"""Volumes that pods claim by name: one that a single node may write is not mounted at a second one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tests.lab.api import Caller, Json, World, path
from tests.lab.manifests import uid_of
from tests.lab.programs import event

CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
"""What kubelets say of the drivers of their nodes; not among what a recording watches."""


def claims(pod: Json) -> dict[str, str]:
    """The PersistentVolumeClaims of its namespace that a pod mounts, each with the name that its volume has there."""
    listed = ((volume.get("persistentVolumeClaim"), volume["name"]) for volume in pod["spec"].get("volumes", ()))
    return {claim["claimName"]: name for claim, name in listed if claim}


def held_elsewhere(world: World, pod: Json) -> str:
    """A volume of a pod that is at another node, where a pod runs that mounts it; or ""."""
    namespace, node = pod["metadata"]["namespace"], pod["spec"].get("nodeName")
    wanted = {claim: name for claim, name in claims(pod).items() if _is_exclusive(world, namespace, claim)}
    if not wanted:
        return ""
    for (where, _), other in world["Pod"].items():
        runs = other.get("status", {}).get("phase") == "Running"
        if where == namespace and runs and other["spec"].get("nodeName") != node:
            for claim in wanted.keys() & claims(other).keys():
                return wanted[claim]
    return ""


def lacking_driver(drivers: Mapping[str, Callable[[str], bool]], pod: Json) -> str:
    """Why a pod's volume is not mounted whose driver has no plugin on its node, as a kubelet says it; or ""."""
    for volume in pod["spec"].get("volumes", ()):
        driver = volume.get("csi", {}).get("driver")
        if driver in drivers and not drivers[driver](pod["spec"]["nodeName"]):
            missing = f"driver name {driver} not found in the list of registered CSI drivers"
            asked = f"kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {missing}"
            return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {asked}'
    return ""


def _is_exclusive(world: World, namespace: str, claim: str) -> bool:
    """Whether a single node may have it at a time. A claim that is not there holds nobody up."""
    modes = world["PersistentVolumeClaim"].get((namespace, claim), {}).get("spec", {}).get("accessModes", ())
    return bool(modes) and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes)


async def attaching(caller: Caller, node: str, driver: str, most: int) -> None:
    """A node's kubelet says how many volumes of a driver its machine takes; the scheduler goes by it.

    Raises RefusedError.
    """
    told = {"name": driver, "nodeID": node, "topologyKeys": [], "allocatable": {"count": most}}
    await caller.must("POST", CSI_NODES, {"metadata": {"name": node}, "spec": {"drivers": [told]}})


async def refusing_attachments(world: World, caller: Caller) -> None:
    """As the control plane's controller of attachments, for ever: it tells once of each pod that a volume waits for.

    The laboratory's nodes do not let that controller attach; kubelets tell of the same by themselves.
    """
    told = set[str]()
    while True:
        await asyncio.sleep(1)
        for pod in list(world["Pod"].values()):
            if uid_of(pod) not in told and (message := twice_attached(world, pod)):
                told.add(uid_of(pod))
                about = {**pod, "kind": "Pod"}
                made = event(about, "Warning", "FailedAttachVolume", message, by="attachdetach-controller")
                await caller.call("POST", path("Event", pod["metadata"]["namespace"]), made)


def twice_attached(world: World, pod: Json) -> str:
    """What that controller says of a pod whose volume is at another node, where it is used; or ""."""
    if not pod["spec"].get("nodeName") or not (name := held_elsewhere(world, pod)):
        return ""
    namespace = pod["metadata"]["namespace"]
    [claim] = [one for one, volume in claims(pod).items() if volume == name]
    volume = world["PersistentVolumeClaim"][namespace, claim]["spec"].get("volumeName", "")
    users = sorted(
        other
        for (where, other), one in world["Pod"].items()
        if where == namespace and claim in claims(one) and one.get("status", {}).get("phase") == "Running"
    )
    return f'Multi-Attach error for volume "{volume}" Volume is already used by pod(s) {", ".join(users)}'
