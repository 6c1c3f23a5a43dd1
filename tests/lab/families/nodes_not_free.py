"""Nodes that are not free for what comes: kept for others, not drained, with a runtime that hangs; and a date."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from tests.lab.alerts import is_lost, pending, pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.manifests import place
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

DISK = {"machine.corp.example/disk": "nvme"}


@family(
    "The machines with the fast disks are to be one team's alone, and get a taint that only its pods tolerate. Another"
    " team's app needs such a disk too: its pods go on there, and those that are started anew find no node.",
    joined=77,
)
async def for_one_team_alone(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods had untolerated taints."""
    (home, owner), (namespace, name) = lab.rng.choice(
        (
            (("media", "transcoder"), ("search", "vector-index")),
            (("search", "ranking-trainer"), ("payments", "ledger-archive")),
            (("payments", "risk-engine"), ("media", "waveforms")),
        )
    )
    fast = sorted(lab.rng.sample(NODES, 2))
    by, is_released = lab.rng.choice(("carol", "alice")), lab.rng.random() < 0.5
    taint = {"key": "dedicated", "value": home, "effect": "NoSchedule"}
    tolerated = {"key": "dedicated", "operator": "Equal", "value": home, "effect": "NoSchedule"}
    for node in fast:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": DISK}})
    await lab.app(home, owner, replicas=3, tag="6.0.1", nodeSelector=DISK, tolerations=[tolerated])
    await lab.app(namespace, name, replicas=3, tag="2.4.0", nodeSelector=DISK)
    await rolled(lab, namespace, name, "2.4.0")
    await rolled(lab, home, owner, "6.0.1")
    no_node = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", no_node, f"a pod in {namespace} has no node", 10, namespace=namespace)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=10)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", home, owner, "6.1.0")
    await lab.pause(lab.rng.uniform(3, 6))
    for node in fast:
        taints = [*lab.world["Node"]["", node]["spec"].get("taints", ()), taint]
        await lab.culprit(by, "update", "Node", "", node, {"spec": {"taints": taints}})
    await lab.pause(lab.rng.uniform(6, 14))
    if is_released:
        await lab.roll("argocd", namespace, name, "2.5.0")
    else:
        pod = lab.rng.choice(pods(lab.world, namespace, name))
        await lab.who["bob"].must("DELETE", place(pod))


POOL, POOL_LABEL = "vectors", "pool.corp.example/name"
UPGRADER = ("kube-system", "node-upgrader")


@dataclass
class _Upgrader:
    """What brings the nodes of a pool to its version, one at a time: each is emptied before."""

    lab: Lab

    async def step(self, process: Process) -> None:
        pool = await process.api.call("GET", path("NodePool", None, POOL))
        nodes = await process.api.call("GET", f"{path('Node')}?labelSelector={POOL_LABEL}={POOL}")
        if not (pool.ok and nodes.ok):
            return
        version = pool.body["spec"]["version"]
        behind = [one for one in nodes.body["items"] if one["status"]["nodeInfo"]["kubeletVersion"] != version]
        if not behind:
            return
        name = min(one["metadata"]["name"] for one in behind)
        where = path("Node", None, name)
        await process.api.call("PATCH", where, {"spec": {"unschedulable": True}})
        there = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={name}")
        if not there.ok:
            return
        left = [one for one in there.body["items"] if not _stays(one)]
        for pod in left:
            if "deletionTimestamp" not in pod["metadata"]:
                meta = {key: pod["metadata"][key] for key in ("namespace", "name")}
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
                await process.api.call("POST", f"{place(pod)}/eviction", body)
        if not left:
            await self.lab.kubelets.update(name, version)
            await process.api.call("PATCH", where, {"spec": {"unschedulable": None}})

    def is_through(self, version: str) -> bool:
        found = [self.lab.world["Node"]["", name] for name in self.nodes()]
        return all(
            one["status"]["nodeInfo"]["kubeletVersion"] == version and not one["spec"].get("unschedulable")
            for one in found
        )

    def nodes(self) -> list[str]:
        found = self.lab.world["Node"].values()
        return sorted(one["metadata"]["name"] for one in found if one["metadata"]["labels"].get(POOL_LABEL) == POOL)


def _stays(pod: Json) -> bool:
    """Whether it is of a DaemonSet."""
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))


async def _set_apart(lab: Lab, nodes: list[str], taint: Json) -> None:
    """A pool of its own: what runs there has to go elsewhere."""
    for node in nodes:
        body = {"metadata": {"labels": {POOL_LABEL: POOL}}, "spec": {"taints": [taint]}}
        await lab.edit("admin", "Node", "", node, body)
        await lab.kubelets.update(node, "v1.35.2")

    def strangers() -> list[Json]:
        found = lab.world["Pod"].values()
        return [one for one in found if one["spec"].get("nodeName") in nodes and not _stays(one)]

    for pod in strangers():
        await lab.who["admin"].must("DELETE", place(pod))
    await lab.until(lambda: not strangers())


@family(
    "A team gives its app a budget by which none of its pods may be away, as it is not to be disturbed. The pool's"
    " upgrade, which is done each month, empties one node after another and comes to one that it cannot empty.",
    joined=77,
)
async def none_may_be_away(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of a drain that says that it would violate the pod's disruption budget."""
    namespace, name, beside = lab.rng.choice(
        (("search", "embeddings", "neighbours"), ("media", "face-index", "cropper"), ("shop", "alike", "alike-trainer"))
    )
    by, upgrades = lab.rng.choice(("alice", "bob", "carol", "ci")), lab.rng.choice(("flux", "carol"))
    kept: Json = {"minAvailable": lab.rng.choice((3, "100%"))} if lab.rng.random() < 0.5 else {"maxUnavailable": 0}
    bound = {
        pod["spec"]["nodeName"] for where, account, _ in ROBOTS.values() for pod in pods(lab.world, where, account)
    }
    chosen = sorted(lab.rng.sample([one for one in NODES if one not in bound], 3))
    taint = {"key": "dedicated", "value": POOL, "effect": "NoSchedule"}
    await _set_apart(lab, chosen, taint)
    there: Json = {"nodeSelector": {POOL_LABEL: POOL}, "tolerations": [{**taint, "operator": "Equal"}]}
    await lab.app(namespace, name, replicas=3, tag="1.8.0", **there)
    await lab.app(namespace, beside, replicas=2, tag="0.9.3", **there)
    await rolled(lab, namespace, name, "1.8.0")
    await rolled(lab, namespace, beside, "0.9.3")
    pool, upgrader = await lab.custom("NodePool", "infra.corp.example", ANY, namespaced=False), _Upgrader(lab)
    await lab.served(pool)
    await lab.apply({"kind": "NodePool", "metadata": {"name": POOL}, "spec": {"version": "v1.35.2", "size": 3}})
    rules = (
        ("", "nodes", "get,list,patch"),
        ("", "pods", "get,list"),
        ("", "pods/eviction", "create"),
        ("infra.corp.example", "nodepools", "get,list"),
    )
    await lab.controller(*UPGRADER, every(1.0, upgrader.step), *rules, replicas=1, tag="0.30.1")
    await rolled(lab, *UPGRADER, "0.30.1")

    def is_cordoned() -> bool:
        return any(lab.world["Node"]["", one]["spec"].get("unschedulable") for one in chosen)

    summary = f"a node of the pool {POOL} is being emptied for its upgrade and does not get empty"
    lab.alert("NodePoolUpgradeStuck", is_cordoned, summary, 32, pool=POOL)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.choice((28, 35))):
        await lab.edit(upgrades, "NodePool", "", POOL, {"spec": {"version": "v1.35.3"}})
        await lab.until(lambda: upgrader.is_through("v1.35.3"))
        await lab.pause(2)
    yield
    await lab.roll("ci", namespace, beside, "0.9.4")
    await lab.pause(lab.rng.uniform(2, 5))
    labels = {"matchLabels": {"app.kubernetes.io/name": name}}
    body = {"metadata": {"name": name}, "spec": {**kept, "selector": labels}}
    await lab.culprit(by, "create", "PodDisruptionBudget", namespace, name, body)
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.edit(upgrades, "NodePool", "", POOL, {"spec": {"version": "v1.35.5"}})


@family(
    "No culprit. The container runtime of a node that has been up for months does not answer any more: what runs there"
    " goes on, nothing is started or ended there, and the next release waits for its pods on that node.",
    culprit=False,
    joined=77,
)
async def runtime_up_for_months(lab: Lab) -> AsyncIterator[None]:
    """As all tell whose node says that PLEG is not healthy."""
    namespace, name = lab.rng.choice((("search", "synonyms"), ("shop", "tax-rates"), ("payments", "card-vault")))
    node = lab.rng.choice(NODES)
    boots = {one: now().timestamp() - 86400 * lab.rng.uniform(20, 60) for one in NODES}
    boots[node] = now().timestamp() - 86400 * lab.rng.uniform(110, 190)
    await lab.app(namespace, name, replicas=8, tag="3.3.0")
    await rolled(lab, namespace, name, "3.3.0")
    lab.reserve(namespace, name)
    for one in NODES:
        told = {"namespace": "monitoring", "service": "node-agent", "node": one}
        lab.measure("node_boot_time_seconds", partial(boots.get, one), **told)
    lost = lambda: is_lost(lab.world, node)  # noqa: E731
    lab.alert("KubeNodeNotReady", lost, f"{node} has not been ready for a while", 10, node=node)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=10)
    await lab.until(lab.is_well)

    async def hang() -> None:
        lab.outside.stalled.add(node)
        await lab.pause(lab.rng.uniform(1, 4))
        await lab.roll("ci", namespace, name, "3.3.2")

    yield
    await lab.roll("ci", namespace, name, "3.3.1")
    await lab.pause(lab.rng.uniform(9, 14))
    lab.start(hang())


@family(
    "No culprit. The certificate of a public name was bought for a year and put into its Secret by hand. The year is"
    " over, whoever had it in their calendar has left, and nobody gets a connection by that name.",
    culprit=False,
    joined=77,
)
async def bought_for_a_year(lab: Lab) -> AsyncIterator[None]:
    """The oldest of all outages."""
    namespace, name, done = lab.rng.choice(
        (
            ("payments", "partner-api", "partner_transfers_total"),
            ("shop", "storefront-api", "baskets_paid_total"),
            ("media", "embed-player", "plays_started_total"),
        )
    )
    secret, users = f"{namespace}-tls-by-hand", lab.rng.uniform(18, 30)
    host = f"{namespace}.corp.example"

    def comes() -> float:
        """Those from within go on."""
        return 0.1 * users if host in lab.outside.unreached else users

    pair = {"tls.crt": f"certificate of {host}", "tls.key": "key"}
    meta = {"namespace": namespace, "name": secret}
    await lab.apply({"kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls", "stringData": pair})
    await lab.app(namespace, name, like=App("", asked=comes), replicas=3, tag="7.1.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    tls = [{"hosts": [host], "secretName": secret}]
    await lab.edit("admin", "Ingress", namespace, namespace, {"spec": {"tls": tls}})
    lab.measure(done, lab.adding_up(lambda: 0.3 * comes()), "counter", namespace=namespace, service=name)
    instance = f"https://{host}"
    ends = now() + timedelta(seconds=lab.rng.uniform(76, 84))  # some time after it begins
    told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": instance}
    lab.measure("probe_ssl_earliest_cert_expiry", ends.timestamp, **told)
    lab.measure("probe_success", lambda: float(host not in lab.outside.unreached), **told)
    fails = lambda: host in lab.outside.unreached  # noqa: E731
    why = f"{instance}: x509: certificate has expired or is not yet valid"
    lab.alert("ProbeFailed", fails, why, 8, job="blackbox", instance=instance)
    await lab.until(lab.is_well)

    async def wait() -> None:
        await asyncio.sleep(max(0.0, (ends - now()).total_seconds()))
        lab.outside.unreached.add(host)

    yield
    await lab.roll("ci", namespace, name, "7.1.1")
    lab.start(wait())
