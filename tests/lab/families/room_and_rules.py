"""Where pods may be, and how much they may have: rules of an app that are made strict, a namespace that gets less."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pending, restarts
from tests.lab.api import Json, now, path
from tests.lab.apps import App, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

# -- where they may be

OLDER, NEWER, POOL = "v1.35.6", "v1.36.1", "pool"
UPGRADE_SECONDS, AGAIN_SECONDS, CORDONED_SECONDS = 5.0, 5.0, 20.0
"""Of a node that is empty; before an eviction is asked for again; from when on a cordon is thought to be forgotten."""


@dataclass
class _Hands:
    """Somebody at a terminal, who empties nodes as kubectl does it."""

    lab: Lab
    by: str
    cordoned: dict[str, float] = field(default_factory=dict)

    async def drain(self, node: str) -> None:
        """Until nothing is left there but what belongs to a DaemonSet."""
        await self.lab.edit(self.by, "Node", "", node, {"spec": {"unschedulable": True}})
        where = f"{path('Pod')}?fieldSelector=spec.nodeName={node}"
        while rest := [
            one["metadata"]
            for one in (await self.lab.who[self.by].call("GET", where)).body.get("items", ())
            if not any(owner["kind"] == "DaemonSet" for owner in one["metadata"].get("ownerReferences", ()))
        ]:
            for meta in rest:
                pod = {key: meta[key] for key in ("namespace", "name")}
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": pod}
                await self.lab.who[self.by].call("POST", f"{path('Pod', *pod.values())}/eviction", body)
            await asyncio.sleep(AGAIN_SECONDS)

    async def upgrade(self, nodes: Sequence[str]) -> None:
        """One after the other."""
        for node in nodes:
            await self.drain(node)
            await asyncio.sleep(UPGRADE_SECONDS)
            await self.lab.kubelets.update(node, NEWER)
            await self.lab.edit(self.by, "Node", "", node, {"spec": {"unschedulable": None}})
            await asyncio.sleep(self.lab.kubelets.rng.uniform(2, 4))

    def is_long(self) -> bool:
        """Whether a node has been cordoned for longer than emptying one takes."""
        shut = {name for (_, name), one in self.lab.world["Node"].items() if one["spec"].get("unschedulable")}
        at = now().timestamp()
        self.cordoned = {one: self.cordoned.get(one, at) for one in shut}
        return any(at - since > CORDONED_SECONDS for since in self.cordoned.values())


async def _placed(lab: Lab, namespace: str, name: str, tag: str, apart: Json) -> None:
    """An app on the nodes of its team, with a budget that lets one of its three pods go. Raises RefusedError."""
    image, selects = f"registry.corp.example/{namespace}/{name}", {"app.kubernetes.io/name": name}
    lab.apps[image] = App(image, asked=lambda: 24.0)
    where: Json = {"nodeSelector": {POOL: f"{namespace}-nodes"}, "affinity": {"podAntiAffinity": apart}}
    made = objects.deployment(namespace, name, f"{image}:{tag}", replicas=3, **where)
    made["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, tag)
    meta, budget = {"namespace": namespace, "name": name}, {"minAvailable": 2, "selector": {"matchLabels": selects}}
    await lab.apply({"kind": "PodDisruptionBudget", "metadata": meta, "spec": budget})


@family(
    "An app is to lose no pod any more: its budget lets none go, or no two of its pods may be on one node. All is well"
    " until nodes are emptied. One of them cannot be, and its upgrade does not end; or it is, and its pod finds no node"
    " where it may be.",
    joined=97,
)
async def may_not_be_moved(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *Cannot evict pod as it would violate the pod's disruption budget* all afternoon."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "reservations", "reserve-page", "reserve-mails"),
            ("payments", "authorisations", "authorise-form", "authorise-export"),
            ("media", "live-rooms", "live-page", "live-archive"),
            ("search", "sessions-api", "recent-page", "recent-sync"),
        )
    )
    by, minor, is_budget = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    hands = _Hands(lab, lab.rng.choice(("carol", "bob")))
    machines, selects = spare(lab, 3), {"app.kubernetes.io/name": name}
    for node in machines:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {POOL: f"{namespace}-nodes"}}})
        await lab.kubelets.update(node, OLDER)
    term = {"labelSelector": {"matchLabels": selects}, "topologyKey": "kubernetes.io/hostname"}
    soft = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    hard = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    await _placed(lab, namespace, name, f"4.{minor}.0", soft)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.9.2", config=other)
    await rolled(lab, namespace, other, "1.9.2")
    await set_before(lab, namespace, front, name)
    if is_budget:
        summary = "a node has been unschedulable for a while"
        lab.alert("NodeUpgradeStuck", hands.is_long, summary, 4, job="kube-state-metrics")
    summary = f"a pod of {namespace} has had no node for a while"
    lab.alert("KubePodNotReady", lambda: pending(lab.world, namespace), summary, 14, namespace=namespace)
    lab.alert_lacking(namespace, name, seconds=20)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 3)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(7, 12))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
        await lab.pause(lab.rng.uniform(3, 7))
        if is_budget:
            await hands.upgrade(machines)
        else:
            await hands.drain(lab.rng.choice(machines))

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(5, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 8))
    if is_budget:
        strict = lab.rng.choice(
            ({"minAvailable": 3}, {"minAvailable": "100%"}, {"minAvailable": None, "maxUnavailable": 0})
        )
        await lab.culprit(by, "update", "PodDisruptionBudget", namespace, name, {"spec": strict})
    else:
        body = {"spec": {"template": {"spec": {"affinity": {"podAntiAffinity": {**dict.fromkeys(soft), **hard}}}}}}
        await lab.culprit(by, "update", "Deployment", namespace, name, body)
    lab.start(afterwards())


# -- how much they may have

NEEDS_MIB = 148


@family(
    "A namespace may have less, as it uses but a part of what it may on most days: its quota is lowered, or what a"
    " container gets that asks for nothing. All that runs goes on as it was made. With the next release of an app no"
    " pods are made in place of those that go, or the new ones are killed for their memory.",
    joined=97,
)
async def lowered_for_the_namespace(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked for *exceeded quota* in the events of a ReplicaSet, or for a limit nobody had set."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "catalog-export", "export-page", "export-mails"),
            ("payments", "fee-engine", "fees-page", "fees-report"),
            ("media", "tag-editor", "tags-page", "tags-sync"),
            ("search", "synonyms-api", "synonym-page", "synonym-feed"),
        )
    )
    by, minor, is_quota = lab.rng.choice((*TEAMS, "flux")), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    kind, called = ("ResourceQuota", "team-quota") if is_quota else ("LimitRange", "team-defaults")
    before: Json = {"hard": {"limits.memory": "16Gi", "requests.cpu": "20", "pods": "80"}}
    if not is_quota:
        usual = {"default": {"memory": "512Mi"}, "defaultRequest": {"memory": "128Mi", "cpu": "50m"}}
        before = {"limits": [{"type": "Container", **usual}]}
    await lab.apply({"kind": kind, "metadata": {"namespace": namespace, "name": called}, "spec": before})
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, memory_mi=NEEDS_MIB, asked=lambda: 20.0)
    made = objects.deployment(namespace, name, f"{image}:2.{minor}.0", replicas=4, memory="512Mi")
    [container] = made["spec"]["template"]["spec"]["containers"]
    if not is_quota:
        del container["resources"]
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.3.3", config=other)
    await rolled(lab, namespace, other, "1.3.3")
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    many = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    summary = f"containers of {namespace}/{name} restart again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 4)

    def lowered() -> Json:
        if not is_quota:
            usual = {"default": {"memory": lab.rng.choice(("96Mi", "128Mi"))}}
            less = {**usual, "defaultRequest": {"memory": "64Mi", "cpu": "20m"}}
            return {"spec": {"limits": [{"type": "Container", **less}]}}
        used = mebibytes(lab.world[kind][namespace, called]["status"]["used"]["limits.memory"])
        return {"spec": {"hard": {"limits.memory": f"{int(used * lab.rng.uniform(0.72, 0.95)) // 128 * 128}Mi"}}}

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(6, 12))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(7, 11))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.culprit(by, "update", kind, namespace, called, lowered())
    lab.start(afterwards())
