"""What a chart holds everybody to: how much there may be on the disk that a pod has for its work."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

OLD_CHART, NEW_CHART, LIMIT = "worker-2.11.4", "worker-2.12.0", "1Gi"
PODS, EACH_STANDS, ASKED = 4, 10.0, 29.0
"""Pods of an app, requests a second that one of them stands, and how many come to all."""
STARTS_SECONDS, WORK_SECONDS = 3.0, 5.0
LARGE, SMALL = (140, 560), (4, 30)
"""MiB, at least and at most, that one piece of work has on the disk: of an app that has large ones, and of another."""
EVICTED = 3


@dataclass
class _Work:
    """What is in work in each pod of an app, on its disk until it is done: large pieces come as they come."""

    lab: Lab
    namespace: str
    name: str
    sizes: tuple[int, int]
    pieces: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """When each piece is done, and its size, by uid of the pod."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            there = [one for one in pods(self.lab.world, self.namespace, self.name) if is_ready(one)]
            for uid in self.pieces.keys() - set(map(uid_of, there)):
                self.lab.outside.written.pop(uid, None)
                del self.pieces[uid]
            for uid in map(uid_of, there):
                left = [(end, size) for end, size in self.pieces[uid] if end > now().timestamp()]
                if self.lab.rng.random() < 0.17:
                    left.append((now().timestamp() + WORK_SECONDS, self.lab.rng.uniform(*self.sizes)))
                self.pieces[uid] = left
                self.lab.outside.written[uid] = sum(size for _, size in left)

    def short(self, _: Container) -> float:
        """The share of what comes that those who are left have no room for."""
        return max(0.0, 1 - EACH_STANDS * len(backends(self.lab.world, self.namespace, self.name)) / ASKED)

    def evicted(self) -> int:
        there = pods(self.lab.world, self.namespace, self.name)
        return sum(one.get("status", {}).get("reason") == "Evicted" for one in there)


def _release(chart: str, volume: Json, image: str, there: Json) -> Json:
    """An app's part of a release: the chart's version, its own, and the volume for work."""
    pod = {"containers": [{**there, "image": image}], "volumes": [volume]}
    return {"metadata": {"labels": {"helm.sh/chart": chart}}, "spec": {"template": {"spec": pod}}}


@family(
    "A chart that several apps share says in its next version how much there may be in the volume for work, which had"
    " no limit. One app has small pieces only; another one has large ones, and sometimes several at once: its pods are"
    " evicted in their midst, one after another, and what is left does not stand what comes.",
    joined=58,
)
async def scratch_limited(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods were evicted by the sizeLimit of an emptyDir that a chart began to set."""
    namespace, name, other, front = lab.rng.choice(
        (
            ("media", "clip-cutter", "cover-maker", "studio-page"),
            ("payments", "archive-packer", "receipt-printer", "archive-page"),
            ("search", "dump-packer", "snippet-packer", "dumps-page"),
        )
    )
    by, minor = lab.rng.choice(("ci", "flux", "argocd")), lab.rng.randrange(3, 30)
    work = {name: _Work(lab, namespace, name, LARGE), other: _Work(lab, namespace, other, SMALL)}
    like = App("", asked=lambda: ASKED, failing=work[name].short, fails_with=lambda _: "503")
    like.capacity, like.start_seconds = 4 * EACH_STANDS, STARTS_SECONDS
    volume: Json = {"name": "work", "emptyDir": {}}
    await lab.app(namespace, name, like=like, replicas=PODS, tag=f"1.{minor}.0", volumes=[volume])
    await lab.app(namespace, other, like=App("", asked=lambda: 12.0), replicas=2, tag=f"2.{minor}.0", volumes=[volume])
    for app, tag in ((name, f"1.{minor}.0"), (other, f"2.{minor}.0")):
        mounts = [{"name": "work", "mountPath": "/work"}]
        await lab.roll("admin", namespace, app, tag, volumeMounts=mounts)
        chart = {"metadata": {"labels": {"helm.sh/chart": OLD_CHART}}}
        await lab.edit("admin", "Deployment", namespace, app, chart)
        await rolled(lab, namespace, app, tag)
    called = ((namespace, name), (namespace, other))
    await lab.app(namespace, front, like=App("", upstreams=called), replicas=2, tag="7.2.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, other)
    summary = f"{EVICTED} pods of {namespace}/{name} or more were evicted"
    evicted = lambda: work[name].evicted() >= EVICTED  # noqa: E731
    lab.alert("KubePodEvicted", evicted, summary, 3, namespace=namespace, deployment=name, reason="Evicted")
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    for one in work.values():
        lab.start(one.run())
    await lab.until(lab.is_well)
    yield
    limited: Json = {"name": "work", "emptyDir": {"sizeLimit": LIMIT}}

    def part(app: str, tag: str) -> Json:
        there = lab.world["Deployment"][namespace, app]["spec"]["template"]["spec"]["containers"][0]
        return _release(NEW_CHART, limited, f"{there['image'].rsplit(':', 1)[0]}:{tag}", there)

    await lab.pause(lab.rng.uniform(1, 4))
    await lab.edit(by, "Deployment", namespace, other, part(other, f"2.{minor}.1"))
    await lab.pause(lab.rng.uniform(6, 12))
    await lab.culprit(by, "update", "Deployment", namespace, name, part(name, f"1.{minor + 1}.0"))
