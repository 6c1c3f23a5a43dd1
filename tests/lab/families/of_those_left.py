"""What is left of an app's pods does not stand what all of them stood: each of them says so, or several go at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import uid_of
from tests.lab.network import DNS, INGRESS_CONTROLLER, backends
from tests.lab.scenario import family

PODS, STANDS = 4, 25.0
"""Pods of an app, and the requests a second that one of them stands."""
NOON, EVENING = 38.0, (70.0, 74.0)
"""Requests a second that all get at noon, and at least and at most in the evening."""
BUSY, IDLE = 0.7, 0.5
"""The share of what it stands above which a pod tells its probe to be busy, and below which it is there again."""
BUSY_MESSAGE = "probe failed: HTTP probe failed with statuscode: 503"


@dataclass
class _Workers:
    """Pods that know how busy they are; from a version on they say so by their readiness."""

    lab: Lab
    namespace: str
    name: str
    says_since: str
    asked: float = NOON
    busy: dict[str, float] = field(default_factory=dict)
    """Which share of what it stands a pod has had lately, by uid."""
    said: set[str] = field(default_factory=set)
    """Those that have told their probe to be busy."""

    def weight(self, container: Container) -> float:
        """Who calls keeps connections: some pods have a few more of them than others."""
        return _weight(uid_of(container.pod))

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            there = [uid_of(one) for one in backends(self.lab.world, self.namespace, self.name)]
            whole = sum(map(_weight, there))
            for uid in {*there, *self.busy}:
                share = self.asked * _weight(uid) / whole / STANDS if uid in there else 0.0
                self.busy[uid] = 0.5 * self.busy.get(uid, 0.0) + 0.5 * share

    def check(self, container: Container) -> Problem | None:
        uid = uid_of(container.pod)
        busy = self.busy.get(uid, 0.0)
        if busy > BUSY:
            self.said.add(uid)
        elif busy < IDLE:
            self.said.discard(uid)
        if container.tag != self.says_since or uid not in self.said:
            return None
        return Problem("unready", BUSY_MESSAGE, answers=True)


def _weight(uid: str) -> float:
    return 0.85 + crc32(uid.encode()) % 100 / 100 * 0.3


@family(
    "A release has an app say by its readiness when it is busy, so that it is sent nothing more for a while. By noon"
    " none ever is. In the evening the first one says so, the others get what it had and say so too, and in the end"
    " nobody is there for anything, though all of them together would have stood it.",
    joined=57,
)
async def busy_unready(lab: Lab) -> AsyncIterator[None]:
    """As those tell who ask for an end to that by a threshold of panic (kubernetes 115917), and MeshWeaver 3332."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "delivery-slots", "basket-page"),
            ("media", "transcripts", "watch-page"),
            ("search", "autocomplete", "start-page"),
        )
    )
    by, number = lab.rng.choice(("ci", "argocd", "carol")), lab.rng.randrange(10, 50)
    old, new = f"4.{number}.2", f"4.{number + 1}.0"
    workers = _Workers(lab, namespace, name, new)
    like = App("", check=workers.check, weight=workers.weight, asked=lambda: workers.asked, capacity=STANDS)
    like.upstreams = ((namespace, f"{name}-db"),)
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="17.2")
    await lab.app(namespace, name, like=like, replicas=PODS, tag=old)
    await rolled(lab, namespace, name, old)
    like = App("", upstreams=((namespace, name),), asked=lambda: 0.6 * workers.asked)
    await lab.app(namespace, front, like=like, replicas=3, tag="11.3.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == PODS and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(workers.follow())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, namespace, name, new, culprit=True)
    await rolled(lab, namespace, name, new)
    await lab.pause(lab.rng.uniform(5, 11))
    evening = lab.rng.uniform(*EVENING)
    while workers.asked < evening:
        workers.asked = min(evening, workers.asked + 4)
        await lab.pause(1)


ASKED, WARMS_SECONDS = 62.0, 18.0
"""Requests a second that an app gets, and for how long one of its pods reads what it needs before it is there."""
POOL, STORES = "services", "stores"
NEW_KUBELET = "v1.36.2"


async def _upgrade(lab: Lab, by: str, nodes: Sequence[str]) -> None:
    """As each week: one node after another is emptied, updated, and may be used again. Raises RefusedError."""
    for node in nodes:
        await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": True}})
        await drain(lab, by, node)
        await lab.pause(1.5)
        await lab.kubelets.update(node, NEW_KUBELET)
        await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": None}})


@family(
    "The weekly update of nodes takes half a day, as an app that is slow to start lets go of one pod at a time. So its"
    " budget is loosened to three in four. Nothing is evicted until the next update, which empties one node after"
    " another, as ever: it is through with the next one before a pod of the last one is back.",
    joined=57,
)
async def budget_loosened(lab: Lab) -> AsyncIterator[None]:
    """As told of an update on a Tuesday that evicted three of four (mdsanwarhossain.me), and of budgets in the way."""
    namespace, name = lab.rng.choice((("payments", "tariffs"), ("search", "rankings"), ("media", "waveforms")))
    by, team = lab.rng.choice(("alice", "argocd", "flux")), lab.rng.choice(("bob", "carol"))
    minor = lab.rng.randrange(9)

    def shed(_: Container) -> float:
        """What is more than those that are there stand."""
        return max(0.0, 1 - STANDS * len(backends(lab.world, namespace, name)) / ASKED)

    kept = [pod["spec"]["nodeName"] for one in (DNS, INGRESS_CONTROLLER) for pod in backends(lab.world, *one)]
    nodes = sorted(NODES, key=lambda one: (kept.count(one), lab.rng.random()))[:3]
    for node in NODES:
        labels = {"pool": POOL if node in nodes else STORES}
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": labels}})
    spread: Json = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    spread["labelSelector"] = {"matchLabels": {"app.kubernetes.io/name": name}}
    startup = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    like = App("", asked=lambda: ASKED, capacity=STANDS, failing=shed, fails_with=lambda _: "503")
    like.upstreams, like.start_seconds = ((namespace, f"{name}-db"),), WARMS_SECONDS
    store = App("", serves=False)
    apart = {"pool": STORES}
    await lab.app(namespace, f"{name}-db", like=store, kind="StatefulSet", replicas=1, tag="17.2", nodeSelector=apart)
    await lab.app(
        namespace,
        name,
        like=like,
        replicas=PODS,
        tag=f"6.{minor}.0",
        startup=startup,
        nodeSelector={"pool": POOL},
        topologySpreadConstraints=[spread],
    )
    budget = {"maxUnavailable": 1, "selector": spread["labelSelector"]}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "PodDisruptionBudget", "metadata": meta, "spec": budget})
    await rolled(lab, namespace, name, f"6.{minor}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == PODS)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 5))
    loosened = {"spec": {"maxUnavailable": "75%"}}
    await lab.culprit(by, "update", "PodDisruptionBudget", namespace, name, loosened)
    await lab.pause(lab.rng.uniform(9, 16))
    lab.start(_upgrade(lab, team, nodes))
