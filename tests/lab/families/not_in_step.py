"""What does not keep step with somebody outside: a webhook that asks there, keys that were read once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_done
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

CENTRE = "finance.corp.example/cost-centre"
BUILD_SECONDS, BUILD_EVERY, TOO_MANY = 4.0, 2.2, 5
CATALOG_SECONDS = 5.5, 7.5
"""How long the catalogue outside takes to say who pays for what."""
SIGNED_IN_SECONDS = 24.0
"""After which a user's token is over and another one is asked for; each has its own time."""
TAG, NEXT_TAG = "5.6.2", "5.7.0"


@dataclass
class _Builds:
    """They are started one after the other, in the order in which they came."""

    lab: Lab
    waiting: int = 0
    labels: Json = field(default_factory=lambda: {"app.kubernetes.io/name": "build"})

    async def come(self) -> None:
        while True:
            await asyncio.sleep(BUILD_EVERY * self.lab.rng.uniform(0.6, 1.4))
            self.waiting += 1

    async def start(self, process: Process) -> None:
        where = path("Pod", "builds")
        listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name=build")
        for one in filter(is_done, listed.body.get("items", [])):
            await process.api.call("DELETE", f"{where}/{one['metadata']['name']}")
        if not self.waiting:
            return
        image = "registry.corp.example/builds/build:1.0.0"
        pod = objects.deployment("builds", "build", image, restartPolicy="Never")["spec"]["template"]["spec"]
        del pod["containers"][0]["readinessProbe"]
        meta = {"generateName": "build-", "labels": self.labels}
        if (await process.api.call("POST", where, {"metadata": meta, "spec": pod})).ok:
            self.waiting -= 1


@family(
    "A webhook writes into each pod who pays for it, and asks a catalogue outside, which takes some seconds. As it"
    " fails open and had but one second, no pod ever got that: somebody gives it more time. Now each pod does, and"
    " whatever makes one waits for it.",
    joined=37,
)
async def fail_open_timeout(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of webhooks warns: what may fail is waited for all the same."""
    by = lab.rng.choice(("alice", "bob", "flux"))
    hook = lab.rng.choice(("cost-labels", "chargeback", "cost-centres"))
    builds = _Builds(lab)

    async def review(request: Json) -> list[Json]:
        if not backends(lab.world, "platform", hook):
            raise ConnectionError("no pod is behind it")
        await asyncio.sleep(lab.kubelets.rng.uniform(*CATALOG_SECONDS))
        notes = request["object"]["metadata"].get("annotations") or {}
        paid = {**notes, CENTRE: f"cc-{len(request['namespace']) * 37 % 900 + 100}"}
        return [{"op": "add", "path": "/metadata/annotations", "value": paid}]

    await lab.namespace("builds")
    await lab.app("platform", hook, like=App("", abroad=("catalog.finance.example",)), tag="1.1.3")
    await lab.until(lambda: backends(lab.world, "platform", hook))
    webhook = Webhook(review, service=("platform", hook))
    await webhook.start()
    lab.servers.append(webhook)
    image = "registry.corp.example/builds/build"
    lab.apps[image] = App(image, ends_after=BUILD_SECONDS, serves=False)
    rights = ("", "pods", "list,create,delete")
    app = await lab.controller("builds", "runner", every(0.3, builds.start), rights, replicas=1, tag="16.4.0")
    app.serves = True
    await lab.until(lambda: backends(lab.world, "builds", "runner"))
    made = configuration(hook, webhook, seconds=1)
    [one] = made["webhooks"]
    one["failurePolicy"] = "Ignore"
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration"})
    await lab.pause(1)
    lab.start(builds.come())
    lab.measure("ci_pending_builds", lambda: builds.waiting, namespace="builds", service="runner")
    holds = lambda: builds.waiting >= TOO_MANY  # noqa: E731
    summary = "builds have been waiting to be started for a while"
    lab.alert("BuildsWaiting", holds, summary, 5, namespace="builds", service="runner")
    await lab.pause(6)
    await lab.until(lab.is_well)
    yield
    hooks = [{**one, "timeoutSeconds": 10}]
    await lab.culprit(by, "update", "MutatingWebhookConfiguration", "", hook, {"webhooks": hooks})


@dataclass
class _Provider:
    """Who signs users in, outside: since when it signs with another key, or None."""

    since: float | None = None

    def unknown(self, container: Container) -> float:
        """The share of the tokens that a process has no key for: it has read them all at its start."""
        if self.since is None or now().timestamp() - container.seconds > self.since:
            return 0.0
        return min(0.95, (now().timestamp() - self.since) / SIGNED_IN_SECONDS)


def _unauthorized(lab: Lab, namespace: str) -> bool:
    answers = lab.traffic.of_ingress(namespace, namespace, 8).answers
    return answers["401"] > 0.1 * max(1, answers.total())


@family(
    "Who signs users in outside signs with another key from now on, without the days in which it used to publish both."
    " Apps that check the tokens have read the keys at their start: as users' tokens are renewed, one call after"
    " another is answered with 401. One of the apps has just had a release.",
    culprit=False,
    joined=37,
)
async def provider_keys(lab: Lab) -> AsyncIterator[None]:
    """As told of providers of identities that change their keys at once, after a leak."""
    apps = (
        ("shop", "orders-api", "stock-db"),
        ("media", "library-api", "titles-db"),
        ("payments", "cards-api", "cards-db"),
    )
    provider, by = _Provider(), lab.rng.choice(("ci", "argocd", "carol"))
    chosen = lab.rng.sample(apps, 2)
    for namespace, name, database in chosen:
        await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.2")
        like = App(
            "",
            upstreams=((namespace, database),),
            abroad=("login.identity.example",),
            asked=partial(float, lab.rng.uniform(18, 40)),
            failing=provider.unknown,
            fails_with=lambda _: "401",
        )
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="20"))
        await lab.app(namespace, name, like=like, replicas=3, tag=TAG, config=name)
        await rolled(lab, namespace, name, TAG)
        await publish(lab, namespace, name)
        lab.reserve(namespace, name, database)
        holds = partial(_unauthorized, lab, namespace)
        summary = f"more than 10% of the requests to Ingress {namespace}/{namespace} are answered with 401"
        lab.alert("NginxHighHttp4xxErrorRate", holds, summary, namespace=namespace, ingress=namespace)
    await lab.until(lab.is_well)
    yield
    namespace, name, _ = chosen[0]
    await lab.roll(by, namespace, name, NEXT_TAG)
    await rolled(lab, namespace, name, NEXT_TAG)
    await lab.pause(lab.rng.uniform(3, 7))
    provider.since = now().timestamp()
