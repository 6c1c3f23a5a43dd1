"""What a release meets that it does not change: messages that wait, connections that are still held."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.renumbered import helm_kept
from tests.lab.lab import Lab
from tests.lab.manifests import image_of, images, is_ready, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

TEXT_ONLY, BOTH_FORMS = "6.3.1", "6.4.0"
"""Of a chart's apps: those that know a message's amount as text, and those that write it with its currency."""
PARTITIONS, EACH_TAKES, TOO_FAR_BEHIND = 3, 9, 150
"""Of a topic; how many messages a worker takes in a second, and how many may wait."""
POOL, NEEDED, MOST, RESERVED = 15, 5, 200, 3
"""Connections that a process keeps and that it works with, those that the database has, and of them its own."""
FEW, MANY = 5, 12
DRAINS_SECONDS = 24
"""For how long a pod that is to end goes on for those who have a connection to it."""


@dataclass
class _Topic:
    """Messages in the order in which they came, in partitions: which tag of their writer each is of."""

    lab: Lab
    namespace: str
    writer: str
    worker: str
    rate: float
    waiting: list[deque[str]] = field(default_factory=lambda: [deque() for _ in range(PARTITIONS)])

    def behind(self) -> int:
        return sum(map(len, self.waiting))

    def cannot_read(self, container: Container) -> Problem | None:
        """Whoever begins at a message that it does not know ends on it, and so does who begins there next."""
        mine = self._of(uid_of(container.pod))
        if container.tag == BOTH_FORMS or not any(one and one[0] == BOTH_FORMS for one in mine):
            return None
        said = "json: cannot unmarshal object into Go struct field Message.amount of type string"
        return Problem("crash", f"panic: decode message: {said}")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            writers = [pod for pod in pods(self.lab.world, self.namespace, self.writer) if is_ready(pod)]
            for _ in range(round(self.rate / 2 * self.lab.kubelets.rng.uniform(0.8, 1.2)) if writers else 0):
                tag = images(self.lab.kubelets.rng.choice(writers))[0].rsplit(":", 1)[1]
                self.lab.kubelets.rng.choice(self.waiting).append(tag)
            for pod in self._workers():
                tag = images(pod)[0].rsplit(":", 1)[1]
                left = EACH_TAKES // 2
                for one in self._of(uid_of(pod)) if is_ready(pod) else ():
                    while one and left and tag in (BOTH_FORMS, one[0]):
                        one.popleft()
                        left -= 1

    def _workers(self) -> list[Json]:
        """Those that take part, in an order of their own."""
        found = pods(self.lab.world, self.namespace, self.worker)
        running = [one for one in found if one.get("status", {}).get("phase") == "Running"]
        return sorted((one for one in running if "deletionTimestamp" not in one["metadata"]), key=uid_of)

    def _of(self, uid: str) -> list[deque[str]]:
        there = [uid_of(one) for one in self._workers()]
        return self.waiting[there.index(uid) :: len(there)] if uid in there else []


@family(
    "A release of a chart writes its messages in a new form, and its workers, which came first, read both. For a small"
    " fault of the page the chart is rolled back: what waits is of the new form, the old workers end on it, and begin"
    " at the same message again.",
    joined=40,
)
async def rollback_messages(lab: Lab) -> AsyncIterator[None]:
    """As told of rollbacks that bring back the program and not what it has written (nivelepsilon.com)."""
    namespace, worker, writer, front = lab.rng.choice(
        (
            ("shop", "fulfilment", "orders", "order-page"),
            ("payments", "booking", "transfers", "transfer-page"),
            ("media", "billing", "rentals", "rental-page"),
        )
    )
    bus, number, by = f"{writer}-bus", lab.rng.randrange(20, 90), lab.rng.choice(("ci", "ci", "bob"))
    topic = _Topic(lab, namespace, writer, worker, lab.rng.uniform(12, 16))
    await lab.app(namespace, bus, like=App("", serves=False), kind="StatefulSet", replicas=3, tag="3.9.1")
    like = App("", upstreams=((namespace, bus),), check=topic.cannot_read, serves=False)
    await lab.app(namespace, worker, like=like, replicas=PARTITIONS, tag=TEXT_ONLY)
    alone = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    await lab.edit("admin", "Deployment", namespace, worker, alone)
    slower = lambda container: 0.18 if container.tag == BOTH_FORMS else 0.0  # noqa: E731
    like = App("", upstreams=((namespace, bus),), asked=lambda: 30.0, latency=slower)
    await lab.app(namespace, writer, like=like, replicas=3, tag=TEXT_ONLY)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, writer),)), replicas=2, tag="1.33.0")
    await lab.apply(helm_kept(writer, namespace, number), "ci")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (bus, worker, writer, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, worker, writer)
    lab.measure("kafka_consumergroup_lag_sum", topic.behind, namespace=namespace, service=bus, consumergroup=worker)
    holds = lambda: topic.behind() > TOO_FAR_BEHIND  # noqa: E731
    summary = f"consumer group {worker} is far behind in topic {writer}"
    lab.alert("KafkaConsumerGroupLag", holds, summary, 5, namespace=namespace, consumergroup=worker, topic=writer)
    lab.alert_lacking(namespace, worker, seconds=11)
    lab.alert_errors(namespace, writer)
    lab.alert_slow(namespace, front)
    lab.start(topic.run())
    await lab.until(lab.is_well)
    yield
    await lab.apply(helm_kept(writer, namespace, number + 1), "ci")
    await lab.roll("ci", namespace, worker, BOTH_FORMS)
    await rolled(lab, namespace, worker, BOTH_FORMS)
    await lab.roll("ci", namespace, writer, BOTH_FORMS)
    await rolled(lab, namespace, writer, BOTH_FORMS)
    await lab.pause(lab.rng.uniform(9, 16))
    secret = helm_kept(writer, namespace, number + 2)
    why = "the revision of the rollback"
    await lab.also(why, by, "create", "Secret", namespace, secret["metadata"]["name"], secret)
    await lab.roll(by, namespace, worker, TEXT_ONLY, culprit=True)
    await lab.roll(by, namespace, writer, TEXT_ONLY, culprit=True)


@dataclass
class _Database:
    """Who has how many of its connections, by uid of a pod: none is given back before that one is gone."""

    lab: Lab
    apps: dict[str, int]
    """What a process of each image keeps."""
    held: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def taken(self) -> int:
        return sum(self.held.values())

    async def run(self) -> None:
        while True:
            there = {uid_of(pod): pod for pod in self.lab.world["Pod"].values() if image_of(pod) in self.apps}
            for uid in self.held.keys() - there.keys():
                del self.held[uid]
            for uid, pod in there.items():
                if pod.get("status", {}).get("phase") == "Running":
                    free = MOST - RESERVED - self.taken()
                    self.held[uid] += max(0, min(free, self.apps[image_of(pod)] - self.held[uid]))
            await asyncio.sleep(0.5)

    def lacking(self, container: Container) -> float:
        """It answers with 500 what it gets no connection for in time: too many connections for its role."""
        return max(0.0, 0.95 * (1 - self.held[uid_of(container.pod)] / NEEDED)) if container.seconds > 1.5 else 0.0


@family(
    "An app gets more than twice as many pods, all of whose connections its database just has. With the next, harmless"
    " release the old pods, which go on for a while for those who are connected to them, keep theirs, and the new ones,"
    " which are ready all the same, get none.",
    joined=40,
)
async def rollout_connections(lab: Lab) -> AsyncIterator[None]:
    """As told of the day on which five replicas became twenty (michal-drozd.com)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "wishlists", "wish-page"),
            ("media", "playlists-api", "player-page"),
            ("search", "alerts-api", "alerts-page"),
        )
    )
    database, beside = f"{namespace}-db", f"{name.removesuffix('-api')}-export"
    by, week = lab.rng.choice(("alice", "carol", "flux")), lab.rng.randrange(20, 45)
    images_of = {f"registry.corp.example/{namespace}/{one}": many for one, many in ((name, POOL), (beside, 6))}
    server = _Database(lab, images_of)
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.6")
    reaches = ((namespace, database),)
    like = App("", upstreams=reaches, failing=server.lacking, asked=lambda: 60.0)
    await lab.app(namespace, name, like=like, replicas=FEW, tag=f"1.{week}.0", terminationGracePeriodSeconds=60)
    await lab.app(namespace, beside, like=App("", upstreams=reaches, failing=server.lacking), replicas=1)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.0.7")
    drains = {"preStop": {"sleep": {"seconds": DRAINS_SECONDS}}}
    lab.start(server.run())
    await lab.roll("admin", namespace, name, f"1.{week}.0", lifecycle=drains)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == FEW and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.measure("pg_stat_activity_count", server.taken, namespace=namespace, service=database)
    for one in (name, front):
        lab.alert_errors(namespace, one, seconds=6)
    lab.alert_errors(namespace, beside, 0.2)
    lab.alert_ingress_errors(namespace, namespace, seconds=6)
    lab.alert_lacking(namespace, name, seconds=15)
    await lab.pause(4)
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.pause(3)
        await lab.roll("ci", namespace, name, f"1.{week + 1}.0")
        await rolled(lab, namespace, name, f"1.{week + 1}.0")
    await lab.until(lambda: server.taken() <= POOL * FEW + 6)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"replicas": MANY}})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == MANY)
    await lab.pause(lab.rng.uniform(8, 15))
    await lab.roll("ci", namespace, name, f"1.{week + 2}.0")
