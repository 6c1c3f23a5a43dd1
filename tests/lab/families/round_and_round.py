"""What comes back to where it was: a question that a server asks itself, a batch that is taken again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from zlib import crc32

from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.as_ever import RESOLVERS, forwarding
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import DNS, backends, zones_led_to
from tests.lab.scenario import family

ZONE = "inside.corp.example"
FILLED_SECONDS = (4.0, 8.0)
"""Until a server that asks itself has no memory left, at least and at most."""
CALLERS = (("shop", "frontend"), ("shop", "cart"), ("payments", "checkout"), ("search", "query"))
USUAL, MOST_POLLED = 0.04, 40
"""Seconds that a message takes as ever, and how many of them a worker takes at once."""
POLL_SECONDS, REBALANCE_SECONDS, STEP_SECONDS = 5.0, 1.5, 0.25
"""After which who has not asked for more counts as gone, and for how long all stand still while they share anew."""
FAR_BEHIND = 260


@family(
    "A zone of names inside is to be asked for elsewhere, and in place of the company's resolver somebody writes the"
    " address of the cluster's own servers of names: these ask themselves without end for whatever is in that zone,"
    " have no memory left, are killed again and again, and no name is resolved.",
    joined=42,
)
async def round_trip(lab: Lab) -> AsyncIterator[None]:
    """As told of an April 2024, with a forward to kube-dns itself (wiki.mares.cz)."""
    by, agent = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice(("badge-sync", "wiki-export", "mail-out"))
    partner, host = f"{lab.rng.choice(('carrier', 'insurer', 'printer'))}.example", f"ldap.{ZONE}"
    zones = {partner: lab.rng.choice(RESOLVERS)}
    since: list[float] = []

    def address() -> str:
        return str(lab.world["Service"].get(DNS, {}).get("spec", {}).get("clusterIP", ""))

    def fills(container: Container) -> Problem | None:
        """Each question begets another, as long as somebody asks for such a name."""
        if not zones_led_to(lab.world, address()):
            since.clear()
            return None
        since[:] = since or [now().timestamp()]
        least, most = FILLED_SECONDS
        own = least + (most - least) * (crc32(uid_of(container.pod).encode()) % 100) / 100
        asked = min(container.seconds, now().timestamp() - since[0])
        return Problem("oom", "needs more than it may have") if asked > own else None

    await lab.edit("admin", "ConfigMap", DNS[0], "coredns", forwarding(zones))
    lab.apps[f"registry.corp.example/{'/'.join(DNS)}"].check = fills
    await lab.app("platform", agent, like=App("", abroad=(host,)), replicas=2, tag="2.1.0")
    await lab.until(lambda: all(backends(lab.world, *place) for place in (*CALLERS, ("platform", agent))))
    for place in lab.rng.sample(CALLERS, 3):
        lab.alert_lacking(*place)
    lab.alert_lacking("platform", agent, seconds=30)
    killed = lab.rate(lambda: restarts(lab.world, *DNS), 0.15, seconds=20)
    summary = "pods of kube-system/kube-dns are restarting"
    lab.alert("KubePodCrashLooping", killed, summary, 2, namespace=DNS[0], deployment=DNS[1])
    await lab.until(lab.is_well)
    yield
    led = forwarding({**zones, ZONE: address()})
    await lab.culprit(by, "update", "ConfigMap", DNS[0], "coredns", led)


@dataclass
class _Group:
    """Workers that share a topic: each takes some messages, works on them, says so, and asks for the next ones.

    Whoever takes too long over them is taken for gone: they are for others then, and what it says counts no more.
    """

    lab: Lab
    namespace: str
    name: str
    rate: float
    takes: float = USUAL
    waiting: float = 0.0
    rebalances: int = 0
    stands_until: float = 0.0
    members: frozenset[str] = frozenset()
    taken: dict[str, tuple[float, float]] = field(default_factory=dict)
    """How many each has taken, and when, by uid."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self.step(now().timestamp())

    def step(self, at: float) -> None:
        self.waiting += self.rate * STEP_SECONDS * self.lab.kubelets.rng.uniform(0.8, 1.2)
        found = (pod for pod in pods(self.lab.world, self.namespace, self.name) if is_ready(pod))
        there = frozenset(uid_of(pod) for pod in found if "deletionTimestamp" not in pod["metadata"])
        if there != self.members:
            self.members = there
            self._share_anew(at)
        if at < self.stands_until:
            return
        for uid, (many, since) in list(self.taken.items()):
            if at - since > POLL_SECONDS:
                self._share_anew(at)
                return
            if at - since >= many * self.takes:
                self.waiting -= many
                del self.taken[uid]
        for uid in self.members - self.taken.keys():
            free = self.waiting - sum(many for many, _ in self.taken.values())
            if many := float(min(MOST_POLLED, int(free / max(1, len(self.members))) or int(free))):
                self.taken[uid] = many, at

    def _share_anew(self, at: float) -> None:
        """What was not said to be done is begun again."""
        self.taken.clear()
        self.rebalances += 1
        self.stands_until = at + REBALANCE_SECONDS


@family(
    "A service outside takes some times as long as ever for each answer. Workers that need it for every message are not"
    " through with what they have taken when they should ask for more, so they are taken for gone: what they did counts"
    " for nothing, all share anew and begin again, and the topic is behind more and more.",
    culprit=False,
    joined=42,
)
async def group_unsettled(lab: Lab) -> AsyncIterator[None]:
    """As told of consumers that do not poll in time, leave, come back and get the same again (schema.ai, madplay)."""
    namespace, name, writer, host = lab.rng.choice(
        (
            ("shop", "address-check", "orders", "api.geocoder.example"),
            ("payments", "fraud-check", "payins", "api.scoring.example"),
            ("media", "moderation", "comments", "api.classifier.example"),
        )
    )
    bus, by = f"{writer}-bus", lab.rng.choice(("ci", "argocd"))
    group = _Group(lab, namespace, name, rate=lab.rng.uniform(17, 21))
    await lab.app(namespace, bus, like=App("", serves=False), kind="StatefulSet", replicas=3, tag="3.9.0")
    like = App("", upstreams=((namespace, bus),), abroad=(host,), serves=False)
    await lab.app(namespace, name, like=like, replicas=3, tag="2.11.0")
    await lab.app(namespace, writer, like=App("", upstreams=((namespace, bus),)), replicas=3, tag="7.4.0")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in (bus, name, writer)))
    await publish(lab, namespace, writer)
    lab.reserve(namespace, name, writer)
    topic: Json = {"consumergroup": name, "topic": writer}
    lab.measure(
        "kafka_consumergroup_lag_sum", lambda: round(group.waiting), "gauge", namespace=namespace, service=bus, **topic
    )
    of_group = {"namespace": namespace, "service": name}
    rebalances = lambda: float(group.rebalances)  # noqa: E731
    lab.measure("kafka_consumer_coordinator_rebalance_total", rebalances, "counter", **of_group)
    answers = lambda: group.takes * lab.kubelets.rng.uniform(1.1, 1.6)  # noqa: E731
    lab.measure("http_client_requests_seconds_max", answers, "gauge", **of_group, client_name=host)
    behind = lambda: group.waiting > FAR_BEHIND  # noqa: E731
    summary = f"consumer group {name} is far behind in topic {writer}"
    lab.alert("KafkaConsumerGroupLag", behind, summary, 5, namespace=namespace, consumergroup=name, topic=writer)
    lab.start(group.run())
    await lab.pause(4)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, "2.12.0")
    await rolled(lab, namespace, name, "2.12.0")
    await lab.pause(lab.rng.uniform(7, 14))
    group.takes = USUAL * lab.rng.uniform(6, 8)
