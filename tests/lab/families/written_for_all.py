"""What is written for many at once: the settings of all kubelets, a policy for all that an app may call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from tests.lab import objects
from tests.lab.alerts import is_lost
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

AGENT, SETTINGS = "kubelet-settings", "kubelet-config"
APPLIED = "kubelet.corp.example/applied"
SPLAY = (1.0, 26.0)
"""Seconds after which an agent applies what it has seen: not all of them at once."""
CGROUP = "systemReservedCgroup: /system.slice\n"


def _settings(*enforced: str, cgroup: bool) -> str:
    """A KubeletConfiguration."""
    listed = "".join(f"- {one}\n" for one in enforced)
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    kept = "cgroupDriver: systemd\nclusterDomain: cluster.local\nmaxPods: 110\nsystemReserved:\n  cpu: 200m\n"
    return f"{head}{kept}  memory: 1Gi\n{CGROUP if cgroup else ''}enforceNodeAllocatable:\n{listed}"


def _is_valid(settings: str) -> bool:
    """As a kubelet looks at its file before anything else: it ends where something is enforced on no cgroup."""
    return "- system-reserved\n" not in settings or CGROUP in settings


@dataclass
class _Agents:
    """They keep the file of their node's kubelet as a ConfigMap has it, and restart that one for it."""

    lab: Lab
    due: dict[str, tuple[str, float]] = field(default_factory=dict)
    """What each node has seen, and when it applies that."""

    async def look(self, process: Process) -> None:
        node = process.see().pod["spec"]["nodeName"]
        found = await process.api.call("GET", path("ConfigMap", "kube-system", SETTINGS))
        there = await process.api.call("GET", path("Node", None, node))
        if not found.ok or not there.ok:
            return
        settings = found.body["data"]["kubelet"]
        mark = sha256(settings.encode()).hexdigest()[:12]
        if there.body["metadata"].get("annotations", {}).get(APPLIED) == mark:
            return
        if self.due.get(node, ("", 0.0))[0] != mark:
            self.due[node] = mark, now().timestamp() + process.rng.uniform(*SPLAY)
        if now().timestamp() < self.due[node][1]:
            return
        body = {"metadata": {"annotations": {APPLIED: mark}}}
        if (await process.api.call("PATCH", path("Node", None, node), body)).ok:
            silent = self.lab.outside.silent_nodes
            (silent.discard if _is_valid(settings) else silent.add)(node)

    def has_all(self) -> bool:
        """Whether all nodes are at the same settings, which are those of now."""
        settings = self.lab.world["ConfigMap"][("kube-system", SETTINGS)]["data"]["kubelet"]
        mark = sha256(settings.encode()).hexdigest()[:12]
        nodes = (self.lab.world["Node"].get(("", node), {}) for node in NODES)
        return all(one.get("metadata", {}).get("annotations", {}).get(APPLIED) == mark for one in nodes)


@family(
    "What is set aside for the system is to be enforced on every node, as in a sibling. Kubelets demand that its cgroup"
    " is named with that, as it is in the sibling's settings and not in these: an agent writes the file on one node"
    " after another, and no kubelet that is restarted with it comes up again.",
    joined=44,
)
async def kubelet_settings(lab: Lab) -> AsyncIterator[None]:
    """As documentation warns of: with settings that are not valid a kubelet does not start (openshift-docs 27393)."""
    by = lab.rng.choice(("alice", "bob", "flux"))
    agents, enforced = _Agents(lab), ("pods", "system-reserved")
    await lab.apply(objects.config_map("kube-system", SETTINGS, kubelet=_settings("pods", cgroup=True)))
    rights = ("", "configmaps", "get"), ("", "nodes", "get,patch")
    await lab.controller("kube-system", AGENT, every(1.5, agents.look), *rights, kind="DaemonSet", tag="0.5.1")
    namespace, front = lab.rng.choice((("shop", "frontend"), ("search", "query"), ("media", "uploads")))
    await publish(lab, namespace, front)
    for node in NODES:
        lost = partial(is_lost, lab.world, node)
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 6, node=node)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(agents.has_all)
    await lab.until(lab.is_well)

    def data(settings: str) -> Json:
        return {"data": {"kubelet": settings}}

    async with before(lab, days=lab.rng.randrange(1, 8), cluster=lab.rng.choice(("staging", "us-1"))):
        await lab.pause(3)
        await lab.edit(by, "ConfigMap", "kube-system", SETTINGS, data(_settings(*enforced, cgroup=True)))
        await lab.until(agents.has_all)
        await lab.pause(4)
    await lab.edit("admin", "ConfigMap", "kube-system", SETTINGS, data(_settings("pods", cgroup=False)))
    await lab.until(agents.has_all)
    await lab.until(lab.is_well)
    yield
    body = data(_settings(*enforced, cgroup=False))
    await lab.culprit(by, "update", "ConfigMap", "kube-system", SETTINGS, body)


@family(
    "A policy is made for an app that may only call whom it has to: it lists these, the servers of names among them,"
    " and says nothing of who may call the app. It does not say either that it is about one way only: without that a"
    " policy is about who gets in, too, and nobody does.",
    joined=44,
)
async def egress_only(lab: Lab) -> AsyncIterator[None]:
    """As noted of policies that are for one way and are taken for both (agentbeck.bot, report 90812)."""
    namespace, name, database, host, front = lab.rng.choice(
        (
            ("payments", "refunds", "refunds-db", "api.cardhouse.example", ("shop", "returns-page")),
            ("shop", "shipping", "shipping-db", "rates.parcels.example", ("payments", "invoice-page")),
            ("media", "encoding", "encoding-db", "jobs.cloudcodec.example", ("search", "clips-page")),
        )
    )
    by, week = lab.rng.choice(("carol", "alice", "argocd")), lab.rng.randrange(3, 20)
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.9")
    like = App("", upstreams=((namespace, database),), abroad=(host,))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"3.{week}.1")
    worker = f"{name}-worker"
    like = App("", upstreams=((namespace, name),), serves=False)
    await lab.app(namespace, worker, like=like, replicas=2, tag=f"3.{week}.1")
    await lab.app(*front, like=App("", upstreams=((namespace, name),)), replicas=3, tag="2.2.8")
    places = ((namespace, database), (namespace, name), (namespace, worker), front)
    await lab.until(lambda: all(backends(lab.world, *one) for one in places))
    await publish(lab, *front)
    lab.reserve(namespace, name, worker)
    lab.alert_lacking(*front)
    lab.alert_lacking(namespace, worker, seconds=9)
    lab.alert_errors(*front)
    lab.alert_ingress_errors(front[0], front[0])
    await lab.until(lab.is_well)
    yield
    system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    away = {"ipBlock": {"cidr": "203.0.113.0/24"}}
    out = [
        {"to": [system], "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
        {"to": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": database}}}]},
        {"to": [away], "ports": [{"port": 443, "protocol": "TCP"}]},
    ]
    policy = f"{name}-egress"
    spec = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}, "egress": out}
    await lab.culprit(by, "create", "NetworkPolicy", namespace, policy, {"metadata": {"name": policy}, "spec": spec})
