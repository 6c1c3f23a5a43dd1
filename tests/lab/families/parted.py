"""What no longer goes together: keys of one Secret, a taint and who tolerates it, users and what is allowed a day."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

KEY, SIGNED = "SESSION_KEY", 0.7
"""What a process reads once, and the share of the requests that bring what was sealed with it."""
DEDICATED = "dedicated"
UNCACHED = 0.45
"""The share of the requests for which the service outside is asked; all others the cache knows."""
USUAL, BUSY = 18.0, 55.0
"""Requests a second, as on any day and as on this one."""
LEFT = 340
"""How often one may still ask today, as the traffic begins to grow."""


@dataclass
class _Sealed:
    """Sessions that each process seals with the key that it read at its start, and that any other one may get."""

    lab: Lab
    namespace: str
    name: str
    keys: dict[str, str] = field(default_factory=dict)
    """By uid of the pod."""

    def read(self, container: Container) -> Problem | None:
        self.keys.setdefault(container.pod["metadata"]["uid"], container.secret.get(KEY, ""))
        return None

    def failing(self, container: Container) -> float:
        """What was sealed by those with another key is not opened."""
        own = self.keys.get(container.pod["metadata"]["uid"])
        there = [self.keys.get(pod["metadata"]["uid"]) for pod in backends(self.lab.world, self.namespace, self.name)]
        return SIGNED * sum(one not in (own, None) for one in there) / max(1, len(there))


@family(
    "The key by which an app seals its sessions is replaced in its Secret. What runs has read it at its start; pods"
    " that come as the app is scaled up have the other one, and neither opens what the other one has sealed.",
    joined=31,
)
async def keys_apart(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: the key of a framework's sessions, as most apps have one."""
    namespace, name, caller = lab.rng.choice(
        (("shop", "account", "storefront"), ("media", "profiles", "portal"), ("payments", "mandates", "self-service"))
    )
    secret, sealed = f"{name}-session", _Sealed(lab, namespace, name)

    def keyed() -> Json:
        return {"stringData": {KEY: f"{lab.rng.getrandbits(128):032x}"}}

    await lab.apply({"kind": "Secret", "metadata": {"namespace": namespace, "name": secret}, **keyed()})
    like = App("", check=sealed.read, failing=sealed.failing)
    await lab.app(namespace, name, like=like, replicas=4, secret=secret, tag="5.2.0")
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, caller))
    await publish(lab, namespace, caller)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(lab.rng.choice(("carol", "flux", "ci")), "update", "Secret", namespace, secret, keyed())
    await lab.pause(lab.rng.uniform(8, 14))
    body = {"spec": {"replicas": 6}}
    await lab.edit(lab.rng.choice(("alice", "bob", "argocd")), "Deployment", namespace, name, body)


@family(
    "The taint of a group of nodes gets another effect, so that nothing of others is left there. One of the apps that"
    " the group is for tolerates the old effect only: all of its pods are ended at once, and find no node.",
    joined=31,
)
async def taint_effect(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: a toleration that names its effect is for that one alone."""
    namespace, name, other, caller = lab.rng.choice(
        (
            ("media", "encoder", "packager", "studio"),
            ("search", "embeddings", "reranker", "answers"),
            ("payments", "scoring", "features", "risk-desk"),
        )
    )
    nodes, by = spare(lab, 3), lab.rng.choice(("alice", "bob", "carol"))
    pool: Json = {"nodeSelector": {"pool": namespace}}
    tolerated = {"key": DEDICATED, "operator": "Equal", "value": namespace}

    def tainted(effect: str) -> Json:
        return {"spec": {"taints": [{"key": DEDICATED, "value": namespace, "effect": effect}]}}

    everywhere = {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}
    await lab.edit("admin", "DaemonSet", "monitoring", "node-agent", everywhere)
    for node in nodes:
        labels: Json = {"metadata": {"labels": {"pool": namespace}}}
        await lab.edit("admin", "Node", "", node, {**labels, **tainted("NoSchedule")})
        await drain(lab, "admin", node)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="16"))
    narrow = [{**tolerated, "effect": "NoSchedule"}]
    await lab.app(namespace, name, replicas=3, config=name, tolerations=narrow, **pool)
    await lab.app(namespace, other, replicas=3, tolerations=[tolerated], **pool)
    like = App("", upstreams=((namespace, name), (namespace, other)))
    await lab.app(namespace, caller, like=like, replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, caller))
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_errors(namespace, caller)
    yield
    await lab.edit(lab.rng.choice(("ci", "argocd")), "ConfigMap", namespace, name, {"data": {"BATCH": "24"}})
    await lab.pause(lab.rng.uniform(4, 8))
    for node in nodes:
        await lab.culprit(by, "update", "Node", "", node, tainted("NoExecute"))


@family(
    "A service outside lets each of its customers ask so many times a day. More users come than on any day before, and"
    " it is not evening yet as that is used up: it refuses all further calls, and the app fails what needs one.",
    culprit=False,
    joined=31,
)
async def daily_allowance(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: what maps, mails and translations are sold by."""
    namespace, name, caller, host = lab.rng.choice(
        (
            ("shop", "addresses", "delivery", "api.geocoder.example"),
            ("media", "captions", "player", "api.translator.example"),
            ("payments", "company-check", "onboarding", "api.registers.example"),
        )
    )
    users, allowed = [USUAL], [float("inf")]
    called = lab.adding_up(lambda: users[0] * UNCACHED)

    def refused(_: Container) -> float:
        return UNCACHED if called() > allowed[0] else 0.0

    async def grow() -> None:
        while users[0] < BUSY:
            users[0] += lab.rng.uniform(1, 5)
            await asyncio.sleep(1)

    like = App("", abroad=(host,), asked=lambda: users[0], failing=refused, fails_with=lambda _: "502")
    await lab.app(namespace, name, like=like, replicas=3, tag="1.8.0")
    above = App("", upstreams=((namespace, name),), asked=lambda: 1.4 * users[0])
    await lab.app(namespace, caller, like=above, replicas=3)
    await lab.until(lambda: len(pods(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, caller))
    await publish(lab, namespace, caller)
    lab.measure("partner_requests_total", called, "counter", namespace=namespace, service=name, host=host)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    lab.start(grow())
    allowed[0] = called() + LEFT
    await lab.pause(lab.rng.uniform(4, 7))
    await lab.roll(lab.rng.choice(("ci", "argocd", "flux")), namespace, name, "1.8.1")
