"""What somebody below an app needs: a right that seemed unused, a driver on each node, room for one pod more."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

STALE_SECONDS, WRITTEN_EVERY = 12.0, 3.0
"""How old what an app goes by may be, and how often it is written."""


@family(
    "Somebody goes through who may what and removes a binding whose name says nothing and in which nobody has a share"
    " any more, as it seems. A controller has it to write what an app goes by: it is forbidden to, and what is there"
    " grows too old.",
    joined=74,
)
async def looked_unused(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a clean-up of rights."""
    namespace, name, front, writer, key, kept = lab.rng.choice(
        (
            ("payments", "fx-desk", "transfer-page", "rate-feeder", "rates.json", "fx-rates"),
            ("shop", "price-engine", "basket-page", "price-feeder", "prices.json", "daily-prices"),
            ("media", "ad-slots", "player-page", "slot-feeder", "slots.json", "slot-plan"),
        )
    )
    by, share = lab.rng.choice(("alice", "bob", "carol")), lab.rng.uniform(0.4, 0.8)
    binding = lab.rng.choice(("tmp-migration", "poc-access", "old-sync", "legacy-edit"))

    def stale(container: Container) -> float:
        """What it has is older than it takes; only some requests need it."""
        written = float(container.config.get("written", "0"))
        return share if now().timestamp() - written > STALE_SECONDS + lab.lag else 0.0

    async def write(process: Process) -> None:
        data = {key: f"{process.rng.randrange(10**6)}", "written": f"{now().timestamp():.0f}"}
        await process.api.call("PATCH", path("ConfigMap", namespace, kept), {"data": data})

    data = {key: "1", "written": f"{now().timestamp():.0f}"}
    await lab.apply(objects.config_map(namespace, kept, **data))
    await lab.apply(objects.cluster_role("config-editor", ("", "configmaps", "get,list,watch,patch")))
    await lab.apply(objects.binding(binding, "config-editor", "platform", writer, within=namespace))
    may = ("", "namespaces", "get,list")
    await lab.controller("platform", writer, every(WRITTEN_EVERY, write), may, replicas=1, tag="1.4.0")
    like = App("", failing=stale, fails_with=lambda _: "503", asked=lambda: 26.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="3.2.0", config=kept)
    await rolled(lab, namespace, name, "3.2.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="5.8.2")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "5.8.3")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "delete", "RoleBinding", namespace, binding)
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.roll("argocd", namespace, name, "3.2.1")


@dataclass
class _Scaler:
    """An operator that keeps as many pods of an app as it takes for what comes; and what it is like where they lack."""

    lab: Lab
    namespace: str
    name: str
    rate: float
    most: int
    each: float = 20.0
    """Requests a second for which it counts one pod; a pod stands half as many again."""
    told: set[str] = field(default_factory=set)

    async def scale(self, process: Process) -> None:
        """As its own account."""
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        there = await process.api.call("GET", where)
        wanted = min(self.most, math.ceil(self.rate / self.each))
        if not there.ok or there.body["spec"].get("replicas") == wanted:
            return
        answer = await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})
        about = self.lab.world["Deployment"][self.namespace, self.name] | {"kind": "Deployment"}
        kind, reason = ("Normal", "SuccessfulRescale") if answer.ok else ("Warning", "FailedRescale")
        message = f"New size: {wanted}" if answer.ok else f"New size: {wanted}; error: {answer.body.get('message')}"
        if message not in self.told:
            self.told.add(message)
            await tell(process, about, kind, reason, message, by="queue-scaler")

    def lacking(self, _: Container | None = None) -> float:
        """The share of what comes for which there is nobody."""
        stands = 1.5 * self.each * max(1, len(backends(self.lab.world, self.namespace, self.name)))
        return max(0.0, 1 - stands / self.rate)

    async def grow(self, to: float, step: float) -> None:
        """More comes from second to second."""
        while self.rate < to:
            await asyncio.sleep(1)
            self.rate += step * self.lab.rng.uniform(0.6, 1.4)

    def app(self) -> App:
        """The one that is scaled."""
        return App("", asked=lambda: self.rate, failing=self.lacking, fails_with=lambda _: "503")


SCALER = ("platform", "queue-scaler")
READS, SCALES, TELLS = (
    ("apps", "deployments", "get,list,watch"),
    ("apps", "deployments/scale"),
    ("", "events", "create"),
)


@family(
    "The role of an operator is cut down to what it is thought to need. Among it is no longer that it may set how many"
    " pods there are of what it scales: when more comes, as on each day, there are as many as in the night.",
    joined=74,
)
async def least_rights(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a role from which stars were taken, and of a subresource that is a resource of its own."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "order-intake", "order-page"),
            ("payments", "card-checks", "card-page"),
            ("search", "spell-check", "search-page"),
        )
    )
    by, first = lab.rng.choice(("alice", "carol", "flux")), lab.rng.uniform(44, 58)
    scaler = _Scaler(lab, namespace, name, first, most=12)
    await lab.app(namespace, name, like=scaler.app(), replicas=3, tag="2.9.0")
    await rolled(lab, namespace, name, "2.9.0")
    may = (READS, (*SCALES, "get,patch,update"), TELLS)
    await lab.controller(*SCALER, every(2, scaler.scale), *may, replicas=1, tag="2.16.1")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.4.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "4.4.1")
    await lab.pause(lab.rng.uniform(3, 6))
    rules = objects.cluster_role("", READS, (SCALES[0], "deployments", "patch,update"), (*SCALES, "get"), TELLS)[
        "rules"
    ]
    await lab.culprit(by, "update", "ClusterRole", "", SCALER[1], {"rules": rules})
    lab.start(scaler.grow(lab.rng.uniform(170, 200), 5))
    await lab.pause(lab.rng.uniform(3, 5))
    await lab.roll("ci", namespace, name, "2.9.1")


@family(
    "No culprit. A campaign brings more and more customers. What scales the app wants more pods than the cluster has"
    " room for, which is as large as it may become: the last of them stay pending, and too few answer.",
    culprit=False,
    joined=74,
)
async def largest_size(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a group of nodes at its most on the day of all days."""
    namespace, name, front, home, large = lab.rng.choice(
        (
            ("shop", "ticket-desk", "ticket-page", "media", "renderer"),
            ("shop", "voucher-desk", "voucher-page", "search", "embeddings"),
            ("payments", "instalments", "instalment-page", "media", "encoder"),
        )
    )
    scaler = _Scaler(lab, namespace, name, lab.rng.uniform(62, 78), most=20)
    room = {"requests": {"cpu": "4500m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    await lab.app(home, large, like=App("", serves=False), replicas=lab.rng.choice((10, 11)), tag="1.0.0")
    await lab.app(namespace, name, like=scaler.app(), replicas=4, tag="6.1.0")
    await lab.roll("admin", home, large, "1.0.1", resources=room)
    await lab.roll("admin", namespace, name, "6.1.1", resources=room)
    await rolled(lab, home, large, "1.0.1")
    await rolled(lab, namespace, name, "6.1.1")
    may = (READS, (*SCALES, "get,patch,update"), TELLS)
    await lab.controller(*SCALER, every(2, scaler.scale), *may, replicas=1, tag="2.16.1")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.0.2")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert(
        "KubePodNotScheduled",
        lambda: pending(lab.world, namespace),
        f"pods of {namespace} are pending",
        8,
        namespace=namespace,
    )
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    lab.start(scaler.grow(lab.rng.uniform(340, 400), 9))
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.roll("ci", namespace, front, "4.0.3")
    await lab.pause(lab.rng.uniform(3, 6))
    note = {"data": {"TIMEOUT_MS": str(lab.rng.randrange(500, 1500))}}
    await lab.edit("flux", "ConfigMap", "search", "indexer", note)


DRIVER, AGENT = "blobs.csi.corp.example", ("kube-system", "csi-blobs-node")


@family(
    "The driver of a kind of volumes is upgraded on all nodes. Its new version does not run on the kernel that some of"
    " them still have: there, pods that have such a volume are not created.",
    joined=74,
)
async def driver_half_through(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a driver's DaemonSet that was left half rolled."""
    namespace, name, front = lab.rng.choice(
        (
            ("media", "photo-albums", "album-page"),
            ("shop", "catalogue-files", "catalogue-page"),
            ("payments", "statements", "statement-page"),
        )
    )
    by, minor = lab.rng.choice(("flux", "argocd", "carol")), lab.rng.randrange(7, 20)
    old, new = f"v1.{minor}.3", f"v1.{minor + 1}.0"
    behind = set(lab.rng.sample(NODES, 3))

    def crashes(container: Container) -> Problem | None:
        if container.tag == new and container.pod["spec"].get("nodeName") in behind:
            return Problem("crash", "fsopen: function not implemented: kernel 5.2 or later is required", at_once=True)
        return None

    def has_driver(node: str) -> bool:
        """Its plugin runs there, and has said so to the kubelet."""
        image = f"registry.corp.example/{'/'.join(AGENT)}"
        return any(
            one.container.pod["spec"].get("nodeName") == node and one.problem is None and one.container.seconds > 1
            for one in lab.kubelets.running()
            if one.app.image == image
        )

    for node, number in zip(NODES, itertools.count(3)):
        await lab.kubelets.run_kernel(node, f"4.18.0-{number}05.el8" if node in behind else f"5.15.0-{number}.generic")
    lab.outside.drivers[DRIVER] = has_driver
    await lab.app(*AGENT, kind="DaemonSet", like=App("", check=crashes, serves=False), tag=old)
    await rolled(lab, *AGENT, old)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}
    await lab.edit("admin", "DaemonSet", *AGENT, {"spec": {"updateStrategy": rolling}})
    volume = {"name": "files", "csi": {"driver": DRIVER, "volumeAttributes": {"container": name}}}
    await lab.app(namespace, name, replicas=6, tag="3.0.0", volumes=[volume])
    await rolled(lab, namespace, name, "3.0.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.19.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    lab.alert_stuck(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "1.19.1")
    await lab.pause(lab.rng.uniform(3, 6))
    there = lab.world["DaemonSet"][AGENT]["spec"]["template"]["spec"]["containers"][0]
    one = {**there, "image": f"{str(there['image']).rsplit(':', 1)[0]}:{new}"}
    body = {"spec": {"template": {"spec": {"containers": [one]}}}}
    await lab.culprit(by, "update", "DaemonSet", *AGENT, body)
    await lab.pause(lab.rng.uniform(9, 13))
    await lab.roll("ci", namespace, name, "3.1.0")
