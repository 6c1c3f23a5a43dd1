"""What all clusters' programs have together: an account in a cloud, which may be asked only so often."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every, lagging, tell
from tests.lab.scenario import family

A_SECOND, SAVED_UP = 2.5, 12.0
"""Calls that the cloud takes of one account, and how many it takes at once after a lull."""
OLD_TAG, NEW_TAG = "2.8.1", "2.9.0"
"""Of what knows whose all things are: the new version asks for the tags of each."""
THINGS, EACH_SECONDS = 400, 0.05
"""Volumes, machines and copies of the account, and for how long its client waits between two calls."""
WELL, FAULTY = "5.1.0", "5.2.0"
"""Of the provisioner: a version that was put back weeks ago gave volumes a parameter that the cloud does not know."""
RUN_EVERY, WORKS_SECONDS, LATE_SECONDS = 3.2, 4.0, 12.0
LIMITED = "api error RequestLimitExceeded: Request limit exceeded."
UNKNOWN = "api error InvalidParameterValue: The parameter iops is not supported for gp2 volumes."
CREATED = "operation error EC2: CreateVolume, https response error StatusCode: "
LABEL = "runs.corp.example/run"


@dataclass
class _Account:
    """As a bucket of calls that fills steadily: what is refused costs nothing."""

    left: float = SAVED_UP
    at: float = field(default_factory=lambda: now().timestamp())
    counts: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """Calls of each service, and whether they were taken."""

    def takes(self, service: str) -> bool:
        at = now().timestamp()
        self.left, self.at = min(SAVED_UP, self.left + A_SECOND * (at - self.at)), at
        taken = self.left >= 1
        self.left -= taken
        self.counts[service, taken] += 1
        return taken


@dataclass
class _Cloud:
    """Who asks the account: for volumes, for what is behind load balancers, and for whose all of it is."""

    lab: Lab
    account: _Account
    made: set[str] = field(default_factory=set)
    """Volumes that were made and not yet seen to be there, by the claim's uid."""

    async def provide(self, process: Process) -> None:
        """A volume for each claim, in two calls; and none any more for those that nobody claims."""
        claims = await process.api.call("GET", path("PersistentVolumeClaim"))
        for claim in claims.body.get("items", []):
            if claim["status"]["phase"] == "Pending":
                await self._create(process, {**claim, "kind": "PersistentVolumeClaim"})
        volumes = await process.api.call("GET", path("PersistentVolume"))
        for one in volumes.body.get("items", []):
            if one["status"].get("phase") == "Released" and self.account.takes("csi-provisioner"):
                await process.api.call("DELETE", path("PersistentVolume", None, one["metadata"]["name"]))

    async def _create(self, process: Process, claim: Json) -> None:
        meta = claim["metadata"]
        said = UNKNOWN if process.tag == FAULTY else ""
        if not said and meta["uid"] not in self.made:
            said = "" if self.account.takes("csi-provisioner") else LIMITED
            self.made |= set() if said else {meta["uid"]}
        if not said and not self.account.takes("csi-provisioner"):
            said = LIMITED
        if said:
            status = 400 if said == UNKNOWN else 503
            message = f'failed to provision volume with StorageClass "standard": rpc error: {CREATED}{status}, {said}'
            await tell(process, claim, "Warning", "ProvisioningFailed", message, by="disk.csi.example")
            return
        named = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **named},
            "csi": {"driver": "disk.csi.example", "volumeHandle": meta["uid"]},
        }
        await process.api.call(
            "POST", path("PersistentVolume"), {"metadata": {"name": f"pvc-{meta['uid']}"}, "spec": spec}
        )

    async def balance(self, process: Process) -> None:
        """What is behind a load balancer is looked at in one call; where that is refused it is tried again soon."""
        where = path("Service", "shop", "frontend")
        for _ in range(4):
            found = await process.api.call("GET", where)
            if self.account.takes("balancer-controller") or not found.ok:
                return
            about, message = {**found.body, "kind": "Service"}, f"DescribeTargetHealth: {LIMITED}"
            await tell(process, about, "Warning", "FailedDeployModel", message, by="service")
            await asyncio.sleep(0.5)

    async def tag(self, process: Process) -> None:
        """Whose each thing is, to say what it costs: of a call that is refused and tried again nothing is said."""
        await process.api.call("GET", path("PersistentVolume"))
        self.account.takes("cost-allocator")
        if process.tag == NEW_TAG:
            await lagging(process)
            for _ in range(THINGS):
                self.account.takes("cost-allocator")
                await asyncio.sleep(EACH_SECONDS)


@dataclass
class _Runs:
    """Each has a disk of its own, and is cleared away with it a while after it has come up."""

    namespace: str
    image: str
    number: int = 0

    async def start(self, process: Process) -> None:
        self.number += 1
        name, wanted = f"run-{self.number:03}", {"requests": {"storage": "1Gi"}}
        claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": wanted}
        claims, pods = path("PersistentVolumeClaim", self.namespace), path("Pod", self.namespace)
        await process.api.call("POST", claims, {"metadata": {"name": name}, "spec": claim})
        volume = {"name": "work", "persistentVolumeClaim": {"claimName": name}}
        made = objects.deployment(self.namespace, "run", f"{self.image}:1.4.0", volumes=[volume])
        body = {"metadata": {"name": name, "labels": {LABEL: "true"}}, "spec": made["spec"]["template"]["spec"]}
        await process.api.call("POST", pods, body)
        listed = await process.api.call("GET", f"{pods}?labelSelector={LABEL}")
        for pod in listed.body.get("items", []):
            if is_ready(pod) and _age(pod) > WORKS_SECONDS:
                await process.api.call("DELETE", f"{pods}/{pod['metadata']['name']}")
                await process.api.call("DELETE", f"{claims}/{pod['metadata']['name']}")


def _age(thing: Json) -> float:
    return (now() - datetime.fromisoformat(thing["metadata"]["creationTimestamp"])).total_seconds()


@family(
    "A new version of what says what each team's things cost asks the cloud for the tags of each, one by one, in place"
    " of all in one call. The account may be asked only so often, so whoever makes volumes is refused, as is what keeps"
    " load balancers: both try again, tell of each refusal, and are louder.",
    joined=60,
)
async def shared_account(lab: Lab) -> AsyncIterator[None]:
    """As many tell of RequestLimitExceeded, where the limit is the account's and not of whoever asks too often."""
    namespace = lab.rng.choice(("builds", "renderings", "trainings"))
    by, before_by = lab.rng.choice(("flux", "argocd", "alice")), lab.rng.choice(("ci", "bob"))
    account, runs = _Account(), _Runs(namespace, f"registry.corp.example/{namespace}/run")
    cloud = _Cloud(lab, account)
    lab.apps[runs.image] = App(runs.image, serves=False)
    await lab.namespace(namespace)
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "standard"}, "provisioner": "disk.csi.example"})
    tells = ("", "events", "create")
    rules = (("", "persistentvolumeclaims", "get,list,watch"), ("", "persistentvolumes", "*"))
    provider = every(1, cloud.provide)
    await lab.controller("kube-system", "csi-provisioner", provider, *rules, tells, replicas=1, tag=WELL)
    rule, balancer = ("", "services", "get,list,watch"), every(3, cloud.balance)
    await lab.controller("kube-system", "balancer-controller", balancer, rule, tells, replicas=1, tag="2.7.2")
    rule = ("", "persistentvolumes", "list")
    await lab.controller("platform", "cost-allocator", every(5, cloud.tag), rule, replicas=1, tag=OLD_TAG)
    rule = ("", "pods,persistentvolumeclaims", "*")
    await lab.controller(namespace, "starter", every(RUN_EVERY, runs.start), rule, replicas=1, tag="0.12.0")
    await rolled(lab, namespace, "starter", "0.12.0")
    lab.reserve("shop", "frontend")
    for service in ("csi-provisioner", "balancer-controller"):
        told = {"namespace": "kube-system", "service": service}
        for name, which in (("requests", (True, False)), ("throttled_requests", (False,))):
            lab.measure(f"cloud_api_{name}_total", _summed(account, service, which), "counter", **told)

    def is_late() -> bool:
        claims = lab.world["PersistentVolumeClaim"].values()
        waiting = (one for one in claims if one.get("status", {}).get("phase") == "Pending")
        return any(_age(one) > LATE_SECONDS for one in waiting if one["metadata"]["namespace"] == namespace)

    lab.alert("KubePersistentVolumeClaimPending", is_late, f"a claim of {namespace} waits", 4, namespace=namespace)
    await lab.until(lambda: runs.number > 2)
    await lab.until(lab.is_well)
    async with before(lab, days=21) as then:
        await lab.pause(2)
        answer = await lab.roll(before_by, "kube-system", "csi-provisioner", FAULTY)
        await then.fires()
        await lab.roll(before_by, "kube-system", "csi-provisioner", WELL)
        await then.is_well()
        then.judge(answer, "it")
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    await lab.roll(by, "platform", "cost-allocator", NEW_TAG, culprit=True)


def _summed(account: _Account, service: str, which: tuple[bool, ...]) -> Callable[[], int]:
    return lambda: sum(account.counts[service, taken] for taken in which)
