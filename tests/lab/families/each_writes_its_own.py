"""Each writes its own: a rule that changes what an operator renders, and a manifest beside an autoscaler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.lab.alerts import stuck
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.fewer_than_come import Crowd
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, leading
from tests.lab.scenario import family

LEASE = ("coordination.k8s.io", "leases", "*")

# -- a rule that mutates

OPERATOR, SERVICES = ("platform", "webservice-operator"), "apps.corp.example"
KYVERNO, BACKGROUND = "kyverno.io", ("platform", "kyverno-background-controller")
ADDED: tuple[tuple[str, Json], ...] = (
    (
        "allow-eviction",
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}},
    ),
    ("longer-grace-period", {"spec": {"terminationGracePeriodSeconds": 60}}),
    (
        "tolerate-spot",
        {"spec": {"tolerations": [{"key": "corp.example/spot", "operator": "Exists", "effect": "NoSchedule"}]}},
    ),
)
"""What a rule gives to the template of each Deployment."""
STARTS_SECONDS, STUCK_SECONDS = 4.0, 34


@dataclass
class _Renders:
    """An operator that makes a Deployment of each WebService, and writes back what is not as it renders it."""

    kind: Kind
    written: int = 0

    async def look(self, process: Process) -> None:
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            meta = one["metadata"]
            where = path("Deployment", meta["namespace"], meta["name"])
            found = await process.api.call("GET", where)
            if not found.ok:
                continue
            there = found.body["spec"]["template"]
            container = there["spec"]["containers"][0]
            image = f"{container['image'].rsplit(':', 1)[0]}:{one['spec']['version']}"
            is_so = (
                container["image"] == image
                and not there["metadata"].get("annotations")
                and there["spec"]["terminationGracePeriodSeconds"] == 30
                and not there["spec"].get("tolerations")
            )
            if not is_so:
                pod = {"terminationGracePeriodSeconds": 30, "tolerations": None}
                spec = {**pod, "containers": [{**container, "image": image}]}
                template = {"metadata": {"annotations": None}, "spec": spec}
                self.written += (await process.api.call("PATCH", where, {"spec": {"template": template}})).ok


@dataclass
class _Mutates:
    """What carries out rules of policies on objects that are there, again after each write of theirs."""

    kind: Kind
    written: int = 0

    async def look(self, process: Process) -> None:
        policies = await process.api.call("GET", self.kind.path())
        for rule in (rule for one in policies.body.get("items", ()) for rule in one["spec"]["rules"]):
            if "mutate" not in rule:
                continue
            [matched] = rule["match"]["any"]
            for namespace in matched["resources"]["namespaces"]:
                await self._carry_out(process, namespace, rule["mutate"]["patchStrategicMerge"]["spec"]["template"])

    async def _carry_out(self, process: Process, namespace: str, template: Json) -> None:
        for one in (await process.api.call("GET", path("Deployment", namespace))).body.get("items", ()):
            if not _has(one["spec"]["template"], template):
                where = path("Deployment", namespace, one["metadata"]["name"])
                self.written += (await process.api.call("PATCH", where, {"spec": {"template": template}})).ok


def _has(there: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there already."""
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(_has(there.get(key), value) for key, value in wanted.items())
    return bool(there == wanted)


def _rule(name: str, namespaces: list[str], template: Json) -> Json:
    """One that is carried out on all Deployments of some namespaces."""
    return {
        "name": name,
        "match": {"any": [{"resources": {"kinds": ["Deployment"], "namespaces": namespaces}}]},
        "mutate": {
            "targets": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "patchStrategicMerge": {"spec": {"template": template}},
        },
    }


async def _look_after(lab: Lab, services: Kind, policies: Kind) -> None:
    """The two that write. Raises RefusedError."""
    renders, mutates = _Renders(services), _Mutates(policies)
    write = ("apps", "deployments", "get,list,watch,patch")
    program, rights = both(every(2.0, renders.look), leading(*OPERATOR)), (SERVICES, services.plural, "get,list,watch")
    await lab.controller(*OPERATOR, program, rights, write, LEASE, replicas=1, tag="0.18.0")
    program, rights = every(1.8, mutates.look), (KYVERNO, policies.plural, "get,list,watch")
    await lab.controller(*BACKGROUND, program, rights, write, replicas=1, tag="v1.15.2")
    await rolled(lab, *OPERATOR, "0.18.0")
    await rolled(lab, *BACKGROUND, "v1.15.2")
    told = {"namespace": "platform", "service": OPERATOR[1], "controller": "webservice"}
    lab.measure("controller_runtime_reconcile_total", lambda: renders.written, "counter", **told, result="updated")
    told = {"namespace": "platform", "service": BACKGROUND[1], "rule_type": "mutate"}
    lab.measure("kyverno_policy_changes_applied_total", lambda: mutates.written, "counter", **told)


@family(
    "A rule of a policy engine is to give something to all Deployments of a namespace that are there. Some of them are"
    " made by an operator, which takes out what it has not rendered: both write all day, each time with other pods."
    " What runs goes on. No rollout of such an app ends any more, and its next release does not get anywhere.",
    joined=101,
)
async def rule_and_operator(lab: Lab) -> AsyncIterator[None]:
    """As users of Kyverno tell whose rule for what exists met an operator or an agent that heals."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "gift-finder", "gift-page", "gift-feed"),
            ("payments", "limit-api", "limit-page", "limit-report"),
            ("media", "clip-api", "clip-wall", "clip-import"),
            ("search", "trend-api", "trend-view", "trend-feed"),
        )
    )
    by, minor, is_new = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    called, template = lab.rng.choice(ADDED)
    services = await lab.custom("WebService", SERVICES, ANY)
    policies = await lab.custom("ClusterPolicy", KYVERNO, ANY, namespaced=False)
    await lab.served(services, policies)
    asked = {"name": "require-owner", "match": {"any": [{"resources": {"kinds": ["Deployment"]}}]}}
    audited = {**asked, "validate": {"message": "name an owner", "pattern": {"metadata": {"labels": {"owner": "?*"}}}}}
    held = {"kind": "ClusterPolicy", "metadata": {"name": "team-defaults"}}
    await lab.apply({**held, "apiVersion": f"{KYVERNO}/v1", "spec": {"background": True, "rules": [audited]}})
    for one, starts in ((name, STARTS_SECONDS), (other, 1.0)):
        like = App("", asked=lambda: 19.0, start_seconds=starts)
        await lab.app(namespace, one, like=like, replicas=3, tag=f"4.{minor}.0")
        meta = {"namespace": namespace, "name": one}
        spec = {"version": f"4.{minor}.0", "replicas": 3}
        await lab.apply({"apiVersion": f"{SERVICES}/v1", "kind": services.name, "metadata": meta, "spec": spec})
        await rolled(lab, namespace, one, f"4.{minor}.0")
    await _look_after(lab, services, policies)
    await set_before(lab, namespace, front, name)
    summary = f"the rollout of {namespace}/{name} has not come to an end for a while"
    waits = lambda: stuck(lab.world, namespace, name)  # noqa: E731
    told = {"namespace": namespace, "deployment": name}
    lab.alert("KubeDeploymentRolloutStuck", waits, summary, STUCK_SECONDS, **told)
    lab.alert_errors(namespace, front)
    await lab.until(lab.is_well)

    async def release(one: str, version: str) -> None:
        by = lab.rng.choice(("ci", "argocd"))
        await lab.edit(by, services.name, namespace, one, {"spec": {"version": version}})

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 6))
        await release(name, f"4.{minor}.1")
        await lab.pause(lab.rng.uniform(6, 12))
        await change_page(lab, namespace, front)

    yield
    await release(other, f"4.{minor}.1")
    await lab.pause(lab.rng.uniform(9, 13))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    rule = _rule(called, [namespace], template)
    if is_new:
        body = {"metadata": {"name": called}, "spec": {"mutateExistingOnPolicyUpdate": True, "rules": [rule]}}
        body = {"apiVersion": f"{KYVERNO}/v1", "kind": policies.name, **body}
        await lab.culprit(by, "create", policies.name, "", called, body)
    else:
        spec = {"mutateExistingOnPolicyUpdate": True, "rules": [audited, rule]}
        await lab.culprit(by, "update", policies.name, "", "team-defaults", {"spec": spec})
    lab.start(afterwards())


# -- a manifest beside an autoscaler

ARGO, FIELD = "argoproj.io", "/spec/replicas"


@family(
    "The number of replicas of an app is left to its autoscaler. A clean-up takes out of the GitOps agent's settings"
    " that it is to overlook that field, or a number comes into the app's manifests. Each sync takes the pods down to"
    " what is written there, while much is asked.",
    joined=101,
)
async def field_given_back(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had taken ignoreDifferences for a leftover."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "cart-prices", "cart-page", "cart-mails"),
            ("payments", "rate-lookup", "rate-page", "rate-import"),
            ("media", "play-tokens", "watch-page", "play-stats"),
            ("search", "ranking-api", "hit-list", "ranking-feed"),
        )
    )
    by, minor, is_told = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    number, manifest = lab.rng.choice((2, 3)), {"replicas": 0}
    crowd = Crowd(lab, namespace, name, lab.rng.uniform(94, 118))
    application = await lab.custom("Application", ARGO, ANY)
    await lab.served(application)
    overlooked = [{"group": "apps", "kind": "Deployment", "jsonPointers": [FIELD]}]
    source = {"repoURL": f"https://git.corp.example/{namespace}/deploy.git", "path": name, "targetRevision": "main"}
    spec: Json = {
        "project": namespace,
        "source": source,
        "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace},
        "syncPolicy": {
            "automated": {"prune": True, "selfHeal": True},
            "syncOptions": ["RespectIgnoreDifferences=true"],
        },
    }
    if is_told:
        manifest["replicas"], spec["ignoreDifferences"] = number, overlooked
    meta = {"namespace": "argocd", "name": name}
    await lab.apply({"apiVersion": f"{ARGO}/v1", "kind": application.name, "metadata": meta, "spec": spec})
    await crowd.begin(front, other, f"3.{minor}.0", 14, lab.rng.uniform(3, 5))

    def wanted() -> int:
        """What the manifests say of the replicas; 0 where that is left to others."""
        there = lab.world[application.name]["argocd", name]["spec"]
        return 0 if there.get("ignoreDifferences") else manifest["replicas"]

    async def sync() -> None:
        """For ever."""
        while True:
            await asyncio.sleep(lab.rng.uniform(3.0, 5.0))
            there = lab.world["Deployment"][namespace, name]["spec"]["replicas"]
            if not wanted() or wanted() == there:
                continue
            body = {"spec": {"replicas": wanted()}}
            if is_told:
                await lab.edit("argocd", "Deployment", namespace, name, body)
            else:
                why = "the same manifest, which is applied once more and takes the others away again"
                await lab.also(why, "argocd", "update", "Deployment", namespace, name, body)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 8))
        await change_page(lab, namespace, front)

    await lab.until(lambda: lab.is_well() and backends(lab.world, namespace, front))
    lab.start(sync())
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.4.3")
    await lab.pause(lab.rng.uniform(5, 11))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"BATCH": "30"}})
    await lab.pause(lab.rng.uniform(3, 8))
    if is_told:
        await lab.culprit(by, "update", application.name, "argocd", name, {"spec": {"ignoreDifferences": None}})
    else:
        there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
        container = {**there, "image": f"{crowd.image}:3.{minor}.1"}
        body = {"spec": {"replicas": number, "template": {"spec": {"containers": [container]}}}}
        await lab.culprit("argocd", "update", "Deployment", namespace, name, body)
        manifest["replicas"] = number
    lab.start(afterwards())
