"""Of those that are gone for a moment or for good: a primary that is back too soon, members whose places are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.nodes import provide
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

DOWN_AFTER = 6.0
"""Seconds without a primary after which its sentinels promote another one: one that is back by then was never gone."""
ASKED, STANDS, KEYS = 64.0, 24.0, 4200.0
"""Requests a second of an app, how many of them its database stands, and what is in its cache at noon."""
CONFIG = "redis.conf"
PARTITIONS, TAKES, COMES = 12, 14.0, 24.0
"""Of a topic, how many messages a second a consumer takes, and how many come to all partitions."""
SHARES_SECONDS, FAR_BEHIND = 1.0, 180.0
"""For how long nobody takes anything while partitions are dealt anew, and how many messages wait for the alert."""
SESSION_SECONDS, SESSION_MS = 30.0, "1800000"
PLACE, SESSION = "KAFKA_GROUP_INSTANCE_ID", "KAFKA_SESSION_TIMEOUT_MS"


@dataclass
class _Cache:
    """Redis with sentinels: replicas have what their primary has, and a process what its disk has as it starts."""

    lab: Lab
    namespace: str
    name: str
    primary: str
    uid: str = ""
    """Of the primary's pod as it was last heard of."""
    lost: float = 0.0
    held: float = 0.97
    """The share of what is asked for that is there."""

    def ready(self) -> list[Json]:
        found = pods(self.lab.world, self.namespace, self.name)
        return [pod for pod in found if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.step(now().timestamp())

    def step(self, at: float) -> None:
        there = {str(pod["metadata"]["name"]): uid_of(pod) for pod in self.ready()}
        if self.primary not in there:
            self.lost = self.lost or at
            if there and at - self.lost > DOWN_AFTER:
                self.primary = min(there)
                self.uid = there[self.primary]
            return
        self.lost = 0.0
        if self.uid and there[self.primary] != self.uid and not self._logs():
            self.held = 0.0  # there is no snapshot to go by, and its replicas copy that
        self.uid = there[self.primary]
        missed = min(STANDS, self.queries())
        self.held = min(0.97, self.held + missed / 2 / KEYS)

    def _logs(self) -> bool:
        """Whether a process reads at its start what it has logged of all writes."""
        told = self.lab.world["ConfigMap"][self.namespace, self.name]["data"][CONFIG]
        return "appendonly yes" in told

    def hits(self) -> float:
        return self.held if self.ready() else 0.0

    def queries(self) -> float:
        """A second, of the database."""
        return ASKED * (1 - self.hits())

    def starved(self, _: Container) -> float:
        """The share of requests for which the database has no time."""
        return max(0.0, self.queries() - STANDS) / ASKED


def _config(logs: str) -> str:
    return f'bind * -::*\nmaxmemory 3gb\nmaxmemory-policy allkeys-lru\nsave ""\nappendonly {logs}\n'


async def _redis(lab: Lab, namespace: str, name: str, tag: str) -> None:
    """Three pods, each with a disk of its own for its log. Raises RefusedError."""
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "standard"}, "provisioner": "disk.csi.example"})
    await lab.apply(objects.config_map(namespace, name, **{CONFIG: _config("yes")}))
    await lab.apply(objects.service(namespace, name))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, serves=False)
    body = objects.deployment(namespace, name, f"{image}:{tag}", kind="StatefulSet", replicas=3, config=name)
    body["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] += [{"name": "data", "mountPath": "/data"}]
    claim: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard"}
    claim["resources"] = {"requests": {"storage": "1Gi"}}
    body["spec"] |= {"serviceName": name, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]}
    await lab.apply(body)


@family(
    "A cache writes a log of all writes, and no snapshots. Its disk is slow, and somebody has it write no log either,"
    " which is read at the next start. Its pods are made anew for their weekly base image: its primary is back before a"
    " sentinel has missed it, with nothing, and all replicas copy that; what it would answer the database does not"
    " stand.",
    joined=59,
)
async def back_empty(lab: Lab) -> AsyncIterator[None]:
    """As users of its operators and charts tell who let Redis keep nothing (spotahome/redis-operator 95)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "product-details", "product-page"),
            ("media", "episodes", "episode-page"),
            ("search", "entities", "entity-page"),
        )
    )
    cache, database, week = f"{name}-redis", f"{name}-db", lab.rng.randrange(9, 40)
    by, team = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice(("ci", "argocd"))
    await _redis(lab, namespace, cache, f"7.4.2-r{week}")
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.8")
    keeper = _Cache(lab, namespace, cache, f"{cache}-0")
    reaches = ((namespace, database), (namespace, cache))
    like = App("", upstreams=reaches, asked=lambda: ASKED, failing=keeper.starved, fails_with=lambda _: "503")
    like.latency = lambda _: 0.9 if keeper.queries() > STANDS else 0.0
    await lab.app(namespace, name, like=like, replicas=3, tag="14.2.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.30.2")
    await lab.until(lambda: len(keeper.ready()) == 3)
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (database, name, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    of_cache = {"namespace": namespace, "service": cache}
    lab.measure("redis_db_keys", lambda: round(keeper.held * KEYS), "gauge", **of_cache, db="db0")
    for told, rate in (("hits", lambda: ASKED * keeper.hits()), ("misses", keeper.queries)):
        lab.measure(f"redis_keyspace_{told}_total", lab.adding_up(rate), "counter", **of_cache)
    done = lab.adding_up(lambda: min(STANDS, keeper.queries()) + 2)
    of_base = {"namespace": namespace, "service": database, "datname": name}
    lab.measure("pg_stat_database_xact_commit_total", done, "counter", **of_base)
    lab.alert_errors(namespace, name, 0.15)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    lab.start(keeper.run())
    await lab.until(lambda: keeper.uid and lab.is_well())

    async def anew(tag: str) -> None:
        """The pods of the cache get the base image of the week."""
        [there] = lab.world["StatefulSet"][namespace, cache]["spec"]["template"]["spec"]["containers"]
        one = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:{tag}"}
        body = {"spec": {"template": {"spec": {"containers": [one]}}}}
        await lab.edit(team, "StatefulSet", namespace, cache, body)

    async with before(lab, days=7):
        await lab.pause(2)
        await anew(f"7.4.2-r{week + 1}")
        await rolled(lab, namespace, cache, f"7.4.2-r{week + 1}")
        await lab.pause(6)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    body = {"data": {CONFIG: _config("no")}}
    await lab.culprit(by, "update", "ConfigMap", namespace, cache, body)
    await lab.pause(lab.rng.uniform(7, 14))
    await anew(f"7.4.2-r{week + 2}")


@dataclass
class _Group:
    """Consumers of a topic. Who has a name of its own in the group keeps its place for as long as its session."""

    lab: Lab
    namespace: str
    name: str
    seen: dict[str, float] = field(default_factory=dict)
    """When each member was last heard of; whoever has no name of its own says so as it leaves."""
    named: set[str] = field(default_factory=set)
    behind: list[float] = field(default_factory=lambda: [0.0] * PARTITIONS)
    until: float = 0.0
    dealt: int = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.step(now().timestamp())

    def step(self, at: float) -> None:
        found = pods(self.lab.world, self.namespace, self.name)
        ready = [pod for pod in found if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
        there = {uid_of(pod) for pod in ready}
        self.named |= {uid_of(pod) for pod in ready if _has_place(pod)}
        over = {one for one in self.seen if one not in there and self._is_over(one, at)}
        if over or there - self.seen.keys():
            self.dealt, self.until = self.dealt + 1, at + SHARES_SECONDS
        self.seen = {**{one: when for one, when in self.seen.items() if one not in over}, **dict.fromkeys(there, at)}
        members = sorted(self.seen)
        for number in range(PARTITIONS):
            self.behind[number] += COMES / PARTITIONS / 2
        if at < self.until:
            return
        for turn, one in enumerate(members):
            room = TAKES / 2 if one in there else 0.0
            for number in range(turn, PARTITIONS, len(members)):
                taken = min(room, self.behind[number])
                self.behind[number] -= taken
                room -= taken

    def _is_over(self, one: str, at: float) -> bool:
        return one not in self.named or at - self.seen[one] > SESSION_SECONDS

    def lag(self) -> float:
        return float(round(sum(self.behind)))


def _has_place(pod: Json) -> bool:
    return any(one["name"] == PLACE for one in pod["spec"]["containers"][0].get("env", ()))


@family(
    "So that rollouts do not have partitions dealt anew, each consumer gets a name of its own in its group, that of its"
    " pod, and a long session. Pods of a Deployment are called otherwise each time: with the next, harmless release the"
    " places of those that have gone are kept for them, and what is in their partitions waits.",
    joined=59,
)
async def held_places(lab: Lab) -> AsyncIterator[None]:
    """As told of static members that hold their partitions after they have gone (schema.ai, madplay)."""
    namespace, name, writer, topic = lab.rng.choice(
        (
            ("shop", "order-confirmer", "order-intake", "orders"),
            ("payments", "receipt-writer", "payment-intake", "payments"),
            ("media", "upload-indexer", "upload-intake", "uploads"),
        )
    )
    bus, number = f"{namespace}-bus", lab.rng.randrange(4, 30)
    by, team = lab.rng.choice(("bob", "carol", "alice")), lab.rng.choice(("ci", "argocd", "flux"))
    tag, group = f"1.{number}.0", _Group(lab, namespace, name)
    await lab.app(namespace, bus, like=App("", serves=False), kind="StatefulSet", replicas=3, tag="3.9.1")
    reaches = ((namespace, bus),)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", MAX_POLL_RECORDS="100"))
    await lab.app(namespace, name, like=App("", upstreams=reaches, serves=False), replicas=3, tag=tag, config=name)
    await lab.app(namespace, writer, like=App("", upstreams=reaches), replicas=2, tag="8.0.4")
    await lab.app("monitoring", "kafka-exporter", like=App("", serves=False), replicas=1, tag="1.9.0")
    await rolled(lab, namespace, name, tag)
    await lab.until(lambda: backends(lab.world, namespace, bus) and backends(lab.world, namespace, writer))
    await publish(lab, namespace, writer)
    lab.reserve(namespace, name)
    exporter = {"namespace": "monitoring", "service": "kafka-exporter", "consumergroup": name}
    lab.measure("kafka_consumergroup_lag_sum", group.lag, "gauge", **exporter, topic=topic)
    lab.measure("kafka_consumergroup_members", lambda: float(len(group.seen)), "gauge", **exporter)
    summary = f"consumer group {name} is far behind in topic {topic}"
    told = {"namespace": namespace, "consumergroup": name, "topic": topic}
    lab.alert("KafkaConsumerGroupLag", lambda: group.lag() > FAR_BEHIND, summary, 5, **told)
    lab.start(group.run())
    await lab.pause(4)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    place = {"name": PLACE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    env = [place, {"name": SESSION, "value": SESSION_MS}]
    await lab.roll(by, namespace, name, tag, culprit=True, env=env)
    await lab.until(lambda: all(map(_has_place, pods(lab.world, namespace, name))))
    await rolled(lab, namespace, name, tag)
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.roll(team, namespace, name, f"1.{number + 1}.0")
