"""What controllers do of their own accord: fit an app to its use, and sweep up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process, millicores
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

VERTICAL, FITTED = "autoscaling.corp.example", "vertical.corp.example/admission"
MILLICORES_EACH = 16.0
"""Thousandths of a processor that one request a second takes."""
MARGIN, TOLERATED, MOST_AWAY = 1.15, 0.1, 0.5
"""What is recommended beyond the use, how far from that a pod may be, and which share of an app's pods may be away for
it: as the Vertical Pod Autoscaler has them by default."""
ACTS = ("Auto", "Recreate")


@dataclass
class _Fitting:
    """A vertical autoscaler: what its recommender, its updater and its webhook do for one app."""

    lab: Lab
    kind: Kind
    place: tuple[str, str]
    asked: float
    each: float
    """Requests a second that the app gets, and that one of its pods stands."""

    def ready(self) -> int:
        return len(backends(self.lab.world, *self.place))

    def overloaded(self, _: Container) -> float:
        return max(0.0, 1 - self.each * self.ready() / self.asked)

    @property
    def declared(self) -> Json:
        return self.lab.world[self.kind.name].get(self.place, {})

    def target(self) -> str:
        """The processors that are recommended now; "" where nothing is yet."""
        told = self.declared.get("status", {}).get("recommendation", {}).get("containerRecommendations", ())
        return str(told[0]["target"]["cpu"]) if told else ""

    async def recommend(self, process: Process) -> None:
        """By the highest use that was seen."""
        used = MILLICORES_EACH * min(self.each, self.asked / max(1, self.ready())) * MARGIN
        if used <= (millicores(self.target()) if self.target() else 0.0) * 1.02:
            return
        told = [{"containerName": self.place[1], "target": {"cpu": f"{used:.0f}m", "memory": "96Mi"}}]
        body = {"status": {"recommendation": {"containerRecommendations": told}}}
        await process.api.call("PATCH", self.kind.path(*self.place), body)

    def is_off(self, pod: Json) -> bool:
        wanted = millicores(self.target())
        return abs(millicores(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) / wanted - 1) > TOLERATED

    async def update(self, process: Process) -> None:
        """Evicts one that is not as is recommended, unless too many are away."""
        found = await process.api.call("GET", self.kind.path(*self.place))
        if not found.ok or found.body["spec"]["updatePolicy"]["updateMode"] not in ACTS or not self.target():
            return
        there = [pod for pod in pods(self.lab.world, *self.place) if "deletionTimestamp" not in pod["metadata"]]
        well, off = [pod for pod in there if is_ready(pod)], [pod for pod in there if self.is_off(pod)]
        wanted = int(self.lab.world["Deployment"][self.place]["spec"]["replicas"])
        if off and len(well) - 1 >= wanted * (1 - MOST_AWAY):
            meta = off[0]["metadata"]
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"namespace": meta["namespace"], "name": meta["name"]},
            }
            await process.api.call("POST", f"{path('Pod', meta['namespace'], meta['name'])}/eviction", body)
            said = "Pod was evicted by VPA Updater to apply resource recommendation."
            await tell(process, off[0], "Normal", "EvictedByVPA", said, by="vpa-updater")

    async def review(self, request: Json) -> list[Json] | None:
        """A pod of the app is given what is recommended."""
        if not backends(self.lab.world, "platform", "vpa-admission-controller"):
            raise ConnectionError("no pod is behind it")
        is_own = request["object"]["metadata"].get("labels", {}).get("app.kubernetes.io/name") == self.place[1]
        if not is_own or not self.target() or self.declared["spec"]["updatePolicy"]["updateMode"] == "Off":
            return None
        where = "/spec/containers/0/resources/requests/cpu"
        return [{"op": "replace", "path": where, "value": self.target()}]


@family(
    "A vertical autoscaler that has only recommended for weeks is to act on it. It is the busiest hour of the app, and"
    " it evicts its pods one after the other: each needs a while until it answers, and those that are left do not"
    " stand what comes.",
    joined=81,
)
async def fitted_while_busy(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have set the mode by day, and have found EvictedByVPA in the evening."""
    namespace, name = place = lab.rng.choice((("shop", "offers"), ("media", "home-feed"), ("payments", "quotes")))
    by, other = lab.rng.choice(("alice", "flux", "bob")), lab.rng.choice(("ci", "argocd"))
    acts, replicas = lab.rng.choice(ACTS), lab.rng.choice((3, 4))
    kind = await lab.custom("VerticalPodAutoscaler", VERTICAL, ANY)
    await lab.served(kind)
    fitting = _Fitting(lab, kind, place, asked=18.0 * replicas, each=21.0)
    like = App(
        "",
        asked=lambda: fitting.asked,
        capacity=25.0,
        start_seconds=lab.rng.uniform(12, 18),
        failing=fitting.overloaded,
        fails_with=lambda _: "503",
    )
    startup = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    await lab.app(namespace, name, like=like, replicas=replicas, tag="6.1.0", startup=startup)
    await rolled(lab, namespace, name, "6.1.0")
    await lab.until(lambda: fitting.ready() == replicas)
    await publish(lab, namespace, name)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    meta = {"namespace": namespace, "name": name}
    spec = {"targetRef": target, "updatePolicy": {"updateMode": "Off"}}
    await lab.apply({"kind": "VerticalPodAutoscaler", "metadata": meta, "spec": spec})
    reads, watches = (VERTICAL, "verticalpodautoscalers", "get,list,watch,patch"), ("", "pods", "get,list,watch")
    for one, program, *more in (
        ("vpa-recommender", every(3, fitting.recommend)),
        ("vpa-updater", every(2.5, fitting.update), ("", "pods/eviction,events", "create")),
    ):
        await lab.controller("platform", one, program, reads, watches, *more, replicas=1, tag="1.5.1")
        await rolled(lab, "platform", one, "1.5.1")
    server = ("platform", "vpa-admission-controller")
    await lab.app(*server, like=App("", serves=False), replicas=1, tag="1.5.1")
    await rolled(lab, *server, "1.5.1")
    webhook = Webhook(fitting.review, service=server)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {FITTED: "enabled"}}})
    manifest = configuration("vpa-webhook-config", webhook, only=FITTED)
    manifest["kind"], manifest["webhooks"][0]["failurePolicy"] = "MutatingWebhookConfiguration", "Ignore"
    await lab.apply(manifest)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(fitting.target)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, *lab.rng.choice((("search", "query"), ("search", "indexer"))), "1.62.0")
    await lab.pause(lab.rng.uniform(4, 9))
    mode = {"spec": {"updatePolicy": {"updateMode": acts}}}
    await lab.culprit(by, "update", "VerticalPodAutoscaler", namespace, name, mode)


PREVIEW = "environment=preview"
OLDER_THAN_SECONDS, RUN_SECONDS, MINUTE = 30.0, 6.0, 60.0
"""What is younger than half an hour is left; a second stands for a minute. A CronJob is due each real minute."""


async def _sweep(process: Process) -> None:
    """Deletes what its selector finds, and is done; its container ends a little later."""
    for namespace in process.env["NAMESPACES"].split(","):
        where = path("Deployment", namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector={quote(process.env['SELECTOR'])}")
        for one in listed.body.get("items", ()):
            age = now() - datetime.fromisoformat(one["metadata"]["creationTimestamp"])
            if age.total_seconds() > OLDER_THAN_SECONDS:
                await process.api.call("DELETE", f"{where}/{one['metadata']['name']}")
    await asyncio.Event().wait()


async def _previews(lab: Lab, namespace: str) -> None:
    """Of each branch that somebody opens, a preview."""
    while True:
        name = f"pr-{lab.rng.randrange(1000, 9999)}"
        made = objects.deployment(namespace, name, "registry.corp.example/previews/web:1.0.0", replicas=1)
        made["metadata"]["labels"]["environment"] = "preview"
        await lab.apply(made, by="ci")
        await lab.pause(lab.rng.uniform(18, 28))


@family(
    "A job that deletes previews of branches once they are old is to find forgotten trials, too: it takes all that is"
    " not labelled as production. An app that serves users never had that label, and is deleted.",
    joined=81,
)
async def swept_away(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose clean-up took what has no label for what differs from it."""
    namespace, name = lab.rng.choice((("shop", "wishlists"), ("media", "captions"), ("search", "autocomplete")))
    by, other = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice(("argocd", "ci"))
    wider = lab.rng.choice(("environment!=production", "environment notin (production,staging)"))
    job, image = "clean-previews", "registry.corp.example/platform/clean-previews"
    for one in APPS[namespace]:
        labels = {"metadata": {"labels": {"environment": "production"}}}
        await lab.edit("admin", "Deployment", namespace, one, labels)
    await lab.app(namespace, name, replicas=3, tag="2.14.0")
    await rolled(lab, namespace, name, "2.14.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.apps[image] = App(image, program=_sweep, ends_after=RUN_SECONDS, serves=False)
    await lab.apply(objects.account("platform", job))
    await lab.apply(objects.cluster_role(job, ("apps", "deployments", "get,list,delete")))
    await lab.apply(objects.binding(job, job, "platform", job))

    def containers(selector: str) -> list[Json]:
        env = [{"name": "NAMESPACES", "value": namespace}, {"name": "SELECTOR", "value": selector}]
        return [{"name": job, "image": f"{image}:1.3.0", "env": env}]

    def template(selector: str) -> Json:
        spec = {"serviceAccountName": job, "restartPolicy": "Never", "containers": containers(selector)}
        return {"spec": {"template": {"spec": spec}}}

    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template(PREVIEW)}
    await lab.apply({"kind": "CronJob", "metadata": {"namespace": "platform", "name": job}, "spec": spec})
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(_previews(lab, namespace))
    await lab.until(lab.is_well)
    yield
    await lab.pause((MINUTE - 28.0 - now().timestamp()) % MINUTE)
    await lab.roll(other, "payments", "checkout", "1.47.0")
    await lab.pause(lab.rng.uniform(3, 12))
    more = {"spec": {"jobTemplate": template(wider)}}
    await lab.culprit(by, "update", "CronJob", "platform", job, more)
