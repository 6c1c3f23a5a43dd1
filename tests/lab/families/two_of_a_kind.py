"""Rights and budgets that are made a second time, elsewhere or once more."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.api import path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.scaling import SCALING
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

CAPACITY, LEAST = 50.0, 3
"""Requests a second that one pod stands, and how many pods there are at least."""


@dataclass
class _Evenings:
    """Apps of all namespaces, what they are asked, and who gives them as many pods as that takes."""

    lab: Lab
    apps: dict[str, str]
    asked: dict[str, float]

    async def scale(self, process: Process) -> None:
        """So many of each that they stand half as much again."""
        for namespace, name in self.apps.items():
            where = f"{path('Deployment', namespace, name)}/scale"
            wanted = max(LEAST, math.ceil(self.asked[namespace] / CAPACITY * 1.5))
            found = await process.api.call("GET", where)
            if found.ok and found.body["spec"]["replicas"] != wanted:
                await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    def app(self, namespace: str) -> App:
        def short(_: Container) -> float:
            stands = CAPACITY * len(backends(self.lab.world, namespace, self.apps[namespace]))
            return max(0.0, 1 - stands / self.asked[namespace])

        asked = partial(self.asked.__getitem__, namespace)
        return App("", capacity=2000, asked=asked, failing=short, fails_with=lambda _: "503")

    async def come(self) -> None:
        while min(self.asked.values()) < 260:
            for namespace in self.asked:
                self.asked[namespace] += self.lab.rng.uniform(2, 8)
            await asyncio.sleep(1)


@family(
    "What scales apps by their traffic may do so everywhere, which an audit minds: it is bound in each namespace of a"
    " list in its place. One namespace is not on the list, and its app is not scaled any more as its evening comes.",
    joined=27,
)
async def bound_within(lab: Lab) -> AsyncIterator[None]:
    """As happens where a ClusterRoleBinding is taken apart into RoleBindings."""
    scaler, home = "traffic-scaler", "platform"
    apps = {"shop": "offers", "payments": "tariffs", "search": "suggest", "media": "player"}
    left_out = lab.rng.choice(tuple(apps))
    evenings = _Evenings(lab, apps, dict.fromkeys(apps, 95.0))
    for namespace, name in apps.items():
        await lab.app(namespace, name, like=evenings.app(namespace), replicas=LEAST, tag="3.4.0")
        lab.alert_errors(namespace, name)
    await lab.until(lambda: all(len(backends(lab.world, *one)) == LEAST for one in apps.items()))
    await lab.controller(home, scaler, every(3, evenings.scale), SCALING, replicas=1, tag="1.3.0")
    await publish(lab, left_out, apps[left_out])
    yield
    await lab.roll("argocd", left_out, apps[left_out], "3.4.1")
    await lab.pause(lab.rng.uniform(6, 10))
    by = lab.rng.choice(("alice", "bob"))
    for namespace in apps:
        if namespace != left_out:
            await lab.apply(objects.binding(scaler, scaler, home, scaler, within=namespace), by)
    await lab.culprit(by, "delete", "ClusterRoleBinding", "", scaler)
    await lab.pause(lab.rng.uniform(4, 8))
    lab.start(evenings.come())


@family(
    "The new release of a chart brings a budget for an app that its team has made one for long ago: who is of two of"
    " them is never evicted, and the replacement of nodes, which empties one after another, gets no further.",
    joined=27,
)
async def second_budget(lab: Lab) -> AsyncIterator[None]:
    """As the API server answers: such a pod has more than one budget, which evictions do not support."""
    namespace, name = lab.rng.choice((("search", "ranking"), ("shop", "wishlists"), ("media", "playlists")))
    by, selected = lab.rng.choice(("ci", "flux", "argocd")), f"?labelSelector=app.kubernetes.io/name={name}"

    async def empty(process: Process) -> None:
        """The pod that is there longest has to go, as its node is the next one."""
        listed = await process.api.call("GET", f"{path('Pod', namespace)}{selected}")
        found = sorted(listed.body.get("items", []), key=lambda one: str(one["metadata"]["creationTimestamp"]))
        for pod in found[:1]:
            one = pod["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": one}}
            await process.api.call("POST", f"{path('Pod', namespace, one)}/eviction", body)

    await lab.app(namespace, name, replicas=4, tag="2.8.0")
    labels = {"matchLabels": {"app.kubernetes.io/name": name}}
    budget = {"maxUnavailable": 1, "selector": labels}
    meta = {"namespace": namespace, "name": f"{name}-availability"}
    await lab.apply({"kind": "PodDisruptionBudget", "metadata": meta, "spec": budget}, "bob")
    lab.reserve(namespace, name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    rules = (("", "pods", "list"), ("", "pods/eviction", "create"))
    app = await lab.controller("platform", "node-upgrader", every(5, empty), *rules, replicas=1)
    stuck = lab.rate(lab.refused(app.image, 429, 500), 0.1, seconds=15)
    of_drain = {"namespace": "platform", "service": "node-upgrader"}
    lab.alert("NodeDrainStuck", stuck, "a node could not be emptied for a while", 6, **of_drain)
    async with before(lab, days=7):  # a release comes each week
        await lab.roll(by, namespace, name, "2.8.1")
        await rolled(lab, namespace, name, "2.8.1")
        await lab.pause(6)
    yield
    await lab.roll(by, namespace, name, "2.9.0")
    chart = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": f"{name}-2.9.0"}
    body = {
        "metadata": {"name": name, "labels": chart},
        "spec": {"minAvailable": "50%", "selector": labels},
    }
    await lab.culprit(by, "create", "PodDisruptionBudget", namespace, name, body)
