"""What is missed while something is away: connections to servers of names, as proxies are upgraded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from zlib import crc32

from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem
from tests.lab.before import before
from tests.lab.families.by_annotation import rolled
from tests.lab.families.passwords import restarted
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import DNS, backends
from tests.lab.programs import both, informer
from tests.lab.scenario import family

PROXY, OLD, NEW = ("kube-system", "kube-proxy"), "v1.34.3", "v1.35.1"
NAMES_OLD, NAMES_NEW = "1.12.4", "1.13.1"
STARTS_SECONDS = 2.5
"""That a proxy needs until it has all rules of its node."""


@dataclass
class _Flows:
    """Where processes send what they ask for names: by one socket each, to the server that got its first packet."""

    lab: Lab
    namespace: str
    called: str
    """What all of them call, by its name."""
    asked: dict[str, str] = field(default_factory=dict)
    """By process."""
    servers: set[str] = field(default_factory=set)
    kept: set[tuple[str, str]] = field(default_factory=set)
    """Nodes, and servers that went while the node had no proxy: who is back looks only at what changes from then on."""

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            there = {str(one["metadata"]["name"]) for one in backends(self.lab.world, *DNS)}
            up = {pod["spec"].get("nodeName") for pod in pods(self.lab.world, *PROXY) if is_ready(pod)}
            self.kept |= {(node, gone) for gone in self.servers - there for node in NODES if node not in up}
            self.servers = there

    def check(self, container: Container) -> Problem | None:
        told = container.pod.get("status", {})
        process = f"{uid_of(container.pod)} {sum(one['restartCount'] for one in told.get('containerStatuses', ()))}"
        server, node = self.asked.get(process, ""), container.pod["spec"]["nodeName"]
        if server and server not in self.servers and (node, server) in self.kept:
            return self._times_out(told.get("podIP", ""), process)
        if server not in self.servers and self.servers:  # its flow was deleted, and the next packet begins another one
            there = sorted(self.servers)
            self.asked[process] = there[crc32(process.encode()) % len(there)]
        return None

    def _times_out(self, address: str, process: str) -> Problem:
        names = self.lab.world["Service"][DNS]["spec"]["clusterIP"]
        socket = f"{address}:{32768 + crc32(process.encode()) % 28000}"
        lookup = f"lookup {self.called}.{self.namespace} on {names}:53: read udp {socket}->{names}:53: i/o timeout"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({lookup})")


@family(
    "The proxies of Services get a new version on each node, and with it come new servers of names. Where a server goes"
    " while its node's proxy is away, what leads to that server stays: who asks by the same socket as ever gets no"
    " answer there.",
    joined=34,
)
async def proxy_upgrade(lab: Lab) -> AsyncIterator[None]:
    """As told of kube-proxy and a mysterious timeout of names (charlesxu.io)."""
    by = lab.rng.choice(("bob", "carol", "flux"))
    callers = {
        "shop": ("prices", "bundles", "gift-cards"),
        "search": ("ranking", "spelling", "filters"),
        "media": ("previews", "playlists", "lyrics"),
    }
    namespace = lab.rng.choice(sorted(callers))
    called = {"shop": "catalog", "search": "indexer", "media": "uploads"}[namespace]
    flows = _Flows(lab, namespace, called)
    informers = both(informer(path("Service")), informer(path("EndpointSlice")))
    rules = ("", "services,nodes", "get,list,watch"), ("discovery.k8s.io", "endpointslices", "get,list,watch")
    proxy = await lab.controller(*PROXY, informers, *rules, kind="DaemonSet", tag=OLD)
    proxy.start_seconds = STARTS_SECONDS
    two: Json = {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}}
    await lab.edit("admin", "DaemonSet", *PROXY, two)
    await lab.edit("admin", "Deployment", *DNS, {"spec": {"replicas": 3}})
    await lab.roll("admin", *DNS, NAMES_OLD)
    await rolled(lab, *DNS, NAMES_OLD)
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, *PROXY))) == len(NODES))
    lab.reserve(namespace, called)
    lab.start(flows.watch())
    for name in callers[namespace]:
        await lab.app(namespace, name, like=App("", upstreams=((namespace, called),), check=flows.check), replicas=4)
        lab.alert_lacking(namespace, name)
    await lab.until(lambda: all(len(backends(lab.world, namespace, name)) == 4 for name in callers[namespace]))
    async with before(lab, days=7):
        was = {uid_of(pod) for pod in pods(lab.world, *DNS)}
        await lab.edit(by, "Deployment", *DNS, restarted())
        await lab.until(lambda: not was & {uid_of(pod) for pod in pods(lab.world, *DNS)})
        await rolled(lab, *DNS, NAMES_OLD)
        await lab.pause(4)
    yield
    [container] = lab.world["DaemonSet"][PROXY]["spec"]["template"]["spec"]["containers"]
    image = f"{container['image'].rsplit(':', 1)[0]}:{NEW}"
    body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
    await lab.culprit(by, "update", "DaemonSet", *PROXY, body)
    await lab.pause(lab.rng.uniform(1.5, 3))
    [server] = lab.world["Deployment"][DNS]["spec"]["template"]["spec"]["containers"]
    image = f"{server['image'].rsplit(':', 1)[0]}:{NAMES_NEW}"
    body = {"spec": {"template": {"spec": {"containers": [{**server, "image": image}]}}}}
    why = "the same upgrade: it is its servers of names that went while proxies were away"
    await lab.also(why, by, "update", "Deployment", *DNS, body)
