"""What a release leaves unsaid: the values by which a chart's optional part is there at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

COMES, TAKES = 14.0, 12.0
"""Messages that an app leaves each second, and how many one worker is through with."""
PATIENCE_SECONDS = 6.0
"""For which whoever asks for what comes of a message waits."""


@dataclass
class _Queue:
    """Messages between an app and its workers, the first of which is done first."""

    lab: Lab
    namespace: str
    workers: str
    waiting: float = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            ready = sum(map(is_ready, pods(self.lab.world, self.namespace, self.workers)))
            self.waiting = max(0.0, self.waiting + (COMES - TAKES * ready) / 2)

    def age(self) -> float:
        """For how long the first one has waited, as about as many come at any time."""
        return self.waiting / COMES


def _release(name: str, revision: int) -> Json:
    """What Helm keeps of one."""
    labels = {"owner": "helm", "name": name, "version": str(revision), "status": "deployed"}
    meta = {"name": f"sh.helm.release.v1.{name}.v{revision}", "labels": labels}
    return {"metadata": meta, "type": "helm.sh/release.v1", "stringData": {"release": f"H4sIAAAA{revision:08}"}}


@family(
    "An app's page needs more memory, and somebody gives it that by hand, with Helm and the one value that is to be"
    " another. Each week a pipeline names a file of values besides, by which the chart has workers at all: without it"
    " all other values are the chart's own, and Helm deletes what it does not render any more.",
    joined=58,
)
async def values_left_out(lab: Lab) -> AsyncIterator[None]:
    """As those tell who upgraded a release with --set alone, and lost what other values had turned on."""
    namespace, name, revision = lab.rng.choice(
        (("shop", "gift-cards", 31), ("media", "photo-books", 57), ("payments", "payment-links", 112))
    )
    workers, minor, person = f"{name}-worker", lab.rng.randrange(3, 25), lab.rng.choice(("alice", "bob"))
    queue, broker = _Queue(lab, namespace, workers), ((namespace, "rabbitmq"),)
    lab.who["by hand"] = replace(lab.who[person], agent="Helm/3.17.0", counts=Counter())
    share = lab.rng.uniform(0.3, 0.6)
    await lab.app(namespace, "rabbitmq", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="4.1.2")
    await lab.until(lambda: backends(lab.world, namespace, "rabbitmq"))
    like = App("", upstreams=broker, asked=lambda: 22.0, fails_with=lambda _: "504")
    like.failing = lambda _: share if queue.age() > PATIENCE_SECONDS else 0.0
    await lab.app(namespace, name, like=like, replicas=2, tag=f"2.{minor}.0")
    await lab.app(namespace, workers, like=App("", upstreams=broker, serves=False), replicas=2, tag=f"2.{minor}.0")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": workers}}}
    await lab.apply(
        {"kind": "PodDisruptionBudget", "metadata": {"namespace": namespace, "name": workers}, "spec": budget}
    )
    for app in (name, workers):
        await rolled(lab, namespace, app, f"2.{minor}.0")
        labels = {"app.kubernetes.io/instance": name, "app.kubernetes.io/managed-by": "Helm"}
        await lab.edit("admin", "Deployment", namespace, app, {"metadata": {"labels": labels}})
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, workers)
    told = {"namespace": namespace, "service": "rabbitmq", "queue": name}
    lab.measure("rabbitmq_queue_messages_ready", lambda: round(queue.waiting), "gauge", **told)
    lab.measure("rabbitmq_queue_head_message_age_seconds", queue.age, "gauge", **told)
    summary = f"messages of {namespace}/{name} wait for longer than {PATIENCE_SECONDS:.0f}s"
    lab.alert("MessagesWaiting", lambda: queue.age() > PATIENCE_SECONDS, summary, 3, namespace=namespace, queue=name)
    lab.alert_errors(namespace, name, 0.1)
    lab.start(queue.run())
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.pause(3)
        for app in (name, workers):
            await lab.roll("ci", namespace, app, f"2.{minor + 1}.0")
            await rolled(lab, namespace, app, f"2.{minor + 1}.0")
        kept = {"kind": "Secret", **_release(name, revision)}
        kept["metadata"] = {**kept["metadata"], "namespace": namespace}
        await lab.apply(kept, "ci")
        await lab.pause(6)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 9))
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    body = {"spec": {"template": {"spec": {"containers": [{**there, "resources": resources}]}}}}
    same = "the same hand, for the same purpose"
    await lab.also(same, "by hand", "update", "Deployment", namespace, name, body)
    await lab.culprit("by hand", "delete", "Deployment", namespace, workers)
    for kind in ("Service", "PodDisruptionBudget"):
        await lab.culprit("by hand", "delete", kind, namespace, workers)
    kept = _release(name, revision + 1)
    await lab.culprit("by hand", "create", "Secret", namespace, kept["metadata"]["name"], kept)
