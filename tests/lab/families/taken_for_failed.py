"""What one controller takes for a mistake of somebody else: a release that is slow, a node that is cordoned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.network import backends
from tests.lab.programs import both, changes, every, tell
from tests.lab.scenario import family

RELEASE, HOME = "helm.toolkit.fluxcd.io", "flux-system"
CHARTED = ("Service", "Deployment", "ConfigMap")
"""What a chart makes, all of it by the name of its release."""
PATIENT, BRISK = "60m", "10m"
STARTS = 9.0
MAINTENANCE = "nodemaintenance.medik8s.io"
OWN, ALL_CORDONED = "0.8.3", "0.9.0"
"""What lets go of cordoned nodes: of those that it has cordoned itself, or of all that are ready."""
CORDONED_BY = "remediation.corp.example/cordoned-by"


@dataclass
class _Helm:
    """What upgrades releases as their objects say, waits for each for its time, and does as is said where one fails."""

    kind: Kind
    target: str
    upgrades: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    """Version and begin of what is under way, by release."""
    ended: dict[str, str] = field(default_factory=dict)
    """The last version of each that was installed or given up."""

    async def reconcile(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path(HOME))
        for one in listed.body.get("items", []):
            name, wanted = one["metadata"]["name"], one["spec"]["chart"]["spec"]["version"]
            self.ended.setdefault(name, wanted)
            if self.ended[name] == wanted:
                continue
            if self.upgrades.get(name, ("", None))[0] != wanted:
                await self._upgrade(process, name, wanted)
            await self._wait(process, {**one, "kind": self.kind.name})

    async def _upgrade(self, process: Process, name: str, version: str) -> None:
        place = path("Deployment", self.target, name)
        found = await process.api.call("GET", place)
        if not found.ok:
            return
        [container] = found.body["spec"]["template"]["spec"]["containers"]
        changed = {**container, "image": f"{container['image'].rsplit(':', 1)[0]}:{version}"}
        await process.api.call("PATCH", place, {"spec": {"template": {"spec": {"containers": [changed]}}}})
        self.upgrades[name] = version, now()

    async def _wait(self, process: Process, one: Json) -> None:
        """Until all that it has made is ready, or its time is up."""
        name, spec = one["metadata"]["name"], one["spec"]
        version, began = self.upgrades[name]
        found = await process.api.call("GET", path("Deployment", self.target, name))
        status, wanted = found.body.get("status", {}), found.body.get("spec", {}).get("replicas", 1)
        is_seen = status.get("observedGeneration", 0) >= found.body.get("metadata", {}).get("generation", 1)
        counted = (status.get("updatedReplicas"), status.get("availableReplicas"), status.get("replicas"))
        if is_seen and counted == (wanted,) * 3:
            self.ended[name] = version
            said = f"Helm upgrade succeeded for release {self.target}/{name} with chart {name}@{version}"
            await self._note(process, one, "Normal", "UpgradeSucceeded", said, is_ready=True)
        elif now() - began > timedelta(seconds=int(spec["timeout"].rstrip("m"))):
            self.ended[name] = version
            said = f"Helm upgrade failed for release {self.target}/{name} with chart {name}@{version}: "
            await self._note(process, one, "Warning", "UpgradeFailed", f"{said}context deadline exceeded")
            if spec["upgrade"]["remediation"]["strategy"] == "uninstall":
                for kind in CHARTED:
                    await process.api.call("DELETE", path(kind, self.target, name))
                said = f"Helm uninstall remediation for release {self.target}/{name} with chart {name}@{version}"
                await self._note(process, one, "Normal", "UninstallSucceeded", f"{said} succeeded")

    async def _note(
        self, process: Process, one: Json, kind: str, reason: str, said: str, *, is_ready: bool = False
    ) -> None:
        await tell(process, one, kind, reason, said, by="helm-controller")
        state = {"type": "Ready", "status": str(is_ready), "reason": reason, "message": said}
        body = {"status": {"conditions": [state]}}
        await process.api.call("PATCH", self.kind.path(HOME, one["metadata"]["name"]), body)


@family(
    "Releases that fail are to be noticed sooner: what applies charts waits for each a few minutes in place of an hour."
    " One app has always taken longer to replace all of its pods. With its next, harmless release it is taken for"
    " failed, and undone as a part of the platform's template has said all along: by uninstalling it.",
    joined=39,
)
async def release_uninstalled(lab: Lab) -> AsyncIterator[None]:
    """Of Flux's documentation: the remediation of an upgrade may be a rollback or an uninstall, after its timeout."""
    target, slow, others, front = lab.rng.choice(
        (
            ("storefront", "recommendations", ("prices", "reviews"), "web"),
            ("studio", "renderer", ("presets", "drafts"), "editor"),
            ("console", "usage", ("accounts", "audits"), "dashboard"),
        )
    )
    names, old, new = (slow, *others, front), "3.4.0", "3.5.0"
    helm = _Helm(await lab.custom("HelmRelease", RELEASE, ANY), target)
    await lab.namespace(target)
    for name in names:
        await lab.apply(objects.config_map(target, name, LOG_LEVEL="info"))
        like = App("", start_seconds=STARTS if name == slow else 0.0)
        if name == front:
            like = App("", upstreams=tuple((target, one) for one in (slow, *others)))
        await lab.app(target, name, like=like, config=name, tag=old, replicas=3)
    await lab.served(helm.kind)
    remediation = {"remediateLastFailure": True, "strategy": "uninstall"}
    for name in names:
        for kind in CHARTED:
            labels = {f"{RELEASE}/name": name, f"{RELEASE}/namespace": HOME}
            await lab.edit("admin", kind, target, name, {"metadata": {"labels": labels}})
        chart = {"spec": {"chart": name, "version": old, "sourceRef": {"kind": "HelmRepository", "name": "corp"}}}
        spec = {"targetNamespace": target, "timeout": PATIENT, "chart": chart, "upgrade": {"remediation": remediation}}
        meta = {"namespace": HOME, "name": name}
        await lab.apply({"apiVersion": f"{RELEASE}/v1", "kind": "HelmRelease", "metadata": meta, "spec": spec})
    rules = (
        (RELEASE, "helmreleases", "get,list,watch,patch"),
        ("", "services,configmaps", "get,list,delete"),
        ("apps", "deployments", "get,list,patch,delete"),
        ("", "events", "create"),
    )
    await lab.controller(HOME, "helm-controller", every(1.5, helm.reconcile), *rules, replicas=1, tag="1.4.0")
    await lab.until(lambda: all(len(backends(lab.world, target, name)) == 3 for name in names))
    await publish(lab, target, front)
    lab.alert_lacking(target, front)
    lab.alert_errors(target, front)
    lab.alert_ingress_errors(target, target)
    await lab.until(lambda: lab.is_well() and len(helm.ended) == len(names))
    by = lab.rng.choice(("alice", "bob", "flux"))
    yield
    for name in lab.rng.sample(names, len(names)):
        if name == slow:
            await lab.culprit(by, "update", "HelmRelease", HOME, name, {"spec": {"timeout": BRISK}})
        else:
            await lab.edit(by, "HelmRelease", HOME, name, {"spec": {"timeout": BRISK}})
        await lab.pause(lab.rng.uniform(0.2, 0.8))
    await lab.pause(lab.rng.uniform(7, 14))
    for name in (others[0], slow):
        await lab.edit("flux", "HelmRelease", HOME, name, {"spec": {"chart": {"spec": {"version": new}}}})
        await lab.pause(lab.rng.uniform(1, 3))


@dataclass
class _Nodes:
    """Two that say of nodes whether they take pods: what empties one for its maintenance, what lets go of others."""

    kind: Kind
    emptied: set[str] = field(default_factory=set)

    async def maintain(self, process: Process) -> None:
        """As long as the object of one is there, its node is cordoned, and emptied but for DaemonSets."""
        listed = await process.api.call("GET", self.kind.path())
        if not listed.ok:
            return
        nodes = {one["spec"]["nodeName"]: one for one in listed.body["items"]}
        for node in self.emptied - nodes.keys():
            await process.api.call("PATCH", path("Node", None, node), {"spec": {"unschedulable": None}})
        self.emptied = set(nodes)
        for node, one in nodes.items():
            found = await process.api.call("GET", path("Node", None, node))
            if found.ok and not found.body["spec"].get("unschedulable"):
                await process.api.call("PATCH", path("Node", None, node), {"spec": {"unschedulable": True}})
            left = await self._empty(process, node)
            phase = "Running" if left else "Succeeded"
            told = {"status": {"phase": phase, "pendingPods": left}}
            if one.get("status") != told["status"]:
                await process.api.call("PATCH", self.kind.path(None, one["metadata"]["name"]), told)

    def is_late(self, lab: Lab, node: str) -> bool:
        """Whether a node is to be emptied and is not."""
        there = (one for one in lab.world[self.kind.name].values() if one["spec"]["nodeName"] == node)
        return any(one.get("status", {}).get("phase") != "Succeeded" for one in there)

    async def _empty(self, process: Process, node: str) -> int:
        """Have what is there evicted; how many pods there were."""
        there = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
        left = [pod["metadata"] for pod in there.body.get("items", []) if not _is_of_daemon_set(pod)]
        for meta in left:
            own = {"namespace": meta["namespace"], "name": meta["name"]}
            if "deletionTimestamp" not in meta:
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": own}
                await process.api.call("POST", f"{path('Pod', own['namespace'], own['name'])}/eviction", body)
        return len(left)

    async def release(self, process: Process) -> None:
        """A node that is ready and takes no pods is let go of as soon as it is seen."""
        seen: list[str] = []

        def told(node: Json) -> None:
            is_own = CORDONED_BY in node["metadata"].get("annotations", {})
            if node["spec"].get("unschedulable") and (is_own or process.tag == ALL_CORDONED):
                seen.append(node["metadata"]["name"])

        async def watch(process: Process) -> None:
            await changes(process, path("Node"), told, of_all=True)

        async def let_go(process: Process) -> None:
            while seen:
                await process.api.call("PATCH", path("Node", None, seen.pop()), {"spec": {"unschedulable": None}})

        await both(watch, every(0.05, let_go))(process)


def _is_of_daemon_set(pod: Json) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))


@family(
    "What repairs nodes lets go of those that it has cordoned itself. Its new version lets go of all that are ready, so"
    " that none is forgotten: as a node is emptied for the week's maintenance, one cordons it and the other lets go of"
    " it, without end, and what is evicted there comes back to the emptiest node.",
    joined=39,
)
async def cordon_fight(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: who may cordon a node is said nowhere, and there is one field for all."""
    namespace, name, front = lab.rng.choice(
        (("search", "segments", "portal"), ("media", "timeline", "feed"), ("shop", "inventory", "stock-page"))
    )
    repair = lab.rng.choice(("node-remediation", "node-healer", "node-repair"))
    by, week = lab.rng.choice(("ci", "argocd", "alice")), lab.rng.choice(("bob", "carol"))
    robots = {pod["spec"]["nodeName"] for place in ROBOTS.values() for pod in pods(lab.world, *place[:2])}
    free = lab.rng.sample([node for node in NODES if node not in robots], 3)
    disks, infra = {"disktype": "ssd"}, {"node-role.corp.example/infra": "true"}
    for node, labels in ((free[0], disks), (free[1], disks), (min(robots), infra)):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": labels}})
    kind = await lab.custom("NodeMaintenance", MAINTENANCE, ANY, namespaced=False)
    await lab.served(kind)
    two = _Nodes(kind)
    rules = (
        (MAINTENANCE, kind.plural, "get,list,watch,patch"),
        ("", "nodes", "get,list,watch,patch"),
        ("", "pods", "list"),
        ("", "pods/eviction", "create"),
    )
    for controller, program, tag in (
        ("node-maintenance-operator", every(1, two.maintain), "0.18.0"),
        (repair, two.release, OWN),
    ):
        await lab.controller("kube-system", controller, program, *rules, replicas=1, tag=tag, nodeSelector=infra)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    like, on = App("", start_seconds=6.0), [spread]
    await lab.app(namespace, name, like=like, replicas=4, tag="2.7.0", nodeSelector=disks, topologySpreadConstraints=on)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=3, tag="5.0.2")
    await rolled(lab, "kube-system", repair, OWN)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    for node in (free[0], free[2]):
        late = partial(two.is_late, lab, node)
        summary = f"the maintenance of {node} has waited for its pods to go for a while"
        lab.alert("NodeMaintenanceNotDone", late, summary, 18, node=node)
    lab.alert_lacking(namespace, name, seconds=20)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def maintain(node: str) -> None:
        meta = {"name": f"kernel-{node}"}
        spec = {"nodeName": node, "reason": "kernel of this week"}
        body = {"apiVersion": f"{MAINTENANCE}/v1", "kind": kind.name, "metadata": meta, "spec": spec}
        await lab.who[week].must("POST", kind.path(), body)

    async with before(lab, days=7):
        await lab.pause(3)
        await maintain(free[2])
        await lab.pause(8)
        await lab.who[week].must("DELETE", kind.path(None, f"kernel-{free[2]}"))
        await lab.pause(3)
    await lab.until(lambda: lab.is_well() and not lab.world[kind.name])
    yield
    await lab.roll(by, "kube-system", repair, ALL_CORDONED, culprit=True)
    await lab.pause(lab.rng.uniform(8, 14))
    await maintain(free[0])
