"""What is there only while it has something to do: whoever takes messages, with a scaler that goes by how many wait."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Kind, now, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

KEDA = "keda.sh"
HANDLES, STARTS_SECONDS, COOLS_SECONDS = 30.0, 7.0, 5.0
"""Messages a second that a pod is through with, how long it takes to start, and after how much idleness there may be
fewer."""
PATIENCE_SECONDS, OTHERS = 4.0, 4.0
"""For which whoever sends a message waits for what comes of it, and its requests a second that send none."""


@dataclass
class _Queue:
    """Messages that come in bursts, by night few of them, and a scaler that goes by how many wait."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    rate: float = 0.0
    waiting: deque[tuple[float, float]] = field(default_factory=deque)
    """When messages came, and how many of them."""
    lately: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=20))
    """How many came, and how many were given up, in each half of the last ten seconds."""
    idle_since: float = 0.0

    @property
    def length(self) -> float:
        return sum(number for _, number in self.waiting)

    def age(self) -> float:
        return now().timestamp() - self.waiting[0][0] if self.waiting else 0.0

    def answered(self) -> float:
        """Requests a second that whoever sends messages has answered lately, one way or another; a few need none."""
        return OTHERS + sum(number for number, _ in self.lately) / 10

    def given_up(self) -> float:
        """The share of those that waited in vain."""
        return min(1.0, sum(late for _, late in self.lately) / 10 / self.answered())

    async def run(self) -> None:
        counted = now().timestamp() - PATIENCE_SECONDS
        while True:
            await asyncio.sleep(0.5)
            at, came = now().timestamp(), self.rate / 2
            if came:
                self.waiting.append((at, came))
            room = HANDLES / 2 * sum(is_ready(one) for one in pods(self.lab.world, self.namespace, self.name))
            while self.waiting and room > 0:
                since, number = self.waiting.popleft()
                done = min(number, room)
                room -= done
                if number > done:
                    self.waiting.appendleft((since, number - done))
            late = sum(number for since, number in self.waiting if counted < since <= at - PATIENCE_SECONDS)
            counted = at - PATIENCE_SECONDS
            self.lately.append((came, late))

    async def bursts(self) -> None:
        while True:
            self.rate = self.lab.rng.uniform(32, 48)
            await asyncio.sleep(self.lab.rng.uniform(5, 8))
            self.rate = 0.0
            await asyncio.sleep(self.lab.rng.uniform(9, 13))

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        if not (declared.ok and found.ok):
            return
        spec, at = declared.body["spec"], now().timestamp()
        self.idle_since = at if self.length else self.idle_since or at
        there = found.body["spec"].get("replicas", 0)
        wanted = min(spec["maxReplicaCount"], math.ceil(self.length / HANDLES))
        if wanted < there and at - self.idle_since < COOLS_SECONDS:
            return
        if (replicas := max(wanted, spec["minReplicaCount"])) != there:
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})


@family(
    "To save money by night, what takes messages may be scaled to nothing while none waits. There are some every few"
    " minutes, each time a pod has to start first, and whoever sent them does not wait for so long.",
    joined=55,
)
async def down_to_none(lab: Lab) -> AsyncIterator[None]:
    """As told of a stack of events whose scaler was edited to save money by night (johal.in, October 2024)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "order-processor", "orders-api"),
            ("payments", "payout-worker", "payouts-api"),
            ("media", "preview-maker", "previews-api"),
        )
    )
    by, team = lab.rng.choice(("alice", "carol", "ci")), lab.rng.choice(("bob", "argocd", "flux"))
    kind = await lab.custom("ScaledObject", KEDA, ANY)
    await lab.served(kind)
    queue = _Queue(lab, kind, namespace, name)
    await lab.app(namespace, "rabbitmq", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="4.1.2")
    await lab.apply(objects.config_map(namespace, front, LOG_LEVEL="info", MAX_BODY_KB="512"))
    broker = ((namespace, "rabbitmq"),)
    like = App("", upstreams=broker, serves=False, start_seconds=STARTS_SECONDS)
    startup = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    await lab.app(namespace, name, like=like, replicas=2, tag="3.7.1", startup=startup)
    await rolled(lab, namespace, name, "3.7.1")
    like = App("", upstreams=broker, asked=queue.answered, failing=lambda _: queue.given_up())
    like.fails_with = lambda _: "504"
    await lab.app(namespace, front, like=like, replicas=2, tag="5.16.0", config=front)
    trigger = {"type": "rabbitmq", "metadata": {"queueName": name, "mode": "QueueLength", "value": f"{HANDLES:.0f}"}}
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": 2, "maxReplicaCount": 10, "triggers": [trigger]}
    spec |= {"pollingInterval": 30, "cooldownPeriod": 300}
    await lab.apply({"kind": kind.name, "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    rules = (KEDA, kind.plural, "get,list,watch"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(0.5, queue.scale), *rules, replicas=1, tag="2.12.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for measured, value in (("messages_ready", lambda: queue.length), ("head_message_age_seconds", queue.age)):
        told = {"namespace": namespace, "service": "rabbitmq", "queue": name}
        lab.measure(f"rabbitmq_queue_{measured}", value, "gauge", **told)
    summary = f"messages of {namespace}/{name} wait for longer than {PATIENCE_SECONDS:.0f}s"
    lab.alert("MessagesWaiting", lambda: queue.age() > PATIENCE_SECONDS, summary, 2, namespace=namespace, queue=name)
    lab.alert_errors(namespace, front, 0.1)
    lab.start(queue.run())
    lab.start(queue.bursts())
    await lab.pause(15)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.edit(team, "ConfigMap", namespace, front, {"data": {"MAX_BODY_KB": lab.rng.choice(("256", "1024"))}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", kind.name, namespace, name, {"spec": {"minReplicaCount": 0}})
