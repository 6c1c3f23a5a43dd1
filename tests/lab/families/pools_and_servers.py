"""The machines and the servers of names that all else rests on: reinstalled, taken back, started with another file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab.alerts import pending
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.company import COREFILE
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.network import DNS, backends
from tests.lab.programs import every
from tests.lab.scenario import family

PEOPLE = ("alice", "bob", "carol")
CALLERS = (("shop", "frontend"), ("shop", "cart"), ("payments", "checkout"), ("search", "query"))


async def evict(lab: Lab, by: str, node: str) -> None:
    """What `kubectl drain` does once a node takes no more: pods of DaemonSets stay."""
    for (namespace, name), pod in list(lab.world["Pod"].items()):
        owners = {one["kind"] for one in pod["metadata"].get("ownerReferences", ())}
        if pod["spec"].get("nodeName") == node and "DaemonSet" not in owners:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await lab.who[by].call("POST", f"{path('Pod', namespace, name)}/eviction", body)


def is_empty(lab: Lab, node: str) -> bool:
    """Whether only pods of DaemonSets are left there."""
    left = (pod["metadata"] for pod in lab.world["Pod"].values() if pod["spec"].get("nodeName") == node)
    return all(any(one["kind"] == "DaemonSet" for one in meta.get("ownerReferences", ())) for meta in left)


@family(
    "The two machines with fast disks are installed anew one after the other, for a release of their system. Their"
    " nodes join again without the label that somebody had put on them by hand, and what asks for it finds no node.",
    joined=68,
)
async def reinstalled_pool(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose upgraded node pools lost what was set by kubectl label."""
    namespace, name, front = lab.rng.choice(
        (
            ("search", "segment-store", "results-api"),
            ("shop", "stock-cache", "stock-api"),
            ("media", "chunk-server", "video-api"),
        )
    )
    key, value = lab.rng.choice((("disktype", "ssd"), ("corp.example/disk", "nvme"), ("storage", "fast")))
    by, minor, pool = lab.rng.choice(PEOPLE), lab.rng.randrange(3, 30), lab.rng.sample(NODES, 2)
    for node in pool:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {key: value}}})
        await lab.kubelets.update(node, "v1.36.1")
    tag, selector = f"2.{minor}.1", {key: value}
    await lab.app(namespace, name, like=App("", load=20.0), replicas=3, tag=tag, nodeSelector=selector)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.4.0")
    await rolled(lab, namespace, name, tag)
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert("KubePodNotScheduled", lambda: pending(lab.world, namespace), "a pod has no node", 8, namespace=namespace)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "4.4.1")
    await lab.pause(lab.rng.uniform(1, 4))
    same = "a part of the same work: whoever installs a machine anew takes its node out of use, and away"
    for number, node in enumerate(pool):
        await lab.also(same, by, "update", "Node", "", node, {"spec": {"unschedulable": True}})
        await evict(lab, by, node)
        await lab.until(partial(is_empty, lab, node))
        lab.kubelets.crash(node)
        if number:
            await lab.also(same, by, "delete", "Node", "", node)
        else:
            await lab.culprit(by, "delete", "Node", "", node)
        await lab.pause(lab.rng.uniform(2, 3))
        await lab.kubelets.join(node, "v1.36.2", {"node.kubernetes.io/instance-type": "i4i.4xlarge"})
        await lab.kubelets.come_back(node, rebooted=True)
        await lab.pause(lab.rng.uniform(2, 4))


UNCLOSED = "plugin/forward: /etc/coredns/Corefile:{line} - Error during parsing: Unexpected EOF, expecting '}}'"


@dataclass
class _Servers:
    """Servers of names read their Corefile at their start, and none that does not parse; later it is passed over."""

    begun: set[str] = field(default_factory=set)
    """Uids of the pods whose server has started."""

    def look(self, container: Container) -> Problem | None:
        uid, corefile = str(container.pod["metadata"]["uid"]), container.config.get("Corefile", "")
        if corefile.count("{") == corefile.count("}"):
            self.begun.add(uid)
        if uid in self.begun:
            return None
        return Problem("crash", UNCLOSED.format(line=corefile.count("\n") + 1), at_once=True)


@family(
    "Somebody adds the zone of a partner to the Corefile, leaves out the brace that closes it, and ends the servers of"
    " names so that they take it up: none of the new ones starts, and no name of the cluster is resolved.",
    joined=68,
)
async def unclosed_block(lab: Lab) -> AsyncIterator[None]:
    """As many tell of CoreDNS that crashes at its start after its ConfigMap was edited by hand."""
    by, deploys = lab.rng.choice(PEOPLE), lab.rng.choice(("argocd", "ci"))
    partner = lab.rng.choice(("carrier", "acquirer", "warehouse", "printer", "insurer"))
    server = lab.rng.choice(("10.20.0.53", "10.31.4.53", "172.20.8.10", "10.44.1.53"))
    lab.apps[f"registry.corp.example/{'/'.join(DNS)}"].check = _Servers().look
    await lab.roll("admin", *DNS, "1.12.1")
    await rolled(lab, *DNS, "1.12.1")
    for place in CALLERS:
        lab.alert_lacking(*place)
    lab.alert_lacking(*DNS)
    await lab.until(lambda: all(backends(lab.world, *place) for place in CALLERS))
    await lab.until(lab.is_well)
    yield
    await lab.roll(deploys, *lab.rng.choice(CALLERS), "2.1.0")
    await lab.pause(lab.rng.uniform(3, 6))
    block = f"{partner}.example:53 {{\n    errors\n    cache 30\n    forward . {server}\n"
    await lab.culprit(by, "update", "ConfigMap", DNS[0], "coredns", {"data": {"Corefile": f"{COREFILE}{block}"}})
    await lab.pause(lab.rng.uniform(2, 5))
    why = "the servers were ended so that they take up what was edited, by the same hand"
    for namespace, name in [key for key in lab.world["Pod"] if key[0] == DNS[0] and key[1].startswith(f"{DNS[1]}-")]:
        await lab.also(why, by, "delete", "Pod", namespace, name)


CAPACITY = "eks.amazonaws.com/capacityType"


@dataclass
class _Notices:
    """What a provider says of machines that it takes back: two minutes before, and whoever hears it empties them."""

    lab: Lab
    nodes: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    async def heed(self, process: Process) -> None:
        for node in [one for one in self.nodes if one not in self.seen]:
            self.seen.add(node)
            taint = {"key": "aws-node-termination-handler/spot-itn", "value": node, "effect": "NoSchedule"}
            body: Json = {"spec": {"unschedulable": True, "taints": [taint]}}
            await process.api.call("PATCH", path("Node", None, node), body)
            for pod in (await process.api.call("GET", path("Pod"))).body.get("items", []):
                meta = pod["metadata"]
                owners = {one["kind"] for one in meta.get("ownerReferences", ())}
                if pod["spec"].get("nodeName") == node and "DaemonSet" not in owners:
                    body = {"metadata": {"namespace": meta["namespace"], "name": meta["name"]}}
                    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", **body}
                    where = f"{path('Pod', meta['namespace'], meta['name'])}/eviction"
                    await process.api.call("POST", where, eviction)


@family(
    "No culprit. Half of the cluster runs on machines that the provider may take back, and one afternoon it takes"
    " several within minutes, and has no others. Their pods are ended in time, and there is no room for all of them on"
    " what is left.",
    culprit=False,
    joined=68,
)
async def taken_back(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it who runs on spot instances."""
    namespace, name, front = lab.rng.choice(
        (
            ("media", "encoder", "upload-api"),
            ("search", "embedder", "similar-api"),
            ("shop", "route-solver", "delivery-api"),
        )
    )
    spot, number, notices = lab.rng.sample(NODES, 3), lab.rng.choice((2, 3)), _Notices(lab)
    for node in NODES:
        kind = "spot" if node in spot else "on-demand"
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {CAPACITY: kind}}})
    kept = {CAPACITY: "on-demand"}
    rules = (("", "nodes", "get,list,patch"), ("", "pods", "get,list"), ("", "pods/eviction", "create"))
    handler = ("kube-system", "node-termination-handler")
    await lab.controller(*handler, every(1, notices.heed), *rules, replicas=1, tag="1.25.0", nodeSelector=kept)
    await rolled(lab, *handler, "1.25.0")
    await lab.app(namespace, name, like=App("", load=40.0), replicas=10, tag="1.9.3")
    asking = {"requests": {"cpu": "6", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}
    strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 3}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": strategy}})
    await lab.roll("admin", namespace, name, "1.9.4", resources=asking)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.0.1")
    await rolled(lab, namespace, name, "1.9.4")
    await lab.until(lambda: backends(lab.world, namespace, front))
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=9)
    lab.alert("KubePodNotScheduled", lambda: pending(lab.world, namespace), "a pod has no node", 8, namespace=namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "3.0.2")
    await lab.pause(lab.rng.uniform(2, 7))
    for node in spot[:number]:
        notices.nodes.append(node)
        await lab.pause(lab.rng.uniform(2, 4))
    for node in spot[:number]:
        await lab.pause(lab.rng.uniform(0.5, 2))
        lab.kubelets.crash(node)
