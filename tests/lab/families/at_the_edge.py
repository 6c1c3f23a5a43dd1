"""What stands between users and an app that is well: a balancer with a check of its own, a proxy with small buffers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

CHECKED = "loadbalancer.corp.example/healthcheck-path"
FALLS, RISES = 3, 2
"""How many checks of a node in a row have to fail, or to be answered, before a load balancer believes it."""


@dataclass
class _Balancer:
    """In front of all nodes: each is asked for one path, which leads to whichever pod of the Service."""

    lab: Lab
    namespace: str
    name: str
    new: str
    """The version that has its health at another path."""
    users: float
    down: set[str] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    """How often each node has answered in a row otherwise than it is believed to."""
    refused: float = 0.0
    """How many users a second it answers with 503, as it has no node; those who come to the app are the others."""
    lately: list[float] = field(default_factory=list)

    def asked(self) -> float:
        return self.users - self.refused

    def _is_answered(self) -> bool:
        """By one of those who are ready: no probe in the manifest asks for a path."""
        service = self.lab.world["Service"][self.namespace, self.name]
        asked = service["metadata"]["annotations"][CHECKED]
        ready = {uid_of(pod) for pod in backends(self.lab.world, self.namespace, self.name)}
        there = [one.container for one in self.lab.kubelets.running() if uid_of(one.container.pod) in ready]
        if not there:
            return False
        one = self.lab.kubelets.rng.choice(there)
        is_moved = one.tag == self.new and one.seconds >= self.lab.lag
        return bool(asked == ("/actuator/health" if is_moved else "/healthz"))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            for node in NODES:
                differs = self._is_answered() is (node in self.down)
                self.seen[node] = self.seen[node] + 1 if differs else 0
                if self.seen[node] >= (RISES if node in self.down else FALLS):
                    self.down ^= {node}
                    self.seen[node] = 0
            self.refused = self.users if len(self.down) == len(NODES) else 0.0
            self.lately = [*self.lately[-9:], self.refused / self.users]

    def share(self) -> float:
        """Of what it was asked in the last seconds, what it has refused."""
        return sum(self.lately) / max(1, len(self.lately))


@family(
    "A release of an app is built on a newer framework, which tells how it is at another path. Its pods are ready, as"
    " a kubelet asks them no more than whether they listen; the load balancer in front of the nodes asks for the path"
    " of ever, as an annotation of the Service says, and takes all nodes for dead once all pods are of that release.",
    joined=53,
)
async def balancer_check(lab: Lab) -> AsyncIterator[None]:
    """As told of balancers that ask for another path than the app has (kubernetes 31222, k8ssandra-terraform 45)."""
    namespace, name, store = lab.rng.choice(
        (
            ("media", "live-scores", "scores-db"),
            ("shop", "store-finder", "stores-db"),
            ("search", "suggestions", "suggestions-db"),
        )
    )
    by, team = lab.rng.choice(("ci", "argocd", "bob")), lab.rng.choice(("alice", "flux", "carol"))
    old, new = f"3.{lab.rng.randrange(30, 39)}.0", "4.0.0"
    balancer = _Balancer(lab, namespace, name, new, lab.rng.uniform(20, 40))
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.3")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60", PAGE_SIZE="20"))
    like = App("", upstreams=((namespace, store),), asked=balancer.asked)
    await lab.app(namespace, name, like=like, replicas=4, tag=old, config=name)
    listens = {"httpGet": None, "tcpSocket": {"port": 8080}}
    await lab.roll(
        "admin", namespace, name, old, readinessProbe={"periodSeconds": 5, "tcpSocket": listens["tcpSocket"]}
    )
    meta = {"annotations": {CHECKED: "/healthz", CHECKED.replace("path", "protocol"): "http"}}
    await lab.edit("admin", "Service", namespace, name, {"metadata": meta, "spec": {"type": "LoadBalancer"}})
    address: Json = {"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.23"}]}}}
    await lab.who["admin"].must("PATCH", f"{path('Service', namespace, name)}/status", address)
    await rolled(lab, namespace, name, old)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    lab.reserve(namespace, name)
    told = {"namespace": "monitoring", "service": "loadbalancer-exporter", "load_balancer": f"{namespace}-{name}"}
    for code, rate in (("2xx", balancer.asked), ("5xx", lambda: balancer.refused)):
        answers = lab.adding_up(rate)
        lab.measure("loadbalancer_http_responses_total", answers, "counter", **told, code=code)
    healthy = lambda: float(len(NODES) - len(balancer.down))  # noqa: E731
    lab.measure("loadbalancer_healthy_backends", healthy, "gauge", **told)
    summary = f"the load balancer of {namespace}/{name} answers more than a tenth of its requests with 5xx"
    holds = lambda: balancer.share() > 0.1  # noqa: E731
    lab.alert("LoadBalancerHigh5xxRate", holds, summary, 5, namespace=namespace, service=name)
    lab.start(balancer.run())
    await lab.until(lab.is_well)
    yield
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"CACHE_SECONDS": lab.rng.choice(("30", "90"))}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)


GROUPS_LISTED = "7.4.0"
"""The version of a proxy that signs users in which keeps all groups of a user in the session, which is a cookie."""


@family(
    "A proxy that signs users in gets its newer version, which keeps all groups of a user in the cookie that it sets."
    " For users of a few groups nothing changes; with those of many the head of its answer is larger than the buffer"
    " of the Ingresses' proxies, which answer 502 in its place.",
    joined=53,
)
async def many_groups(lab: Lab) -> AsyncIterator[None]:
    """As one tells of users of GitLab who are linked to many groups (oauth2-proxy 2075)."""
    namespace, tool = lab.rng.choice(
        (("media", "editors-desk"), ("shop", "back-office"), ("payments", "clearing-desk"))
    )
    name, by = "oauth2-proxy", lab.rng.choice(("ci", "flux", "alice", "argocd"))
    share = lab.rng.uniform(0.2, 0.45)
    await lab.app(namespace, tool, like=App("", asked=lambda: 18.0), replicas=2, tag=f"2.{lab.rng.randrange(9)}.3")
    like = App("", upstreams=((namespace, tool),), asked=lambda: 24.0)
    like.too_large = lambda one: share if one.tag == GROUPS_LISTED and one.seconds >= lab.lag else 0.0
    await lab.app(namespace, name, like=like, replicas=2, tag="7.3.0")
    await rolled(lab, namespace, name, "7.3.0")
    await lab.until(lambda: len(backends(lab.world, namespace, tool)) == 2)
    await publish(lab, namespace, name)
    lab.reserve(namespace, tool)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 7))
    await lab.roll(by, namespace, name, GROUPS_LISTED, culprit=True)
