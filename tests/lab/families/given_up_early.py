"""Who is ended before anything is wrong with it: by a check that asks for too much, for a node that is not full."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Problem, Process, millicores
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.loops import LOOSE
from tests.lab.families.moving import spare
from tests.lab.families.upgraded import TYPE, empty, replaced
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

WARM_SECONDS = 15.0
"""Until a process has filled its caches and answers."""
KARPENTER, GROUP, NODE_POOL = ("platform", "karpenter"), "karpenter.sh", "batch"
NEVER_FULL, ALSO_UNDERUSED = "WhenEmpty", "WhenEmptyOrUnderutilized"
LOW, NODE_CPU = 0.6, 16_000
"""The share of a node's processors, in thousandths, below which it is taken for underused."""
RUN_SECONDS, RUN_CPU, LATE_SECONDS = 26, "3", 42
DEDICATED: Json = {"key": "dedicated", "value": NODE_POOL, "effect": "NoExecute"}


@family(
    "That a process hangs was not noticed by a check of its port, so somebody has its liveness asked by the page that"
    " says how all is, which the readiness goes by too, and which asks the database. The next time that the database"
    " gets its weekly update, all processes are killed at once in place of waiting, and are slow to start.",
    joined=42,
)
async def one_check(lab: Lab) -> AsyncIterator[None]:
    """As told of one page for both probes, which pings the database (sivabuilds.com, helidon 435)."""
    namespace, name, other = lab.rng.choice(
        (
            ("shop", "baskets", "vouchers"),
            ("payments", "mandates", "dunning"),
            ("media", "channels", "adverts"),
        )
    )
    database, minor = f"{name}-db", lab.rng.randrange(3, 8)
    by, keeper = lab.rng.choice(("alice", "argocd", "ci")), lab.rng.choice(("bob", "flux"))

    def check(container: Container) -> Problem | None:
        """Whoever asks that page for its liveness kills what waits for its database; a port is open all the same."""
        asks = "httpGet" in container.spec.get("livenessProbe", {}) and container.seconds > WARM_SECONDS
        if asks and not backends(lab.world, namespace, database):
            return Problem("killed", "probe failed: HTTP probe failed with statuscode: 503")
        return None

    async def update(minor: int) -> None:
        there = lab.world["StatefulSet"][namespace, database]["spec"]["template"]["spec"]["containers"][0]
        image = str(there["image"]).rsplit(":", 1)[0]
        body = {"spec": {"template": {"spec": {"containers": [{**there, "image": f"{image}:16.{minor}"}]}}}}
        await lab.edit(keeper, "StatefulSet", namespace, database, body)

    like = App("", serves=False)
    await lab.app(namespace, database, like=like, kind="StatefulSet", replicas=1, tag=f"16.{minor}")
    like = App("", upstreams=((namespace, database),), start_seconds=WARM_SECONDS, check=check)
    lenient = {"periodSeconds": 10, "failureThreshold": 3}
    by_port = {"tcpSocket": {"port": 8080}, **lenient}
    await lab.app(namespace, name, like=like, replicas=4, tag="3.17.0", liveness=by_port)
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": surge}})
    await lab.app(namespace, other, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.9.4")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, other))
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, other)
    lab.alert_lacking(namespace, name, seconds=11)
    lab.alert_ingress_errors(namespace, namespace, 0.4, seconds=20)
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.pause(15)  # so that what is counted over some time is of that time
        await update(minor + 1)
        await rolled(lab, namespace, database, f"16.{minor + 1}")
        await lab.until(lab.is_well)
        await lab.pause(5)
    await lab.until(lab.is_well)
    yield
    by_page = {"httpGet": {"path": "/healthz", "port": 8080}, "timeoutSeconds": 1, **lenient}
    await lab.roll(by, namespace, name, "3.17.0", culprit=True, livenessProbe=by_page)

    def has_it() -> bool:
        there = backends(lab.world, namespace, name)
        return len(there) == 4 and all("httpGet" in one["spec"]["containers"][0]["livenessProbe"] for one in there)

    await lab.until(has_it)
    await lab.until(lab.is_well)
    await lab.pause(lab.rng.uniform(6, 14))
    await update(minor + 2)


@dataclass
class _Karpenter:
    """It may replace what is not full: the least used first, one at a time."""

    lab: Lab
    pools: Kind
    going: set[str] = field(default_factory=set)

    async def consolidate(self, process: Process) -> None:
        pool = await process.api.call("GET", self.pools.path(None, NODE_POOL))
        told = pool.body.get("spec", {}).get("disruption", {}).get("consolidationPolicy")
        listed = await process.api.call("GET", f"{path('Node')}?labelSelector=pool={NODE_POOL}")
        used = {one["metadata"]["name"]: await self._used(process, one) for one in listed.body.get("items", [])}
        low = sorted((share, node) for node, share in used.items() if 0 < share < LOW)
        if told == ALSO_UNDERUSED and low and not self.going:
            self.going.add(low[0][1])
            self.lab.start(self._replace(process, low[0][1]))

    async def _used(self, process: Process, node: Json) -> float:
        """The share of its processors that is asked for by what runs there."""
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node['metadata']['name']}")
        there = (one for one in listed.body.get("items", []) if one.get("status", {}).get("phase") != "Succeeded")
        asked = (
            container["resources"].get("requests", {}).get("cpu", "0")
            for one in there
            for container in one["spec"]["containers"]
        )
        return sum(map(millicores, asked)) / NODE_CPU

    async def _replace(self, process: Process, node: str) -> None:
        """By a machine that seems cheaper, and is of the same type in the end."""
        taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        await process.api.call("PATCH", path("Node", None, node), {"spec": {"taints": [DEDICATED, taint]}})
        await empty(process, node)
        await replaced(self.lab, process, node, "v1.36.1", {"pool": NODE_POOL, TYPE: "m7i.4xlarge"})
        await process.api.call("PATCH", path("Node", None, node), {"spec": {"taints": [DEDICATED]}})
        self.going.discard(node)


@family(
    "To save money, what provides nodes may now also replace those that are used too little, in place of those alone"
    " on which nothing runs. Each of the nodes for long runs is used little and replaced in turn: runs are evicted in"
    " their midst, begin anew elsewhere, and hardly one comes to its end.",
    joined=42,
)
async def emptied_early(lab: Lab) -> AsyncIterator[None]:
    """As users of Karpenter tell of nodes replaced by others of the same type (karpenter-provider-aws 3108, 8536)."""
    namespace, name = lab.rng.choice((("search", "ranking-training"), ("media", "encoding"), ("payments", "closing")))
    by, pool, general = lab.rng.choice(("carol", "flux", "argocd")), {"pool": NODE_POOL}, {"pool": "general"}
    karpenter = _Karpenter(lab, await lab.custom("NodePool", GROUP, LOOSE, namespaced=False))
    await lab.served(karpenter.pools)
    for node in spare(lab, 3):
        told = {"metadata": {"labels": {**pool, TYPE: "m7i.4xlarge"}}, "spec": {"taints": [DEDICATED]}}
        await lab.edit("admin", "Node", "", node, told)
    spec = {
        "template": {"metadata": {"labels": pool}, "spec": {"taints": [DEDICATED]}},
        "limits": {"cpu": "96"},
        "disruption": {"consolidationPolicy": NEVER_FULL, "consolidateAfter": "5m"},
    }
    meta = {"name": NODE_POOL}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": karpenter.pools.name, "metadata": meta, "spec": spec})
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, ends_after=RUN_SECONDS)

    async def submit(process: Process) -> None:
        """A run after the other, whatever became of the last ones."""
        where: Json = {"nodeSelector": pool, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
        template = objects.deployment(namespace, name, f"{image}:4.2.0", restartPolicy="Never", **where)
        pod = template["spec"]["template"]
        container = pod["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": RUN_CPU, "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
        del container["readinessProbe"]
        spec = {"template": pod, "backoffLimit": 1, "ttlSecondsAfterFinished": 30}
        meta = {"name": f"{name}-{int(now().timestamp())}", "labels": {"app.kubernetes.io/name": name}}
        await process.api.call("POST", path("Job", namespace), {"metadata": meta, "spec": spec})

    rights = (GROUP, "nodepools", "get,list"), ("", "nodes", "get,list,patch,delete"), ("", "pods", "list")
    evicts, work = ("", "pods/eviction", "create"), every(2, karpenter.consolidate)
    await lab.controller(*KARPENTER, work, *rights, evicts, replicas=1, tag="1.8.1", nodeSelector=general)
    runs = every(8, submit)
    await lab.controller(
        namespace, f"{name}-queue", runs, ("batch", "jobs", "create"), replicas=1, nodeSelector=general
    )

    def jobs() -> list[Json]:
        return [one for (home, _), one in lab.world["Job"].items() if home == namespace]

    def has_failed() -> bool:
        told = (condition for one in jobs() for condition in one.get("status", {}).get("conditions", ()))
        return any(one["type"] == "Failed" and one["status"] == "True" for one in told)

    def is_late() -> bool:
        since = stamp(now() - timedelta(seconds=LATE_SECONDS))
        return any(
            one["metadata"]["creationTimestamp"] < since and one.get("status", {}).get("active") for one in jobs()
        )

    lab.alert("KubeJobFailed", has_failed, f"a Job of {namespace} failed to complete", 4, namespace=namespace)
    lab.alert("KubeJobNotCompleted", is_late, f"a Job of {namespace} takes too long", 3, namespace=namespace)
    await lab.until(lambda: any(one.get("status", {}).get("succeeded") for one in jobs()))
    yield
    also = {"disruption": {"consolidationPolicy": ALSO_UNDERUSED, "consolidateAfter": "1m"}}
    await lab.culprit(by, "update", karpenter.pools.name, "", NODE_POOL, {"spec": also})
