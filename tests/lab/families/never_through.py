"""What is never through: a node that is to be emptied, a queue into which all comes back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.taking_turns_out import evict
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import both, changes, every, lagging
from tests.lab.scenario import family

FRESH_SECONDS = 9
"""For how long a new pod has to be ready before a rollout goes on."""
AGAIN_SECONDS, STUCK_SECONDS = 1.5, 22.0
"""After which an eviction that was refused is asked for again, and for how long a node may take to be emptied."""
OF_OLD, OF_LAST_WEEK, ANEW = "3.7.0", "3.8.0", "3.9.0"
NEEDED = "FEATURE_STORE_URL"
POOL = "pool"
TAINT: Json = {"key": "dedicated", "value": "inference", "effect": "NoExecute"}


@dataclass
class _Replacement:
    """Nodes whose machines are replaced: which are to be emptied, and since when."""

    lab: Lab
    emptying: dict[str, float] = field(default_factory=dict)

    async def replace(self, process: Process) -> None:
        """A node is cordoned, emptied of all but what is on every node, and is there again with a new machine."""
        for node in list(self.emptying):
            where = path("Node", None, node)
            await process.api.call("PATCH", where, {"spec": {"unschedulable": True}})
            while rest := await self._left(process, node):
                for one in rest:
                    if "deletionTimestamp" not in one["metadata"]:
                        await evict(process, one)
                await asyncio.sleep(AGAIN_SECONDS * process.rng.uniform(0.8, 1.2))
            await asyncio.sleep(3)
            await process.api.call("PATCH", where, {"spec": {"unschedulable": None}})
            self.emptying.pop(node, None)

    async def _left(self, process: Process, node: str) -> list[Json]:
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
        return [one for one in listed.body.get("items", []) if not _is_of_node(one)]

    def begin(self, namespace: str, name: str, tag: str) -> None:
        """The week's turn of a node that has a ready pod of an app, of this version."""
        there = [one for one in pods(self.lab.world, namespace, name) if is_ready(one)]
        homes = {one["spec"]["nodeName"] for one in there if images(one)[0].endswith(f":{tag}")}
        self.emptying[self.lab.rng.choice(sorted(homes))] = now().timestamp()

    def age(self) -> float:
        """For how long a node has been emptied by now."""
        return max((now().timestamp() - since for since in self.emptying.values()), default=0.0)


def _is_of_node(pod: Json) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))


def _lacks_setting(container: Container) -> Problem | None:
    """From a version on it is ready once it has asked what it has the address of in its settings."""
    if container.tag != ANEW or NEEDED in container.config:
        return None
    return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503")


@family(
    "The release of an app lacks a setting, so its new pods are not ready, and the rollout stops where no user notices:"
    " those of before serve on. But with that the app's budget is spent, and as machines are replaced in turn, as each"
    " week, the node of one of them is never empty.",
    joined=45,
)
async def halted_rollout(lab: Lab) -> AsyncIterator[None]:
    """Of the documentation of budgets: pods that are not ready count, whatever the reason."""
    namespace, name = lab.rng.choice((("search", "ranker"), ("shop", "upsell"), ("media", "for-you")))
    by, work = lab.rng.choice(("ci", "argocd", "flux")), _Replacement(lab)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="450"))
    for node in spare(lab, 3):
        body = {"metadata": {"labels": {POOL: name}}, "spec": {"taints": [TAINT]}}
        await lab.edit("admin", "Node", "", node, body)
    where: Json = {"nodeSelector": {POOL: name}, "tolerations": [{"key": TAINT["key"], "operator": "Exists"}]}
    like = App("", check=_lacks_setting)
    await lab.app(namespace, name, like=like, replicas=6, tag=OF_OLD, config=name, **where)
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"minReadySeconds": FRESH_SECONDS}})
    selector = {"matchLabels": {"app.kubernetes.io/name": name}}
    meta, spec = {"namespace": namespace, "name": name}, {"maxUnavailable": 1, "selector": selector}
    await lab.apply({"kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}, "bob")
    rights = ("", "pods/eviction", "create"), ("", "pods", "list"), ("", "nodes", "patch")
    await lab.controller("platform", "node-replacer", every(1, work.replace), *rights, replicas=1, tag="2.3.0")
    await rolled(lab, namespace, name, OF_OLD)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name)
    labels = {"namespace": "platform", "service": "node-replacer"}
    lab.measure("node_drain_age_seconds", work.age, "gauge", **labels)
    is_stuck = lambda: work.age() > STUCK_SECONDS  # noqa: E731
    lab.alert("NodeDrainStuck", is_stuck, "a node has been draining for too long", 4, **labels)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=7):  # there is a release each week, and machines are replaced each week
        await lab.roll(by, namespace, name, OF_LAST_WEEK)
        await lab.pause(8)
        await rolled(lab, namespace, name, OF_LAST_WEEK)
        await lab.pause(FRESH_SECONDS)
        work.begin(namespace, name, OF_LAST_WEEK)
        await lab.until(lambda: not work.emptying)
        await lab.pause(4)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 6)
    yield
    await lab.roll(by, namespace, name, ANEW, culprit=True)
    await lab.pause(lab.rng.uniform(12, 18))
    work.begin(namespace, name, OF_LAST_WEEK)


GROUP, FINALIZER = "storage.corp.example", "buckets.corp.example/release"
CLAIMS, LOOK_SECONDS = 64, 0.1
"""How many buckets there are, and for how long their operator looks at one, which is outside of the cluster."""
STUCK_ONLY, ORPHANED_TOO = "0.9.4", "0.10.0"
STUCK_AFTER = timedelta(seconds=60)
ORDER_EVERY, KEPT_SECONDS, LATE_SECONDS = 2.0, 14.0, 3.5


@dataclass
class _Buckets:
    """Claims of buckets, which an operator makes outside, and deletes there before it lets go of a claim."""

    lab: Lab
    kind: Kind

    async def operate(self, process: Process) -> None:
        """One after another of those of which something was told, each of which waits in the queue once."""
        queue: dict[tuple[str, str], None] = {}

        def told(one: Json) -> None:
            queue[one["metadata"]["namespace"], one["metadata"]["name"]] = None

        async def work(process: Process) -> None:
            while True:
                if not queue:
                    await asyncio.sleep(0.05)
                    continue
                key = next(iter(queue))
                del queue[key]
                await self._reconcile(process, self.kind.path(*key))

        await both(lambda one: changes(one, self.kind.path(), told, of_all=True), work)(process)

    async def _reconcile(self, process: Process, where: str) -> None:
        found = await process.api.call("GET", where)
        if not found.ok:
            return
        finalizers = found.body["metadata"].get("finalizers", [])
        if "deletionTimestamp" in found.body["metadata"]:
            await asyncio.sleep(LOOK_SECONDS)
            await process.api.call("PATCH", where, {"metadata": {"finalizers": None}})
            return
        if FINALIZER not in finalizers:
            await process.api.call("PATCH", where, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
        await asyncio.sleep(LOOK_SECONDS)
        if "status" not in found.body:
            await process.api.call("PATCH", where, {"status": {"phase": "Ready", "endpoint": "s3.corp.example"}})

    async def tidy(self, process: Process) -> None:
        """What has been going for long is let go; from a version on also what seems to have no controller.

        Whose finalizer names no group of the API has none to it, and an operator may call its own as it likes.
        """
        if process.tag == ORPHANED_TOO:
            await lagging(process)
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            meta = one["metadata"]
            since = meta.get("deletionTimestamp")
            is_stuck = since and now() - datetime.fromisoformat(since) > STUCK_AFTER
            if meta.get("finalizers") and (is_stuck or process.tag == ORPHANED_TOO):
                where = self.kind.path(meta["namespace"], meta["name"])
                await process.api.call("PATCH", where, {"metadata": {"finalizers": None}})


def _age(one: Json) -> float:
    return (now() - datetime.fromisoformat(one["metadata"]["creationTimestamp"])).total_seconds()


@dataclass
class _Portal:
    """Who orders a bucket for each preview: for how long the oldest order waits, and what became of the last ones."""

    kind: Kind
    waiting: float = 0.0
    lately: deque[bool] = field(default_factory=lambda: deque(maxlen=8))

    async def order(self, process: Process) -> None:
        where = self.kind.path("platform")
        listed = (await process.api.call("GET", where)).body.get("items", [])
        there = {_age(one): one for one in listed if "deletionTimestamp" not in one["metadata"]}
        self.waiting = max((age for age, one in there.items() if "status" not in one), default=0.0)
        self.lately.append(self.waiting > LATE_SECONDS)
        for one in [one for age, one in there.items() if age > KEPT_SECONDS]:
            await process.api.call("DELETE", f"{where}/{one['metadata']['name']}")
        meta = {"name": f"preview-{process.rng.getrandbits(24):06x}"}
        body = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "metadata": meta, "spec": {"size": "1Gi"}}
        await process.api.call("POST", where, body)

    def late(self, _: Container) -> float:
        """Some of what it is asked is for a bucket."""
        return 0.4 * self.lately.count(True) / len(self.lately) if self.lately else 0.0


@family(
    "A new version of what lets go of objects that are stuck takes a finalizer for orphaned if it names no group of the"
    " API. That of an operator for buckets never did: one takes it away from all claims, the other puts it back at"
    " each, without end, and whoever orders a bucket waits behind them.",
    joined=45,
)
async def finalizer_fight(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: a finalizer is a field as any other, and both are sure that it is theirs."""
    portal, by = lab.rng.choice(("preview-portal", "branch-portal")), lab.rng.choice(("flux", "argocd", "alice"))
    tidier = lab.rng.choice(("finalizer-janitor", "stuck-object-cleaner"))
    kind = await lab.custom("BucketClaim", GROUP, ANY)
    await lab.served(kind)
    work, orders = _Buckets(lab, kind), _Portal(kind)
    for number in range(CLAIMS):
        meta = {"namespace": tuple(APPS)[number % len(APPS)], "name": f"bucket-{number:02}", "finalizers": [FINALIZER]}
        status = {"phase": "Ready", "endpoint": "s3.corp.example"}
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": {"size": "50Gi"}}
        await lab.apply({**body, "status": status})
    own = (GROUP, kind.plural, "get,list,watch,patch")
    await lab.controller("platform", "bucket-operator", work.operate, own, replicas=1, tag="2.5.0")
    await lab.controller("platform", tidier, every(1.5, work.tidy), own, replicas=1, tag=STUCK_ONLY)
    rights = (GROUP, kind.plural, "list,create,delete")
    app = await lab.controller("platform", portal, every(ORDER_EVERY, orders.order), rights, replicas=1, tag="1.3.0")
    app.serves, app.failing, app.fails_with = True, orders.late, lambda _: "504"
    await lab.until(lambda: backends(lab.world, "platform", portal))
    await publish(lab, "platform", portal)
    labels = {"namespace": "platform", "service": portal}
    lab.measure("bucket_orders_oldest_waiting_seconds", lambda: orders.waiting, "gauge", **labels)
    is_late = lambda: orders.waiting > LATE_SECONDS  # noqa: E731
    lab.alert("BucketOrdersLate", is_late, f"buckets that {portal} has ordered do not come", 5, **labels)
    lab.alert_errors("platform", portal, 0.1)
    await rolled(lab, "platform", tidier, STUCK_ONLY)
    await lab.pause(15)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, "platform", tidier, ORPHANED_TOO, culprit=True)
