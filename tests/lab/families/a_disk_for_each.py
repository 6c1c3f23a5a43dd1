"""A disk for each: environments that users ask for get a volume of their own, which something outside has to make."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import both, every, informer, leading, tell
from tests.lab.scenario import family

DRIVER, PROVISIONER, BALANCER = "disk.csi.example", ("kube-system", "csi-disk-controller"), ("kube-system", "cloud-lb")
LABEL = "workspaces.corp.example/user"
KEPT, EVERY_SECONDS, WAITS_SECONDS, LATE_SECONDS = 4, 5.0, 14.0, 10.0
"""How many environments there are at a time, how often one is asked for, how long it is waited for, and how long a
claim may wait before somebody is told."""
LEASE, EVENTS = ("coordination.k8s.io", "leases", "*"), ("", "events", "create")
HOMES = (
    ("notebooks", "notebook-hub", "notebook"),
    ("sandboxes", "sandbox-api", "sandbox"),
    ("labs", "lab-hub", "desk"),
)


def age(thing: Json) -> float:
    return (now() - datetime.fromisoformat(thing["metadata"]["creationTimestamp"])).total_seconds()


@dataclass
class _Hub:
    """Gives each user who comes an environment with a disk, and an address where ``is_public``; the oldest one goes."""

    home: str
    image: str
    of_class: str
    is_public: bool
    number: int
    made: int = 0
    failed: int = 0
    asked: dict[str, float] = field(default_factory=dict)
    there: list[str] = field(default_factory=list)

    async def open(self, process: Process) -> None:
        self.number += process.rng.randrange(1, 5)
        name = f"user-{self.number}"
        claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
        body = {"metadata": {"name": f"{name}-home", "labels": {LABEL: name}}}
        claim |= {"storageClassName": self.of_class}
        await process.api.call("POST", path("PersistentVolumeClaim", self.home), {**body, "spec": claim})
        volume = {"name": "home", "persistentVolumeClaim": {"claimName": f"{name}-home"}}
        image = f"{self.image}:2026.4"
        made = objects.deployment(self.home, "env", image, volumes=[volume], terminationGracePeriodSeconds=3)
        body = {"metadata": {"name": name, "labels": {LABEL: name}}, "spec": made["spec"]["template"]["spec"]}
        await process.api.call("POST", path("Pod", self.home), body)
        if self.is_public:
            ports = [{"port": 443, "targetPort": 8080}]
            spec: Json = {"type": "LoadBalancer", "selector": {LABEL: name}, "ports": ports}
            await process.api.call("POST", path("Service", self.home), {"metadata": {"name": name}, "spec": spec})
        self.asked[name] = now().timestamp()
        self.there.append(name)
        while len(self.there) > KEPT:
            await self._close(process, self.there.pop(0))

    async def _close(self, process: Process, name: str) -> None:
        await process.api.call("DELETE", path("Pod", self.home, name))
        await process.api.call("DELETE", path("PersistentVolumeClaim", self.home, f"{name}-home"))
        if self.is_public:
            await process.api.call("DELETE", path("Service", self.home, name))

    async def look(self, process: Process) -> None:
        for name, since in list(self.asked.items()):
            is_there = is_ready((await process.api.call("GET", path("Pod", self.home, name))).body)
            if self.is_public:
                service = (await process.api.call("GET", path("Service", self.home, name))).body
                is_there = is_there and bool(service.get("status", {}).get("loadBalancer", {}).get("ingress"))
            is_late = now().timestamp() - since > WAITS_SECONDS
            if (is_there or is_late) and self.asked.pop(name, None) is not None:
                self.made += is_there
                self.failed += not is_there


@dataclass
class _Cloud:
    """What makes volumes, and what makes addresses: each tries again what was refused, after a back-off."""

    refusal: Callable[[Process, Json], str] = lambda process, of_class: ""
    """Why no volume is made of a class; "" where one is."""
    unanswered: str = ""
    """What the cloud says to each call, while it is not well."""
    errors: dict[str, int] = field(default_factory=lambda: {"CreateVolume": 0, "CreateLoadBalancer": 0})
    later: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By uid: when it is tried again, and how long it was waited for."""

    def _is_put_off(self, thing: Json) -> bool:
        return self.later.get(thing["metadata"]["uid"], (0.0, 0.0))[0] > now().timestamp()

    def _put_off(self, thing: Json, call: str) -> None:
        _, wait = self.later.get(thing["metadata"]["uid"], (0.0, 1.0))
        self.later[thing["metadata"]["uid"]] = now().timestamp() + wait, min(2 * wait, 8.0)
        self.errors[call] += 1

    async def provide(self, process: Process) -> None:
        listed = (await process.api.call("GET", path("StorageClass"))).body.get("items", ())
        classes = {one["metadata"]["name"]: one for one in listed}
        claims = (await process.api.call("GET", path("PersistentVolumeClaim"))).body.get("items", ())
        for claim in claims:
            of_class = classes.get(claim["spec"].get("storageClassName", ""))
            if claim["status"]["phase"] == "Pending" and of_class and not self._is_put_off(claim):
                await self._create(process, {**claim, "kind": "PersistentVolumeClaim"}, of_class)
        volumes = (await process.api.call("GET", path("PersistentVolume"))).body.get("items", ())
        for one in volumes:
            if one["status"].get("phase") == "Released" and not self.unanswered:
                await process.api.call("DELETE", path("PersistentVolume", None, one["metadata"]["name"]))

    async def _create(self, process: Process, claim: Json, of_class: Json) -> None:
        meta, name = claim["metadata"], of_class["metadata"]["name"]
        why = self.refusal(process, of_class)
        if not why and self.unanswered:
            call = f"operation error EC2: CreateVolume, https response error StatusCode: 503, {self.unanswered}"
            why = f'code = Internal desc = Could not create volume "pvc-{meta["uid"]}": could not create volume: {call}'
        if why:
            self._put_off(claim, "CreateVolume")
            message = f'failed to provision volume with StorageClass "{name}": rpc error: {why}'
            await tell(process, claim, "Warning", "ProvisioningFailed", message, by=f"{DRIVER}_{PROVISIONER[1]}")
            return
        reference = {key: meta[key] for key in ("namespace", "name", "uid")}
        spec = {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
            "csi": {"driver": DRIVER, "volumeHandle": f"vol-{meta['uid'][:13]}"},
        }
        note = {"pv.kubernetes.io/provisioned-by": DRIVER}
        body = {"metadata": {"name": f"pvc-{meta['uid']}", "annotations": note}, "spec": spec}
        if (await process.api.call("POST", path("PersistentVolume"), body)).ok:
            message = f"Successfully provisioned volume pvc-{meta['uid']}"
            await tell(process, claim, "Normal", "ProvisioningSucceeded", message, by=f"{DRIVER}_{PROVISIONER[1]}")

    async def balance(self, process: Process) -> None:
        for one in (await process.api.call("GET", path("Service"))).body.get("items", ()):
            is_wanted = one["spec"].get("type") == "LoadBalancer" and "deletionTimestamp" not in one["metadata"]
            if not is_wanted or one["status"].get("loadBalancer") or self._is_put_off(one):
                continue
            service, by = {**one, "kind": "Service"}, "service-controller"
            await tell(process, service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer", by=by)
            if self.unanswered:
                self._put_off(one, "CreateLoadBalancer")
                message = f"Error syncing load balancer: failed to ensure load balancer: {self.unanswered}"
                await tell(process, service, "Warning", "SyncLoadBalancerFailed", message, by=by)
                continue
            home, name = one["metadata"]["namespace"], one["metadata"]["name"]
            status = {"loadBalancer": {"ingress": [{"ip": f"198.51.100.{process.rng.randrange(10, 240)}"}]}}
            await process.api.call("PATCH", f"{path('Service', home, name)}/status", {"status": status})
            await tell(process, service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer", by=by)


async def _set_up(lab: Lab, cloud: _Cloud, hub: _Hub, name: str, *, tag: str, parameters: Json) -> None:
    """With what is watched of it. Raises RefusedError, TimeoutError."""
    home = hub.home
    await lab.namespace(home)
    lab.apps[hub.image] = App(hub.image, serves=False)
    spec = {"attachRequired": True, "podInfoOnMount": False}
    await lab.apply({"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": spec})
    meta = {"name": hub.of_class}
    await lab.apply({"kind": "StorageClass", "metadata": meta, "provisioner": DRIVER, "parameters": parameters})
    rights = ("", "persistentvolumeclaims", "get,list,watch"), ("", "persistentvolumes", "*"), EVENTS, LEASE
    classes = ("storage.k8s.io", "storageclasses", "get,list,watch")
    program = both(every(1.0, cloud.provide), informer(path("StorageClass")), leading(*PROVISIONER))
    await lab.controller(*PROVISIONER, program, *rights, classes, replicas=1, tag=tag)
    await rolled(lab, *PROVISIONER, tag)
    if hub.is_public:
        services = ("", "services,services/status", "get,list,watch,patch")
        await lab.controller(*BALANCER, every(1.5, cloud.balance), services, EVENTS, replicas=1, tag="v1.34.0")
        await rolled(lab, *BALANCER, "v1.34.0")
    mine = ("", "pods,services,persistentvolumeclaims", "*")
    await lab.controller(home, name, both(every(EVERY_SECONDS, hub.open), every(1.0, hub.look)), mine, replicas=1)
    await rolled(lab, home, name, "1.0.0")
    told: Json = {"namespace": home, "service": name}
    lab.measure("environments_total", lambda: hub.made, "counter", **told, result="success")
    lab.measure("environments_total", lambda: hub.failed, "counter", **told, result="failure")
    asked = {"namespace": PROVISIONER[0], "service": PROVISIONER[1], "request": "CreateVolume"}
    lab.measure("cloud_api_errors_total", lambda: cloud.errors["CreateVolume"], "counter", **asked)
    if hub.is_public:
        asked = {"namespace": BALANCER[0], "service": BALANCER[1], "request": "CreateLoadBalancer"}
        lab.measure("cloud_api_errors_total", lambda: cloud.errors["CreateLoadBalancer"], "counter", **asked)

    def is_late() -> bool:
        claims = (one for (where, _), one in lab.world["PersistentVolumeClaim"].items() if where == home)
        return any(one.get("status", {}).get("phase") == "Pending" and age(one) > LATE_SECONDS for one in claims)

    summary = "environments that users ask for are not there in time"
    lab.alert("EnvironmentsFailing", lab.rate(lambda: hub.failed, 0.08, seconds=16), summary, 4, **told)
    summary = f"a PersistentVolumeClaim of {home} has been pending for a while"
    lab.alert("KubePersistentVolumeClaimPending", is_late, summary, 5, namespace=home)
    summary = f"pods of {home} have had no node for a while"
    lab.alert("KubePodNotScheduled", lambda: pending(lab.world, home), summary, 16, namespace=home)
    await lab.until(lambda: hub.made > KEPT and lab.is_well())


@family(
    "No culprit. The cloud's API throttles, or fails for all who call it: what makes disks and addresses is refused,"
    " and tries again. What there is goes on. Whoever asks for an environment of their own from now on gets none.",
    culprit=False,
    joined=99,
)
async def nothing_from_the_cloud(lab: Lab) -> AsyncIterator[None]:
    """As the clouds' own pages of their status tell, some time later."""
    home, name, image = lab.rng.choice(HOMES)
    cloud, minor = _Cloud(), lab.rng.randrange(2, 30)
    says = lab.rng.choice(
        (
            "api error RequestLimitExceeded: Request limit exceeded.",
            "api error InternalError: An internal error has occurred",
            "api error Unavailable: The service is unavailable. Please try again shortly.",
        )
    )
    hub = _Hub(home, f"registry.corp.example/{home}/{image}", "standard", True, lab.rng.randrange(200, 4000))
    await _set_up(lab, cloud, hub, name, tag=f"v1.{minor}.0", parameters={"type": "gp3"})
    await lab.apply(objects.config_map(home, f"{name}-quota", USERS="400", DISK="5Gi"))
    what = lab.rng.choice(("hub", "driver", "quota"))
    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "750"}})
    await lab.pause(lab.rng.uniform(4, 9))
    if what == "hub":
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, "1.0.1")
    elif what == "driver":
        await lab.roll(lab.rng.choice(("flux", "argocd")), *PROVISIONER, f"v1.{minor}.1")
    else:
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, f"{name}-quota", {"data": {"USERS": "500"}})
    await lab.pause(lab.rng.uniform(8, 14))
    cloud.unanswered = says
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "media", "thumbnails", f"1.{minor + 20}.0")


@family(
    "What disks are made by changes: the driver is upgraded, and does not take a parameter of its class any more; the"
    " class is made anew with one that the driver does not know yet; or it is replaced by one of another name, and what"
    " claims disks still names the old one. Disks that are there go on. No further one is made.",
    joined=99,
)
async def no_new_disks(lab: Lab) -> AsyncIterator[None]:
    """As many tell of ProvisioningFailed after the upgrade of a driver, or the move to another class."""
    home, name, image = lab.rng.choice(HOMES)
    what, by = lab.rng.choice(("driver", "parameters", "name")), lab.rng.choice(("flux", "argocd", "ci", *TEAMS[:2]))
    minor, of_class = lab.rng.randrange(12, 40), lab.rng.choice(("standard", "fast-disks", "users"))
    old, new = f"v1.{minor}.0", "v2.0.0"
    known = {old: {"type", "fsType"}, new: {"skuName", "fsType"}}

    def refuses(process: Process, one: Json) -> str:
        key = next((key for key in one.get("parameters", {}) if key not in known[process.tag]), "")
        return f"code = InvalidArgument desc = Invalid parameter key {key} for CreateVolume" if key else ""

    cloud = _Cloud(refusal=refuses)
    hub = _Hub(home, f"registry.corp.example/{home}/{image}", of_class, False, lab.rng.randrange(200, 4000))
    await _set_up(lab, cloud, hub, name, tag=old, parameters={"type": "ssd", "fsType": "ext4"})
    further = {"skuName": "ssd-v2"} if what == "parameters" else {"type": "ssd", "encrypted": "true"}
    anew = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": DRIVER}
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, "1.0.1")
    await lab.pause(lab.rng.uniform(8, 13))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "payments", "ledger", {"data": {"TIMEOUT_MS": "900"}})
    await lab.pause(lab.rng.uniform(3, 7))
    if what == "driver":
        await lab.roll(by, *PROVISIONER, new, culprit=True)
    elif what == "parameters":
        body = {**anew, "metadata": {"name": of_class}, "parameters": further}
        why = "a class cannot be changed, so it is deleted to be made anew"
        await lab.also(why, by, "delete", "StorageClass", "", of_class)
        await lab.culprit(by, "create", "StorageClass", "", of_class, body)
    else:
        body = {**anew, "metadata": {"name": f"{of_class}-v2"}, "parameters": {"type": "ssd", "fsType": "xfs"}}
        why = "the same hand: it takes the place of the other"
        await lab.also(why, by, "create", "StorageClass", "", f"{of_class}-v2", body)
        await lab.pause(lab.rng.uniform(1, 3))
        await lab.culprit(by, "delete", "StorageClass", "", of_class)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "shop", "cart", {"data": {"LOG_LEVEL": "warn"}})
