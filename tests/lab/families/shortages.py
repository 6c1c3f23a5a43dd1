"""What runs short: addresses of a node, volumes of an account, the time of a processor."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.nodes import provide
from tests.lab.lab import Lab
from tests.lab.programs import both, every, getting, tell
from tests.lab.scenario import family


@family(
    "The agent of the network is told to hold fewer addresses on each node, as they are scarce: pods that run keep"
    " theirs, new ones are placed and get none.",
    joined=7,
)
async def address_pool(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("shop", "catalog"), ("payments", "ledger"), ("media", "thumbnails")))
    lab.reserve(namespace, name)

    async def hold(process: Process) -> None:
        """Each agent for its own node."""
        node = process.see().pod["spec"]["nodeName"]
        lab.outside.addresses[node] = int(process.config["MAX_ADDRESSES"])

    await lab.apply(objects.config_map("kube-system", "address-agent", MAX_ADDRESSES="100", WARM_ADDRESSES="2"))
    program = both(every(1, hold), every(5, getting(f"{path('Node')}?limit=10")))
    await lab.controller(
        "kube-system", "address-agent", program, ("", "nodes", "list"), kind="DaemonSet", config="address-agent"
    )
    lab.alert_stuck(namespace, name)
    yield
    by, few = lab.rng.choice(("bob", "flux")), lab.rng.choice(("3", "4"))
    body = {"data": {"MAX_ADDRESSES": few, "WARM_ADDRESSES": "0"}}
    await lab.culprit(by, "update", "ConfigMap", "kube-system", "address-agent", body)
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.roll("argocd", namespace, name, "1.0.1")


@family(
    "An account of the cloud has no volumes left, as another cluster of it took them: the hourly copy of a database,"
    " which needs one for a while, waits for ever.",
    culprit=False,
    joined=7,
)
async def volume_quota(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("payments", "ledger-copy"), ("search", "index-copy"), ("media", "photo-copy")))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, ends_after=2)
    left, kept = [True], 2

    async def provision(process: Process) -> None:
        if left[0]:
            await provide(process)
            return
        listed = await process.api.call("GET", path("PersistentVolumeClaim"))
        for claim in [one for one in listed.body.get("items", []) if one["status"]["phase"] == "Pending"]:
            await _complain(process, claim["metadata"])

    async def copy(process: Process) -> None:
        """A claim and a Job that mounts it; of those that are through, the newest are kept."""
        run = f"{name}-{int(now().timestamp())}"
        meta = {"name": run, "labels": {"copy": name}}
        wanted = {"requests": {"storage": "1Gi"}}
        claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": wanted}
        await process.api.call("POST", path("PersistentVolumeClaim", namespace), {"metadata": meta, "spec": claim})
        volume = {"name": "scratch", "persistentVolumeClaim": {"claimName": run}}
        template = objects.deployment(namespace, name, f"{image}:1.0.0", restartPolicy="Never", volumes=[volume])
        spec = {"template": template["spec"]["template"], "backoffLimit": 1}
        await process.api.call("POST", path("Job", namespace), {"metadata": meta, "spec": spec})
        listed = await process.api.call("GET", f"{path('Job', namespace)}?labelSelector=copy={name}")
        through = [one for one in listed.body.get("items", []) if one.get("status", {}).get("succeeded")]
        for old in [one["metadata"]["name"] for one in through][:-kept]:
            await process.api.call("DELETE", path("Job", namespace, old), {"propagationPolicy": "Background"})
            await process.api.call("DELETE", path("PersistentVolumeClaim", namespace, old))

    claims = ("", "persistentvolumeclaims,persistentvolumes,events", "*")
    await lab.controller("kube-system", "csi-provisioner", every(1, provision), claims, replicas=1)
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "standard"}, "provisioner": "disk.csi.example"})
    await lab.controller("platform", "copier", every(9, copy), claims, ("batch", "jobs", "*"), replicas=1)
    holds = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodPending", holds, f"a pod of {namespace} has had no node for a while", 6, namespace=namespace)
    yield
    # a copy that has its volume in a moment is no symptom of what comes now
    await lab.until(lambda: not pending(lab.world, namespace))
    left[0] = False


async def _complain(process: Process, claim: Json) -> None:
    """As a CSI provisioner whose cloud refuses."""
    about = {"kind": "PersistentVolumeClaim", "metadata": claim}
    refused = "VolumeLimitExceeded: the quota of 500 volumes of this account is used up"
    await tell(process, about, "Warning", "ProvisioningFailed", refused, by="disk.csi.example")


@family(
    "A neighbour on the same host takes the processor's time of one node: its kubelet still reports, and whatever runs"
    " there answers too late.",
    culprit=False,
    joined=7,
)
async def stolen_cpu(lab: Lab) -> AsyncIterator[None]:
    slow: set[str] = set()

    def check(container: Container) -> Problem | None:
        late = "probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        if container.pod["spec"].get("nodeName") not in slow:
            return None
        return Problem("killed" if "livenessProbe" in container.spec else "unready", late)

    probe: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "timeoutSeconds": 1}
    await lab.app("shop", "pricing", replicas=3, liveness=probe)
    for app in lab.apps.values():
        if not app.program:  # a controller has no deadline, it is only slower
            app.check = check
    places = (("shop", "frontend"), ("shop", "pricing"), ("payments", "checkout"), ("media", "uploads"))
    for place in places:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    slow.add(lab.rng.choice(pods(lab.world, *lab.rng.choice(places)))["spec"]["nodeName"])
