"""What rules over controllers: roles, versions of an API, an agent's leave to sync."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, CrashError, Process
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.programs import every, getting
from tests.lab.scenario import family

LEASE_SECONDS, RENEW_DEADLINE = 6, 5.0


async def _lead(process: Process, leases: str, name: str) -> bool:
    """Take or renew a Lease, as a leader election does."""
    me, at = process.see().pod["metadata"]["name"], now()
    spec = {"holderIdentity": me, "renewTime": f"{stamp(at)[:-1]}000Z", "leaseDurationSeconds": LEASE_SECONDS}
    found = await process.api.call("GET", f"{leases}/{name}")
    if found.status == 404:
        return (await process.api.call("POST", leases, {"metadata": {"name": name}, "spec": spec})).ok
    if not found.ok:
        return False
    held = found.body["spec"]
    age = (at - datetime.fromisoformat(held["renewTime"])).total_seconds()
    if held["holderIdentity"] != me and age < held["leaseDurationSeconds"]:
        return False
    meta = {"resourceVersion": found.body["metadata"]["resourceVersion"]}
    return (await process.api.call("PATCH", f"{leases}/{name}", {"metadata": meta, "spec": spec})).ok


@family(
    "A Role is narrowed to the objects that it is for, by name, and the Lease of an operator has another name: its"
    " leader cannot renew, gives up and ends, and nobody leads.",
    joined=5,
)
async def leader_lost(lab: Lab) -> AsyncIterator[None]:
    leases, name = path("Lease", "platform"), lab.rng.choice(("database-operator", "queue-operator", "tenant-operator"))
    lease, led = f"{name}-v2.corp.example", [now()]

    async def program(process: Process) -> None:
        """Once a leader, it ends when it could not renew in time, as controller-runtime does."""
        leads, renewed = False, now()
        while True:
            if await _lead(process, leases, lease):
                leads, renewed = True, now()
                led[0] = renewed
                await getting(f"{path('ConfigMap', 'platform')}?limit=10")(process)
            elif leads and (now() - renewed).total_seconds() > RENEW_DEADLINE:
                raise CrashError("leader election lost")
            await asyncio.sleep(process.rng.uniform(0.8, 1.2))

    meta = {"namespace": "platform", "name": f"{name}-leader-election"}
    rule: Json = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]}
    await lab.apply({"kind": "Role", "metadata": meta, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": meta["name"]}
    subject = {"kind": "ServiceAccount", "namespace": "platform", "name": name}
    await lab.apply({"kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]})
    await lab.controller("platform", name, program, ("", "configmaps", "list"))
    lab.alert(
        "OperatorHasNoLeader",
        lambda: (now() - led[0]).total_seconds() > 5,
        f"no replica of {name} leads",
        4,
        namespace="platform",
        deployment=name,
    )
    yield
    body = {"rules": [{**rule, "resourceNames": [f"{name}.corp.example"]}]}
    await lab.culprit(lab.rng.choice(("carol", "flux")), "update", "Role", "platform", meta["name"], body)


@family(
    "A ClusterRole loses the label by which another one is made of it: the controller that has that one is forbidden"
    " what it does.",
    joined=5,
)
async def aggregated_role(lab: Lab) -> AsyncIterator[None]:
    mark = "rbac.corp.example/aggregate-to-inventory"
    parts = {
        "pods": ("", "pods", "list"),
        "jobs": ("batch", "jobs", "list"),
        "claims": ("", "persistentvolumeclaims", "list"),
    }
    for part, rule in parts.items():
        role = objects.cluster_role(f"inventory-{part}", rule)
        role["metadata"]["labels"] = {mark: "true", "app": "inventory"}
        await lab.apply(role)
    whole: Json = objects.cluster_role("inventory-all")
    await lab.apply({**whole, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {mark: "true"}}]}})
    await lab.apply(objects.binding("inventory-all", "inventory-all", "platform", "inventory"))
    places = (path("Pod"), path("Job"), path("PersistentVolumeClaim"))
    work = every(1.5, getting(*(f"{place}?limit=20" for place in places)))
    await lab.until(lambda: len(lab.world["ClusterRole"]["", "inventory-all"].get("rules") or ()) == len(parts))
    app = await lab.controller("platform", "inventory", work, replicas=1)
    refused = lab.rate(lab.refused(app.image, 403), 0.3)
    lab.alert("InventoryStale", refused, "the inventory is stale", namespace="platform", service="inventory")
    await lab.pause(2)
    yield
    labels = {"metadata": {"labels": {mark: None, "app": None, "app.kubernetes.io/name": "inventory"}}}
    part = lab.rng.choice(sorted(parts))
    await lab.culprit(lab.rng.choice(("flux", "ci")), "update", "ClusterRole", "", f"inventory-{part}", labels)


@family(
    "A chart's new CustomResourceDefinition no longer serves the old version of an API: who still asks for that one"
    " gets 404.",
    joined=5,
)
async def api_version(lab: Lab) -> AsyncIterator[None]:
    group = "backup.corp.example"
    backup = await lab.custom("Backup", group, LOOSE)
    schema = {"schema": {"openAPIV3Schema": LOOSE}}
    new = {"name": "v1", "served": True, "storage": True, **schema}
    old = {"name": "v1beta1", "served": True, "storage": False, **schema}
    name = f"backups.{group}"
    await lab.edit("admin", "CustomResourceDefinition", "", name, {"spec": {"versions": [new, old]}})
    await lab.served(backup)
    where = f"/apis/{group}/v1beta1/namespaces/platform/backups"

    for pause in itertools.repeat(0.5):
        if (await lab.world.caller.call("GET", where)).ok:
            break
        await lab.pause(pause)
    for place in ("ledger", "catalog", "uploads"):
        meta = {"namespace": "platform", "name": place}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": "Backup", "metadata": meta, "spec": {"keep": 7}})
    rules = (group, "backups", "list,get,patch")
    await lab.controller("platform", "backup-operator", every(2, getting(backup.path())), rules, replicas=1)
    app = await lab.controller("platform", "backup-scheduler", every(1.2, getting(where)), rules, replicas=1)
    refused = lab.rate(lab.refused(app.image, 404), 0.3)
    lab.alert("BackupsNotScheduled", refused, "no backup is begun", namespace="platform", service="backup-scheduler")
    yield
    body = {"spec": {"versions": [new, {**old, "served": False}]}}
    await lab.culprit("ci", "update", "CustomResourceDefinition", "", name, body)


@family(
    "Syncing is turned on again for an application that had been corrected by hand in the meantime: the agent writes"
    " back what Git has, and that is too little memory.",
    joined=5,
)
async def sync_resumed(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("media", "renderer"), ("search", "crawler"), ("payments", "reports")))
    group = "argoproj.io"
    application = await lab.custom("Application", group, LOOSE)
    in_git = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "192Mi"}}

    async def sync(process: Process) -> None:
        """What differs from Git is written back, where that is allowed."""
        listed = await process.api.call("GET", application.path("argocd"))
        for one in listed.body.get("items", []):
            where = path("Deployment", namespace, one["metadata"]["name"])
            found = await process.api.call("GET", where)
            if not found.ok or not one["spec"].get("syncPolicy", {}).get("automated"):
                continue
            container = found.body["spec"]["template"]["spec"]["containers"][0]
            if container["resources"] != in_git:
                template = {"spec": {"containers": [{**container, "resources": in_git}]}}
                await process.api.call("PATCH", where, {"spec": {"template": template}})

    await lab.app(namespace, name, like=App("", memory_mi=230), replicas=3, memory="512Mi")
    rules = ((group, "applications", "list"), ("apps", "deployments", "get,patch"))
    await lab.controller("argocd", "application-sync", every(3, sync), *rules, replicas=1)
    await lab.served(application)
    meta = {"namespace": "argocd", "name": name}
    spec: Json = {"source": {"path": f"apps/{name}"}, "syncPolicy": {}}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "Application", "metadata": meta, "spec": spec})
    lab.alert_stuck(namespace, name)
    yield
    body = {"spec": {"syncPolicy": {"automated": {"selfHeal": True}}}}
    await lab.culprit(lab.rng.choice(("alice", "carol")), "update", "Application", "argocd", name, body)
