"""Nodes for a control plane: what kubelets tell the API server, without containers.

Not kwok, which would be one more module to build: what has to be told here is little (an image that crashes, one that
cannot be pulled, so many ready pods and no more until a test says so).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx2

from tests.cluster.control_plane import ControlPlane

ROUND_SECONDS = 0.2
LEASE_SECONDS = 10
"""Between two renewals, as a kubelet's: the controllers call a node lost after 50 s."""
CRASHES, MISSING = ":crashes", ":missing"
"""How images end whose containers end at once, and those that no registry has."""
MERGE = {"Content-Type": "application/merge-patch+json"}
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "500"}
PODS = "/api/v1/namespaces/{namespace}/pods/{name}"
Json = Mapping[str, Any]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Nodes:
    """Some nodes of one control plane, and the pods that are bound to them: they start, and a round later are ready."""

    def __init__(self, plane: ControlPlane, names: tuple[str, ...]) -> None:
        self._client = plane.client("kubelets")
        self.names = names
        self._allowed: dict[str, int] = {}
        self._told: dict[str, str] = {}  # what was told last of a pod, by its uid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelets")
        self.failure: BaseException | None = None

    def allow(self, image: str, count: int) -> None:
        """No more than ``count`` pods of an image become ready from now on: the others are starting."""
        self._allowed[image] = count

    def start(self) -> None:
        for name in self.names:
            self._register(name)
        self._renew()
        self._thread.start()

    def stop(self) -> None:
        """Raises what the kubelets failed with."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._client.close()
        if self.failure:
            raise self.failure

    def _run(self) -> None:
        try:
            rounds = 0
            while not self._over.wait(ROUND_SECONDS):
                rounds += 1
                if rounds % int(LEASE_SECONDS / ROUND_SECONDS) == 0:
                    self._renew()
                self._see_to_pods()
        except httpx2.TransportError as error:
            self.failure = error

    # -- nodes

    def _register(self, name: str) -> None:
        node = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}}
        made = self._client.post("/api/v1/nodes", json=node)
        assert made.status_code in (201, 409), made.text
        conditions = [
            {"type": kind, "status": status, "reason": "Kubelet", "lastTransitionTime": _now()}
            for kind, status in (("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"))
        ]
        status = {"capacity": ROOM, "allocatable": ROOM, "conditions": conditions}
        done = self._client.patch(f"/api/v1/nodes/{name}/status", json={"status": status}, headers=MERGE)
        assert done.is_success, done.text

    def _renew(self) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        for name in self.names:
            renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}
            done = self._client.patch(f"{leases}/{name}", json={"spec": spec}, headers=MERGE)
            if done.status_code == httpx2.codes.NOT_FOUND:
                self._client.post(leases, json={"metadata": {"name": name}, "spec": spec})

    # -- pods

    def _see_to_pods(self) -> None:
        answer = self._client.get("/api/v1/pods")
        if not answer.is_success:  # it is being restarted, as tests do
            return
        bound = [pod for pod in answer.json()["items"] if pod["spec"].get("nodeName") in self.names]
        ready = Counter(_image(pod) for pod in bound if self._told.get(pod["metadata"]["uid"]) == "ready")
        for pod in sorted(bound, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])):
            if "deletionTimestamp" in pod["metadata"]:
                self._end(pod)
            else:
                self._go_on(pod, ready)

    def _end(self, pod: Json) -> None:
        meta = pod["metadata"]
        at_once = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        self._client.request("DELETE", PODS.format(**meta), json=at_once)

    def _go_on(self, pod: Json, ready: Counter[str]) -> None:
        """Tell the next of a pod's states, if it may have one."""
        uid, image = pod["metadata"]["uid"], _image(pod)
        match self._told.get(uid):
            case None:
                self._tell(pod, "starting", _waiting("ContainerCreating"))
            case "starting" if image.endswith(MISSING):
                self._tell(pod, "missing", _waiting("ImagePullBackOff", f'Back-off pulling image "{image}"'))
            case "starting" if image.endswith(CRASHES):
                ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": _now()}}
                crash = {**_waiting("CrashLoopBackOff", "back-off 10s restarting failed container"), "lastState": ended}
                if self._tell(pod, "crashing", {**crash, "restartCount": 1}, phase="Running"):
                    self._warn(pod, "BackOff", "Back-off restarting failed container")
            case "starting" if ready[image] < self._allowed.get(image, len(self._told)):
                running = {"state": {"running": {"startedAt": _now()}}, "ready": True, "started": True}
                if self._tell(pod, "ready", running, phase="Running"):
                    ready[image] += 1

    def _tell(self, pod: Json, word: str, container: Json, *, phase: str = "Pending") -> bool:
        """Write a pod's status; whether it was taken."""
        is_ready = "True" if container.get("ready") else "False"
        conditions = [
            {"type": kind, "status": status, "lastTransitionTime": _now()}
            for kind, status in (
                *(("PodScheduled", "True"), ("Initialized", "True")),
                *(("ContainersReady", is_ready), ("Ready", is_ready)),
            )
        ]
        containers = [
            {"name": one["name"], "image": one["image"], "imageID": "", "ready": False, "restartCount": 0, **container}
            for one in pod["spec"]["containers"]
        ]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": containers, "startTime": _now()}
        path = f"{PODS.format(**pod['metadata'])}/status"
        done = self._client.patch(path, json={"status": status}, headers=MERGE)
        if done.is_success:
            self._told[pod["metadata"]["uid"]] = word
        return bool(done.is_success)

    def _warn(self, pod: Json, reason: str, message: str) -> None:
        meta, now = pod["metadata"], _now()
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": meta["namespace"], "name": meta["name"]}
        event = {
            "metadata": {"generateName": f"{meta['name']}."},
            "involvedObject": {**about, "uid": meta["uid"]},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "kubelet"},
        }
        made = self._client.post(f"/api/v1/namespaces/{meta['namespace']}/events", json=event)
        assert made.is_success or made.status_code == httpx2.codes.FORBIDDEN, made.text  # its namespace may be going


def _image(pod: Json) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


@contextmanager
def nodes(plane: ControlPlane, *names: str) -> Iterator[Nodes]:
    """Nodes for the length of the block, of a control plane that runs its controllers."""
    kubelets = Nodes(plane, names or ("node-1", "node-2"))
    try:
        kubelets.start()
        yield kubelets
    finally:
        kubelets.stop()
