"""What is tied to what: a right to the name of an account, a deployment to its autoscaler, a pod to its one disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Kind, now, path
from tests.lab.apps import App, Container, Process, Program
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
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


HOLDS, FREED_BY_ONE = "16Gi", "8400Mi"
"""What a member of a storage asks for, and what a machine under test does."""
LONG_SECONDS = (45.0, 75.0)
RETRY_SECONDS = 6.0
"""For how long a client of the storage tries again, as members are updated now and then."""


def _polling(name: str) -> Program:
    """As what tests each image that is published: there are always more than it may test at once."""

    async def poll(process: Process) -> None:
        listed = await process.api.call(
            "GET", f"{path('Pod', 'imagetests')}?labelSelector=app.kubernetes.io/name={name}"
        )
        there = [one for one in listed.body.get("items", []) if "deletionTimestamp" not in one["metadata"]]
        for one in there if listed.ok else ():
            if one["status"].get("phase") == "Succeeded":
                await process.api.call("DELETE", path("Pod", "imagetests", one["metadata"]["name"]))
        open_ones = sum(one["status"].get("phase") != "Succeeded" for one in there)
        for _ in range(int(process.config["MAX_CONCURRENT"]) - open_ones if listed.ok else 0):
            image = f"registry.corp.example/imagetests/{name}:5.2.0"
            made = objects.deployment("imagetests", name, image, restartPolicy="Never")["spec"]["template"]
            [one] = made["spec"]["containers"]
            del one["readinessProbe"]
            one["resources"] = {"requests": {"cpu": "1", "memory": FREED_BY_ONE}, "limits": {"memory": "9Gi"}}
            made["metadata"]["name"] = f"{name}-{process.rng.randrange(16**6):06x}"
            await process.api.call("POST", path("Pod", "imagetests"), made)

    return every(2, poll)


@family(
    "What tests images may start many more machines at once, which ask for much memory and take all that nodes have:"
    " a member of a storage, tied to one node by its disk, is made anew by a harmless update and has no room there.",
    joined=21,
)
async def room_taken(lab: Lab) -> AsyncIterator[None]:
    """As Bluefin's laboratory tells of its cache of builds (July 2026, projectbluefin/lab 273)."""
    namespace, name, caller = lab.rng.choice(
        (("buildcache", "storage", "frontend"), ("artifacts", "shards", "gateway"), ("datalake", "store", "reader"))
    )
    vm, poller, few, many = "test-vm", "image-poller", "3", lab.rng.choice(("60", "64", "72"))
    homes = lab.rng.sample(NODES, 3)
    await lab.namespace(namespace)
    await lab.namespace("imagetests")
    wait = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "local-nvme"}, **wait})
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-nvme"}
    room = {"capacity": {"storage": "800Gi"}, "local": {"path": "/mnt/nvme0"}, **claim}
    for node in homes:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        tied = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
        meta = {"name": f"local-nvme-{node}"}
        await lab.apply({"kind": "PersistentVolume", "metadata": meta, "spec": {**room, "nodeAffinity": tied}})
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    body = objects.deployment(namespace, name, f"{image}:1.0.0", kind="StatefulSet", replicas=3)
    [one] = body["spec"]["template"]["spec"]["containers"]
    one["volumeMounts"] = [{"name": "data", "mountPath": "/var/lib/data"}]
    one["resources"] = {"requests": {"cpu": "1", "memory": HOLDS}, "limits": {"memory": HOLDS}}
    wanted = {**claim, "resources": {"requests": {"storage": "800Gi"}}}
    body["spec"] |= {"serviceName": name, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": wanted}]}
    await lab.apply(objects.service(namespace, name))
    await lab.apply(body)

    whole = [now()]  # when all members were there last

    def missing(_: Container) -> float:
        """Each member has a third of what is asked for, and whoever asks tries again for some seconds."""
        there = sum(is_ready(pod) for pod in pods(lab.world, namespace, name))
        if there >= 3:
            whole[0] = now()
        return (3 - there) / 3 if (now() - whole[0]).total_seconds() > RETRY_SECONDS else 0.0

    await lab.until(lambda: sum(is_ready(pod) for pod in pods(lab.world, namespace, name)) == 3)
    like = App("", upstreams=((namespace, name),), failing=missing)
    await lab.app(namespace, caller, like=like, replicas=2)
    tested = f"registry.corp.example/imagetests/{vm}"
    lab.apps[tested] = App(tested, ends_after=lab.rng.uniform(*LONG_SECONDS))
    await lab.apply(objects.config_map("imagetests", poller, MAX_CONCURRENT=few, CHANNEL="testing"))
    rule = ("", "pods", "list,create,delete")
    await lab.controller("imagetests", poller, _polling(vm), rule, replicas=1, config=poller)
    await lab.until(lambda: len(pods(lab.world, "imagetests", vm)) == int(few))
    summary = f"a pod of {namespace} has had no node for a while"
    lab.alert("KubePodPending", lambda: pending(lab.world, namespace), summary, 8, namespace=namespace)
    lab.alert_errors(namespace, caller)
    yield
    by = lab.rng.choice(("bob", "flux", "carol"))
    await lab.culprit(by, "update", "ConfigMap", "imagetests", poller, {"data": {"MAX_CONCURRENT": many}})
    await lab.pause(lab.rng.uniform(9, 13))
    body = {"spec": {"template": {"spec": {"containers": [{**one, "image": f"{image}:1.0.1"}]}}}}
    await lab.edit(lab.rng.choice(("argocd", "ci")), "StatefulSet", namespace, name, body)
