"""Who takes pods away, and how many at once: a budget that another one has spent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import both, changes, every
from tests.lab.scenario import family

OF_OLD, ANEW = "1.4.2", "1.5.0"
LABEL, NEXT_LABEL, TAKES = "pool", "node.corp.example/pool", "rebalancer.corp.example/pool"
"""By which label the versions of a rebalancer know the pool of a node, and where an app says to which it belongs."""
POOL = "edge"
TAINT: Json = {"key": "dedicated", "value": POOL, "effect": "NoExecute"}
AGAIN_SECONDS, STUCK_SECONDS = 0.8, 32.0
"""After which an eviction that was refused is asked for again, and for how long a node may take to be emptied."""


async def evict(process: Process, pod: Json) -> bool:
    """Ask for it; whether it was let."""
    meta = {key: pod["metadata"][key] for key in ("namespace", "name")}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    return (await process.api.call("POST", f"{path('Pod', *meta.values())}/eviction", body)).ok


def _is_on(node: str, pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName") == node)


def _is_called(name: str, pod: Json) -> bool:
    return bool(pod["metadata"]["name"] == name)


@dataclass
class _Budgeted:
    """An app with a budget of one pod, and those who evict its pods: each may, as long as the budget lets it."""

    lab: Lab
    namespace: str
    name: str
    draining: dict[str, float] = field(default_factory=dict)
    """Nodes that are to be emptied, and since when."""
    renewing: list[str] = field(default_factory=list)

    async def listed(self, process: Process) -> list[Json]:
        where = f"{path('Pod', self.namespace)}?labelSelector=app.kubernetes.io/name={self.name}"
        items = (await process.api.call("GET", where)).body.get("items", [])
        return [one for one in items if "deletionTimestamp" not in one["metadata"]]

    async def balance(self, process: Process) -> None:
        """It watches budgets: as soon as one lets it, a pod goes that is not on a node of its pool."""
        room = asyncio.Event()

        def told(budget: Json) -> None:
            if budget["metadata"]["name"] == self.name:
                has_room = budget.get("status", {}).get("disruptionsAllowed", 0) > 0
                (room.set if has_room else room.clear)()

        async def act(process: Process) -> None:
            while True:
                chosen = await self._misplaced(process)
                if chosen is None:
                    await asyncio.sleep(2)
                    continue
                with suppress(TimeoutError):
                    await asyncio.wait_for(room.wait(), 2)
                if room.is_set() and await evict(process, chosen):
                    room.clear()
                elif room.is_set():
                    await asyncio.sleep(0.5)

        await both(lambda one: changes(one, path("PodDisruptionBudget", self.namespace), told, of_all=True), act)(
            process
        )

    async def _misplaced(self, process: Process) -> Json | None:
        """Whoever would be the next to go; a node that somebody has closed is left alone."""
        key = LABEL if process.tag == OF_OLD else NEXT_LABEL
        app = await process.api.call("GET", path("Deployment", self.namespace, self.name))
        nodes = (await process.api.call("GET", path("Node"))).body.get("items", [])
        if not app.ok:
            return None
        pool = app.body["metadata"]["annotations"][TAKES]
        right = {one["metadata"]["name"] for one in nodes if one["metadata"]["labels"].get(key) == pool}
        closed = {one["metadata"]["name"] for one in nodes if one["spec"].get("unschedulable")}
        there = [one for one in await self.listed(process) if is_ready(one)]
        misplaced = [one for one in there if one["spec"]["nodeName"] not in right | closed]
        return process.rng.choice(misplaced) if misplaced else None

    async def drain(self, process: Process) -> None:
        """As every week: a node is cordoned, emptied, and given back."""
        for node in list(self.draining):
            where = path("Node", None, node)
            await process.api.call("PATCH", where, {"spec": {"unschedulable": True}})
            await self._until_gone(process, partial(_is_on, node))
            await asyncio.sleep(2)
            await process.api.call("PATCH", where, {"spec": {"unschedulable": None}})
            del self.draining[node]

    async def renew(self, process: Process) -> None:
        """Pods that have had their certificate for a week, so that they get another one."""
        for name in list(self.renewing):
            await self._until_gone(process, partial(_is_called, name))
            self.renewing.remove(name)

    async def _until_gone(self, process: Process, is_meant: Callable[[Json], bool]) -> None:
        while rest := [one for one in await self.listed(process) if is_meant(one)]:
            for one in rest:
                await evict(process, one)
            await asyncio.sleep(AGAIN_SECONDS * process.rng.uniform(0.8, 1.2))

    def begin(self) -> None:
        """The hour of the week."""
        there = pods(self.lab.world, self.namespace, self.name)
        node = str(self.lab.rng.choice(there)["spec"]["nodeName"])
        self.draining[node] = now().timestamp()
        others = [one["metadata"]["name"] for one in there if one["spec"]["nodeName"] != node]
        self.renewing.append(str(self.lab.rng.choice(others)))

    def age(self) -> float:
        """For how long a node has been emptied by now."""
        return max((now().timestamp() - since for since in self.draining.values()), default=0.0)

    def is_over(self) -> bool:
        return not self.draining and not self.renewing


@family(
    "A new version of a rebalancer reads the pool of a node from another label, so all pods of an app seem misplaced:"
    " one is evicted as soon as the app's budget lets it, without end, and there is never anything left of it. Who"
    " empties nodes, as every week, is refused, asks again at once, and is louder than the one that spends the budget.",
    joined=43,
)
async def budget_spent(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: all who evict share what a budget allows, and whoever watches it is the first."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "session-store", "account-page"),
            ("media", "stream-edge", "live-page"),
            ("payments", "card-gateway", "card-page"),
        )
    )
    by, work = lab.rng.choice(("argocd", "flux", "ci")), _Budgeted(lab, namespace, name)
    for node in spare(lab, 3):
        body = {"metadata": {"labels": {LABEL: POOL}}, "spec": {"taints": [TAINT]}}
        await lab.edit("admin", "Node", "", node, body)
    where: Json = {"nodeSelector": {LABEL: POOL}, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    await lab.app(namespace, name, like=App("", start_seconds=4.0), replicas=6, tag="7.1.3", **where)
    await lab.edit("admin", "Deployment", namespace, name, {"metadata": {"annotations": {TAKES: POOL}}})
    selector = {"matchLabels": {"app.kubernetes.io/name": name}}
    meta, spec = {"namespace": namespace, "name": name}, {"maxUnavailable": 1, "selector": selector}
    await lab.apply({"kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.0.9")
    evicts, reads = ("", "pods/eviction", "create"), ("", "pods", "list")
    sees = ("", "nodes", "list"), ("apps", "deployments", "get"), ("policy", "poddisruptionbudgets", "list,watch")
    await lab.controller("platform", "rebalancer", work.balance, evicts, reads, *sees, replicas=1, tag=OF_OLD)
    drains = every(1, work.drain)
    await lab.controller("platform", "node-upgrader", drains, evicts, reads, ("", "nodes", "patch"), replicas=1)
    await lab.controller("platform", "certificate-refresher", every(1, work.renew), evicts, reads, replicas=1)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 6 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    labels = {"namespace": "platform", "service": "node-upgrader"}
    lab.measure("node_drain_age_seconds", work.age, "gauge", **labels)
    is_stuck = lambda: work.age() > STUCK_SECONDS  # noqa: E731
    lab.alert("NodeDrainStuck", is_stuck, "a node has been draining for too long", 4, **labels)
    await rolled(lab, "platform", "rebalancer", OF_OLD)
    async with before(lab, days=7):
        await lab.pause(2)
        work.begin()
        await lab.until(work.is_over)
        await lab.pause(6)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 6)
    yield
    await lab.roll(by, "platform", "rebalancer", ANEW, culprit=True)
    await lab.pause(lab.rng.uniform(12, 18))
    work.begin()
