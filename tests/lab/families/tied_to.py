"""What is tied to what: a right to the name of an account, a deployment to its autoscaler, a pod to its one disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Kind, now, path
from tests.lab.apps import App, Process, Program
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

DATABASES, STORES = "postgresql.cnpg.io", "barmancloud.cnpg.io"
PLUGIN = ("cnpg-system", "barman-cloud")
STALE_SECONDS = 8.0
"""After how long without an archived segment somebody is told, as usual."""


@dataclass
class _Archive:
    """Who has archived what it wrote, and when; and how often it could not."""

    cluster: Kind
    store: Kind
    last: dict[str, datetime] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    def archiving(self, name: str) -> Program:
        """As the sidecar of a database's primary: where its segments go, it reads anew each time."""

        async def archive(process: Process) -> None:
            meta = process.see().pod["metadata"]
            if not meta["name"].endswith("-0"):
                return
            found = await process.api.call("GET", self.store.path(meta["namespace"], "backups"))
            if found.ok:
                self.last[name] = now()
            else:
                self.failed[name] += 1

        return every(1.5, archive)

    async def bind(self, process: Process) -> None:
        """As the plugin: each database has a Role for its store, and the account of its pods gets it."""
        listed = await process.api.call("GET", self.cluster.path())
        for one in listed.body.get("items", []):
            namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
            right = f"{name}-barman-cloud"
            own = one["spec"].get("serviceAccountName") if process.tag.startswith("0.5.") else None
            subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": own or name}]
            where = path("RoleBinding", namespace, right)
            found = await process.api.call("GET", where)
            if found.ok and found.body["subjects"] != subjects:
                await process.api.call("PATCH", where, {"subjects": subjects})
            if found.status == 404:
                rule = {"apiGroups": [STORES], "resources": ["objectstores"], "verbs": ["get"]}
                await process.api.call("POST", path("Role", namespace), {"metadata": {"name": right}, "rules": [rule]})
                role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": right}
                body = {"metadata": {"name": right}, "roleRef": role, "subjects": subjects}
                await process.api.call("POST", path("RoleBinding", namespace), body)


@family(
    "A new version of a plugin for backups binds the right to read where they go to the account that is called like"
    " each database: one has an account of its own, which is forbidden that now, and archives nothing any more.",
    joined=21,
)
async def bound_by_name(lab: Lab) -> AsyncIterator[None]:
    """As users of CloudNativePG tell of its plugin (plugin-barman-cloud 869); a change is not told."""
    archive = _Archive(await lab.custom("Cluster", DATABASES, ANY), await lab.custom("ObjectStore", STORES, ANY))
    places = lab.rng.sample(
        [("shop", "orders"), ("payments", "accounts"), ("search", "documents"), ("media", "rights")], 3
    )
    accounts = {f"{name}-db": f"{name}-db" for _, name in places}
    accounts[f"{places[0][1]}-db"] = lab.rng.choice(("database-backup", "db-workload-identity", "postgres-s3"))
    await lab.namespace(PLUGIN[0])
    await lab.served(archive.cluster, archive.store)
    for namespace, name in places:
        database = f"{name}-db"
        account = accounts[database]
        await lab.apply(objects.account(namespace, account))
        meta, spec = {"namespace": namespace, "name": "backups"}, {"destinationPath": f"s3://corp-backups/{database}"}
        await lab.apply({"apiVersion": f"{STORES}/v1", "kind": "ObjectStore", "metadata": meta, "spec": spec})
        whole = {"instances": 2, "plugins": [{"name": STORES, "barmanObjectName": "backups"}]}
        if account != database:
            whole["serviceAccountName"] = account
        meta = {"namespace": namespace, "name": database}
        await lab.apply({"apiVersion": f"{DATABASES}/v1", "kind": "Cluster", "metadata": meta, "spec": whole})
        like = App("", program=archive.archiving(database), serves=False)
        await lab.app(namespace, database, like=like, kind="StatefulSet", replicas=2, account=account)
        await lab.app(namespace, name, like=App("", upstreams=((namespace, database),)))
        archive.failed[database] = 0
    rules = (
        (DATABASES, "clusters", "get,list"),
        (STORES, "objectstores", "get,list"),
        ("rbac.authorization.k8s.io", "roles,rolebindings", "get,create,patch"),
    )
    await lab.controller(*PLUGIN, every(2, archive.bind), *rules, replicas=1, tag="0.5.0")
    recreate = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    await lab.edit("admin", "Deployment", *PLUGIN, recreate)
    await lab.until(lambda: len(archive.last) == len(places))
    for namespace, name in places:
        _alert_archive(lab, archive, namespace, f"{name}-db")
    yield
    by = lab.rng.choice(("argocd", "ci", "flux"))
    await lab.roll(by, *PLUGIN, "0.6.0", culprit=True)


def _alert_archive(lab: Lab, archive: _Archive, namespace: str, database: str) -> None:
    count = lambda: archive.failed[database]  # noqa: E731
    lab.measure("cnpg_pg_stat_archiver_failed_total", count, "counter", namespace=namespace, service=database)

    def since() -> float:
        return (now() - archive.last[database]).total_seconds()

    lab.measure("cnpg_pg_stat_archiver_seconds_since_last_archival", since, namespace=namespace, service=database)
    summary = f"{namespace}/{database} has not archived its log for a while"
    lab.alert(
        "PostgresArchivingStale", lambda: since() > STALE_SECONDS, summary, 4, namespace=namespace, service=database
    )


SCALERS = "autoscaling.corp.example"


def _scaling(scaler: Kind) -> Program:
    """As an autoscaler that takes its target for its own: the two are to be seen as one, and to go as one."""

    async def scale(process: Process) -> None:
        listed = await process.api.call("GET", scaler.path())
        for one in listed.body.get("items", []):
            meta, spec = one["metadata"], one["spec"]
            where = path("Deployment", meta["namespace"], spec["scaleTargetRef"]["name"])
            found = await process.api.call("GET", where)
            if not found.ok:
                continue
            owner = {"apiVersion": f"{SCALERS}/v1", "kind": scaler.name, "name": meta["name"], "uid": meta["uid"]}
            if not any(each["uid"] == meta["uid"] for each in found.body["metadata"].get("ownerReferences", ())):
                owned = {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
                await process.api.call("PATCH", where, {"metadata": owned})
            replicas = found.body["spec"]["replicas"]
            wanted = min(spec["maxReplicas"], max(spec["minReplicas"], replicas))
            if wanted != replicas:
                await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})
            if one.get("status", {}).get("currentReplicas") != wanted:
                status = {"status": {"currentReplicas": wanted}}
                await process.api.call("PATCH", scaler.path(meta["namespace"], meta["name"]), status)

    return every(2, scale)


@family(
    "Somebody moves an app from an autoscaler of the company's own to the usual one, and deletes what it was declared"
    " in: the old one has made its objects the owners of what they scale, and the app is collected with its own.",
    joined=21,
)
async def owned_by_scaler(lab: Lab) -> AsyncIterator[None]:
    """As users of Postmates' autoscaler warn of it (configurable-hpa 15)."""
    scaler = await lab.custom("TrafficAutoscaler", SCALERS, ANY)
    apps = [("shop", "pricing", "listing"), ("payments", "fees", "invoices"), ("search", "ranking", "results")]
    apps += [("media", "covers", "gallery")]
    places = lab.rng.sample(apps, 3)
    await lab.served(scaler)
    for namespace, name, caller in places:
        await lab.app(namespace, name, replicas=3)
        await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 9, "requestsPerPod": 40}
        meta = {"namespace": namespace, "name": name}
        await lab.apply({"apiVersion": f"{SCALERS}/v1", "kind": scaler.name, "metadata": meta, "spec": spec})
        lab.alert_lacking(namespace, caller)
    rules = (SCALERS, "*", "*"), ("apps", "deployments", "get,patch")
    await lab.controller("platform", "traffic-autoscaler", _scaling(scaler), *rules, replicas=1)
    namespace, name, caller = places[0]
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 2)
    await publish(lab, namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    there = lab.world["Deployment"]
    await lab.until(lambda: all("ownerReferences" in there[place[0], place[1]]["metadata"] for place in places))
    yield
    by = lab.rng.choice(("alice", "bob", "carol"))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    body = {"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 9}}
    await lab.who[by].must("POST", path("HorizontalPodAutoscaler", namespace), body)
    await lab.pause(lab.rng.uniform(1.5, 3))
    await lab.culprit(by, "delete", scaler.name, namespace, name)
