"""What was told of members of a cluster: when all of them stop for one that joins, and who of them is the first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import unserved
from tests.lab.programs import every
from tests.lab.scenario import family

JOIN_SECONDS = 14.0
"""Until what a member holds has been looked through, and the whole is called healthy again."""
RECOVERY_SECONDS = 6.0
"""Until whoever watches over replication has a successor for a primary that is gone."""


@family(
    "A release of a content server asks for the health of its cluster, and stops its applications while that is red: it"
    " is so whenever a member goes or comes, and now all of them answer nothing meanwhile.",
    joined=14,
)
async def cluster_health(lab: Lab) -> AsyncIterator[None]:
    """As Enonic XP tells of its health check, which it took out again (2018)."""
    namespace, name = lab.rng.choice((("media", "cms"), ("shop", "pages"), ("search", "portal")))
    version, asks = "6.14.3", "6.15.0"
    seen: dict[str, datetime] = {}

    def check(container: Container) -> Problem | None:
        """A member that joins waits for itself too; the version of old never asked."""
        there = [pod for pod in pods(lab.world, namespace, name) if pod.get("status", {}).get("phase") == "Running"]
        joined = {seen.setdefault(pod["metadata"]["uid"], now()) for pod in there}
        going = len(there) < 3 or any("deletionTimestamp" in pod["metadata"] for pod in there)
        is_red = going or (now() - max(joined)).total_seconds() < JOIN_SECONDS
        if container.tag != asks or not is_red:
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503")

    await lab.app(namespace, name, like=App("", check=check), tag=version, replicas=3, kind="StatefulSet")
    host = await publish(lab, namespace, name)
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 3, job="blackbox", instance=f"https://{host}")
    yield
    template = lab.world["StatefulSet"][namespace, name]["spec"]["template"]["spec"]
    one = {**template["containers"][0], "image": f"registry.corp.example/{namespace}/{name}:{asks}"}
    body = {"spec": {"template": {"spec": {"containers": [one]}}}}
    await lab.culprit(lab.rng.choice(("ci", "argocd", "alice")), "update", "StatefulSet", namespace, name, body)


@dataclass
class _Replication:
    """A primary and two replicas. Each finds out at its start what it is, from who is the primary just then."""

    namespace: str
    name: str
    kind: Kind
    roles: dict[str, str] = field(default_factory=dict)
    """Of pods, by uid."""
    primary: str = ""
    """The uid of whoever is known as that."""
    lost: datetime | None = None

    async def sync(self, process: Process) -> None:
        """As its operator: containers ask for what the cluster's object says, and its nodes are as its status says."""
        where = path("StatefulSet", self.namespace, f"{self.name}-mysql")
        found = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        whole = await process.api.call("GET", where)
        listed = await process.api.call("GET", f"{path('Pod', self.namespace)}?labelSelector={self._selector()}")
        if not (found.ok and whole.ok and listed.ok):
            return
        [one] = whole.body["spec"]["template"]["spec"]["containers"]
        wanted = found.body["spec"]["podSpec"]["resources"]
        if one["resources"] != wanted:
            template = {"spec": {"containers": [{**one, "resources": wanted}]}}
            await process.api.call("PATCH", where, {"spec": {"template": template}})
        alive = [pod for pod in listed.body["items"] if _runs(pod)]
        self._decide(alive)
        for pod in alive:
            role = {"role": self.roles[pod["metadata"]["uid"]]}
            if not role.items() <= pod["metadata"]["labels"].items():
                place = path("Pod", self.namespace, pod["metadata"]["name"])
                await process.api.call("PATCH", place, {"metadata": {"labels": role}})
        status = {"readyNodes": len(alive), "nodes": [self._node(pod) for pod in alive]}
        if found.body.get("status") != status:
            await process.api.call("PATCH", self.kind.path(self.namespace, self.name), {"status": status})

    def _selector(self) -> str:
        return f"app.kubernetes.io/name={self.name}-mysql"

    def _decide(self, alive: list[Json]) -> None:
        """A pod that starts while there is no primary takes itself for it; a recovery goes on as it has begun."""
        uids = [str(pod["metadata"]["uid"]) for pod in sorted(alive, key=lambda pod: str(pod["metadata"]["name"]))]
        for uid in uids:
            self.primary = self.primary or uid
            orphaned = self.primary == uid or self.primary not in uids
            self.roles.setdefault(uid, "master" if orphaned else "replica")
        if self.primary and self.primary not in uids:
            self.lost = self.lost or now()
        if self.lost and (now() - self.lost).total_seconds() > RECOVERY_SECONDS:
            replicas = [uid for uid in uids if self.roles[uid] == "replica"]
            if replicas:
                self.primary, self.lost = replicas[0], None
                self.roles[self.primary] = "master"

    def _node(self, pod: Json) -> Json:
        is_master = self.roles[pod["metadata"]["uid"]] == "master"
        conditions = [
            {"type": "Master", "status": str(is_master)},
            {"type": "ReadOnly", "status": str(not is_master)},
            {"type": "Replicating", "status": str(not is_master)},
        ]
        return {"name": f"{pod['metadata']['name']}.mysql.{self.namespace}", "conditions": conditions}


def _runs(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


@family(
    "A database's pods are to ask for less memory, and are made anew one by one for it: the primary, the last of them,"
    " is back before anybody has taken its place, takes itself for the primary, and then there are two.",
    joined=14,
)
async def two_primaries(lab: Lab) -> AsyncIterator[None]:
    """As a user of the operator for MySQL of Presslabs tells (2019)."""
    namespace, name = lab.rng.choice((("shop", "orders"), ("payments", "accounts"), ("media", "comments")))
    database, group = f"{name}-mysql", "mysql.presslabs.org"
    cluster = await lab.custom("MysqlCluster", group, ANY)
    cluster_of = _Replication(namespace, name, cluster)
    resources = {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": "512Mi"}}

    def is_split() -> bool:
        nodes = lab.world["MysqlCluster"].get((namespace, name), {}).get("status", {}).get("nodes", ())
        found = [one for node in nodes for one in node["conditions"] if one["type"] == "Master"]
        return len([one for one in found if one["status"] == "True"]) > 1

    image = f"registry.corp.example/{namespace}/{database}"
    lab.apps[image] = App(image)
    manifest = objects.deployment(namespace, database, f"{image}:5.7.26", replicas=3, kind="StatefulSet")
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    await lab.apply(manifest)
    for service in (database, f"{database}-master"):
        await lab.apply(objects.service(namespace, service))
    to_primary = {"spec": {"selector": {"app.kubernetes.io/name": database, "role": "master"}}}
    await lab.edit("admin", "Service", namespace, f"{database}-master", to_primary)
    await lab.served(cluster)
    meta, spec = {"namespace": namespace, "name": name}, {"replicas": 3, "podSpec": {"resources": resources}}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "MysqlCluster", "metadata": meta, "spec": spec})
    rules = ((group, "mysqlclusters", "get,patch"), ("apps", "statefulsets", "get,patch"), ("", "pods", "list,patch"))
    await lab.controller("platform", "mysql-operator", every(0.5, cluster_of.sync), *rules, replicas=1)
    await lab.until(lambda: len(cluster_of.roles) == 3)
    await lab.app(namespace, name, like=App("", upstreams=((namespace, f"{database}-master"),)))
    labels = {"namespace": namespace, "cluster": name}
    lab.alert("MySQLMultipleMasters", is_split, f"more than one node of {name} is a master", 4, **labels)
    yield
    body = {"spec": {"podSpec": {"resources": {"requests": {"memory": lab.rng.choice(("256Mi", "384Mi"))}}}}}
    await lab.culprit(lab.rng.choice(("alice", "bob", "argocd")), "update", "MysqlCluster", namespace, name, body)
