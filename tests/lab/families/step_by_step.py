"""How many steps something is done in: pods that come one after another, and a release that leaves none in between."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

GROUP, ARGO = "keda.sh", "argoproj.io"
EACH_STANDS, LEAST, SPARE = 30.0, 3, 1.6
"""Requests a second of a pod, how many of those there are at least, and by how much more are wanted."""
AFTERNOON, EVENING, RISES_BY = 52.0, 300.0, 10.5
"""Requests a second by the time of day, and by how much those grow each minute in between."""
AS_IT_COMES: Json = {
    "policies": [
        {"type": "Percent", "value": 100, "periodSeconds": 15},
        {"type": "Pods", "value": 4, "periodSeconds": 15},
    ]
}
ONE_AT_A_TIME: Json = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}]}
STARTS_SECONDS = 11.0


@dataclass
class _Scaler:
    """By requests, as far as its policies let it go up within their periods."""

    kind: Kind
    namespace: str
    name: str
    asked: float = AFTERNOON
    added: deque[tuple[datetime, int]] = field(default_factory=deque)

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        if not (declared.ok and found.ok):
            return
        there = int(found.body["spec"]["replicas"])
        behavior = declared.body["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        most = max(self._at_most(there, one) for one in behavior["scaleUp"]["policies"])
        wanted = max(LEAST, math.ceil(self.asked * SPARE / EACH_STANDS))
        replicas = min(wanted, most, int(declared.body["spec"]["maxReplicaCount"]))
        if replicas > there:
            self.added.append((now(), replicas - there))
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})

    def _at_most(self, there: int, policy: Json) -> int:
        """Of what there was as the period began."""
        since = now() - timedelta(minutes=policy["periodSeconds"] / 3600)  # a second stands for a minute
        began = there - sum(number for at, number in self.added if at > since)
        value = int(policy["value"])
        return began + value if policy["type"] == "Pods" else math.ceil(began * (1 + value / 100))

    async def rise(self, lab: Lab) -> None:
        """As every evening."""
        while self.asked < EVENING:
            self.asked += RISES_BY * lab.rng.uniform(0.9, 1.1)
            await lab.pause(1)


def _behaviour(up: Json) -> Json:
    return {"spec": {"advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleUp": up}}}}}


@family(
    "An autoscaler adds the pods of an app in leaps, and somebody who finds that nervous tells it to add one at a time,"
    " and to wait some minutes before the next. In the evening users come faster than that, as every day, and what"
    " there is of the app does not stand them.",
    joined=41,
)
async def one_by_one(lab: Lab) -> AsyncIterator[None]:
    """Of the API of autoscalers: of several policies for scaling up, the one that adds most holds."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "recommendations", "landing-page"),
            ("media", "timelines", "timeline-page"),
            ("search", "completions", "search-box"),
        )
    )
    by, then_by = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice(("ci", "argocd"))
    kind = await lab.custom("ScaledObject", GROUP, ANY)
    scaler = _Scaler(kind, namespace, name)

    def short(_: Container) -> float:
        """All of it comes to those that are there."""
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / scaler.asked)

    like = App("", asked=lambda: scaler.asked, failing=short, fails_with=lambda _: "503", capacity=3 * EACH_STANDS)
    await lab.app(namespace, name, like=like, replicas=LEAST, tag="3.14.1")
    above = App("", upstreams=((namespace, name),))
    await lab.app(namespace, front, like=above, replicas=2, tag="8.2.0")
    await lab.served(kind)
    target = {"scaleTargetRef": {"name": name}, "minReplicaCount": LEAST, "maxReplicaCount": 20}
    meta = {"namespace": namespace, "name": name}
    spec = {**target, **_behaviour(AS_IT_COMES)["spec"]}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.until(
        lambda: len(backends(lab.world, namespace, name)) == LEAST and backends(lab.world, namespace, front)
    )
    rules = (GROUP, kind.plural, "get,list,watch"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(1.0, scaler.scale), *rules, replicas=1)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.measure("keda_scaler_metrics_value", lambda: scaler.asked, namespace="platform", service="keda-operator")
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(by, "update", kind.name, namespace, name, _behaviour(ONE_AT_A_TIME))
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(then_by, namespace, front, "8.2.1")
    await lab.pause(lab.rng.uniform(4, 8))
    lab.start(scaler.rise(lab))


@dataclass
class _Sync:
    """An agent that has an application as Git says; ``tag`` is what that says."""

    application: Kind
    namespace: str
    name: str
    tag: str

    async def run(self, process: Process) -> None:
        where = self.application.path("argocd", self.name)
        declared = await process.api.call("GET", where)
        place = path("Deployment", self.namespace, self.name)
        found = await process.api.call("GET", place)
        if not (declared.ok and found.ok):
            return
        [there] = found.body["spec"]["template"]["spec"]["containers"]
        image, _, tag = str(there["image"]).rpartition(":")
        if tag == self.tag:
            return
        containers = [{**there, "image": f"{image}:{self.tag}"}]
        body: Json = {"spec": {"template": {"spec": {"containers": containers}}}}
        options = declared.body["spec"]["syncPolicy"].get("syncOptions", ())
        if {"Replace=true", "Force=true"} <= set(options):
            await self._replace(process, place, found.body, containers)
        else:
            await process.api.call("PATCH", place, body)
        told = {"sync": {"status": "Synced", "revision": f"v{self.tag}"}}
        await process.api.call("PATCH", where, {"status": told})

    async def _replace(self, process: Process, place: str, there: Json, containers: list[Json]) -> None:
        """As ``kubectl replace --force``: it is deleted, and made anew."""
        await process.api.call("DELETE", place, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        meta = {key: there["metadata"][key] for key in ("namespace", "name", "labels")}
        template = there["spec"]["template"]
        pod = {**template, "spec": {**template["spec"], "containers": containers}}
        body = {"metadata": meta, "spec": {**there["spec"], "template": pod}}
        await process.api.call("POST", path("Deployment", self.namespace), body)


@family(
    "A Job of an application cannot be changed in place, so somebody has an agent replace all of that application by"
    " force. With the next release, which is as harmless as that of each week, the agent deletes the Deployment and"
    " makes it anew: all pods go at once, and the new ones are slow to start.",
    joined=41,
)
async def from_scratch(lab: Lab) -> AsyncIterator[None]:
    """Of Argo CD's documentation: with both options a resource is deleted and made anew, which may mean an outage."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "stock", "product-page"),
            ("payments", "statements", "account-page"),
            ("media", "catalogue", "browse-page"),
        )
    )
    by, week = lab.rng.choice(("alice", "bob", "carol")), lab.rng.randrange(10, 44)
    application = await lab.custom("Application", ARGO, ANY)
    sync = _Sync(application, namespace, name, f"4.{week}.0")
    like = App("", start_seconds=STARTS_SECONDS, asked=lambda: 40.0)
    await lab.app(namespace, name, like=like, replicas=4, tag=sync.tag)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.21.0")
    await lab.served(application)
    meta = {"namespace": "argocd", "name": name}
    policy: Json = {"automated": {"prune": False, "selfHeal": True}, "syncOptions": ["CreateNamespace=true"]}
    source = {"repoURL": "https://git.corp.example/deploy.git", "path": f"apps/{namespace}/{name}"}
    spec = {"source": source, "destination": {"namespace": namespace}, "syncPolicy": policy}
    await lab.apply({"apiVersion": f"{ARGO}/v1", "kind": application.name, "metadata": meta, "spec": spec})
    rules = (ARGO, application.plural, "get,list,watch,patch"), ("apps", "deployments", "*")
    await lab.controller("argocd", "application-sync", every(1.5, sync.run), *rules, replicas=1, tag="3.1.4")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_lacking(namespace, name, seconds=40)
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.pause(3)
        sync.tag = f"4.{week + 1}.0"
        await rolled(lab, namespace, name, sync.tag)
        await lab.pause(2)
    await lab.until(lab.is_well)
    yield
    options = [*policy["syncOptions"], "Replace=true", "Force=true"]
    body = {"spec": {"syncPolicy": {"syncOptions": options}}}
    await lab.culprit(by, "update", application.name, "argocd", name, body)
    await lab.pause(lab.rng.uniform(10, 18))
    sync.tag = f"4.{week + 2}.0"
