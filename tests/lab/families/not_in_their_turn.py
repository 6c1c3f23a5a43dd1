"""What was in step and is no more: a balancer and a rollout, the names of members, three layers that try again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import gates, uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

STRATEGIC = "application/strategic-merge-patch+json"
CONTROLLER = ("kube-system", "aws-load-balancer-controller")
INJECTED, GATE = "elbv2.k8s.aws/pod-readiness-gate-inject", "target-health.elbv2.k8s.aws"
HEALTHY_SECONDS = 15.0
"""From a target's registration to the last of the checks in a row that it has to pass."""


@dataclass
class _Targets:
    """Those of one load balancer, which sends users to the addresses of pods itself, past any Service."""

    lab: Lab
    namespace: str
    name: str
    users: float
    since: dict[str, float] = field(default_factory=dict)
    """When each was registered, by uid of its pod."""
    lately: list[float] = field(default_factory=list)

    async def keep(self, process: Process) -> None:
        """As its controller: who has come up is registered, and told of once it is healthy; who ends is taken out."""
        where = f"{path('Pod', self.namespace)}?labelSelector=app.kubernetes.io/name={self.name}"
        listed = await process.api.call("GET", where)
        there = {uid_of(pod): pod for pod in listed.body.get("items", ()) if "deletionTimestamp" not in pod["metadata"]}
        self.since = {uid: at for uid, at in self.since.items() if uid in there or not listed.ok}
        for uid, pod in there.items():
            conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
            if conditions.get("ContainersReady") == "True":
                self.since.setdefault(uid, now().timestamp())
            closed = [one["type"] for one in gates(pod) if one["status"] != "True"]
            if closed and self.is_healthy(uid):
                at = f"{now():%Y-%m-%dT%H:%M:%SZ}"
                told = [{"type": one, "status": "True", "lastTransitionTime": at} for one in closed]
                status = f"{path('Pod', self.namespace, pod['metadata']['name'])}/status"
                await process.api.call("PATCH", status, {"status": {"conditions": told}}, patch=STRATEGIC)

    def is_healthy(self, uid: str) -> bool:
        return now().timestamp() - self.since.get(uid, now().timestamp()) >= HEALTHY_SECONDS

    def healthy(self) -> float:
        return float(sum(map(self.is_healthy, self.since)))

    def asked(self) -> float:
        return self.users if self.healthy() else 0.0

    def refused(self) -> float:
        """How many users a second it answers with 503, as it has nobody to send them to."""
        return self.users - self.asked()

    async def count(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.lately = [*self.lately[-9:], self.refused() / self.users]

    def share(self) -> float:
        """Of what it was asked in the last seconds, what it has refused."""
        return sum(self.lately) / max(1, len(self.lately))


@family(
    "A load balancer sends users to the addresses of pods, and each new pod waits with being ready until it is healthy"
    " there, by a gate that is put into it where its namespace has a label. That goes in a clean-up of labels: the"
    " next, harmless release is through before the load balancer has any of the new pods, and the old ones are gone.",
    joined=64,
)
async def gate_label(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a rollout that is faster than the registration of its targets (aws-load-balancer-controller)."""
    namespace, name = lab.rng.choice((("shop", "checkout-page"), ("media", "live-player"), ("payments", "login")))
    number, by = lab.rng.randrange(20, 70), lab.rng.choice(("bob", "carol", "flux"))
    targets = _Targets(lab, namespace, name, lab.rng.uniform(24, 40))

    async def inject(request: Json) -> list[Json]:
        listed = [*request["object"]["spec"].get("readinessGates", ()), {"conditionType": f"{GATE}/{name}"}]
        return [{"op": "add", "path": "/spec/readinessGates", "value": listed}]

    rules = (("", "pods", "get,list"), ("", "pods/status", "patch"))
    await lab.controller(*CONTROLLER, every(1, targets.keep), *rules, replicas=1, tag="2.13.4")
    webhook = Webhook(inject, service=CONTROLLER)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.until(lambda: backends(lab.world, *CONTROLLER))
    labels = {INJECTED: "enabled", "cost-centre": "1040", "owner": "web"}
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": labels}})
    made = configuration("aws-load-balancer-webhook", webhook, only=INJECTED)
    only = {"objectSelector": {"matchLabels": {"app.kubernetes.io/name": name}}, "failurePolicy": "Ignore"}
    hooks = [{**made["webhooks"][0], **only, "name": "mpod.elbv2.k8s.aws"}]
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration", "webhooks": hooks})
    await lab.pause(1)  # until the API server asks the webhook
    like = App("", asked=targets.asked, weight=lambda one: float(targets.is_healthy(uid_of(one.pod))))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{number}.0")
    await rolled(lab, namespace, name, f"4.{number}.0")
    lab.reserve(namespace, name)
    told = {"namespace": "monitoring", "service": "loadbalancer-exporter", "load_balancer": f"{namespace}-{name}"}
    for code, rate in (("2xx", targets.asked), ("5xx", targets.refused)):
        lab.measure("loadbalancer_http_responses_total", lab.adding_up(rate), "counter", **told, code=code)
    lab.measure("loadbalancer_healthy_backends", targets.healthy, "gauge", **told)
    summary = f"the load balancer of {namespace}/{name} answers more than a tenth of its requests with 5xx"
    lab.alert("LoadBalancerHigh5xxRate", lambda: targets.share() > 0.1, summary, 4, namespace=namespace, service=name)
    lab.start(targets.count())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 7))
    body = {"metadata": {"labels": {INJECTED: None, "owner": "team-web"}}}
    await lab.culprit(by, "update", "Namespace", "", namespace, body)
    await lab.pause(lab.rng.uniform(6, 14))
    await lab.roll("ci", namespace, name, f"4.{number + 1}.0")


IDLE_SECONDS = 9
"""After so many at the most a connection to a member has been idle once and is closed; the next one asks for a name."""


@dataclass
class _Members:
    """Whoever connects is told the name of the member that it needs, which is found while its own Service is there."""

    lab: Lab
    namespace: str
    store: str
    since: float = 0.0

    def is_lost(self, container: Container) -> bool:
        """Whether a client has no connection any more, and finds no name to make one."""
        there = pods(self.lab.world, self.namespace, self.store)
        found = [(self.namespace, one["spec"].get("subdomain", "")) in self.lab.world["Service"] for one in there]
        if not found or all(found):
            self.since = 0.0
            return False
        self.since = self.since or now().timestamp()
        lasts = self.lab.lag + 1 + crc32(uid_of(container.pod).encode()) % IDLE_SECONDS
        return now().timestamp() - self.since >= min(lasts, container.seconds)

    def lost(self, app: App) -> float:
        """The share of an app's processes that are."""
        there = [one.container for one in self.lab.kubelets.running() if one.app is app]
        return sum(map(self.is_lost, there)) / max(1, len(there))


@family(
    "A chart calls the Service that has no address, and by which each member of a store has its own name, in another"
    " way from its next version on: Helm makes the new one and deletes the old. A StatefulSet may not change which"
    " Service its pods are named by, so none of the members' names is found, and who connects anew is told just those.",
    joined=64,
)
async def named_by_none(lab: Lab) -> AsyncIterator[None]:
    """As users of charts tell whose headless Service got another name, and whose StatefulSet may not follow."""
    namespace, store, sender, taker = lab.rng.choice(
        (
            ("shop", "orders-kafka", "order-intake", "order-mails"),
            ("payments", "bookings-kafka", "card-intake", "statements"),
            ("media", "plays-kafka", "play-intake", "charts"),
        )
    )
    by, share = lab.rng.choice(("ci", "alice", "bob")), lab.rng.uniform(0.4, 0.8)
    old, new, members = f"{store}-headless", f"{store}-brokers", _Members(lab, namespace, store)

    def headless(name: str) -> Json:
        made = objects.service(namespace, store)
        made["metadata"]["name"] = name
        made["spec"] |= {"clusterIP": "None", "publishNotReadyAddresses": True}
        return made

    image = f"registry.corp.example/{namespace}/{store}"
    lab.apps[image] = App(image, serves=False)
    for made in (objects.service(namespace, store), headless(old)):
        await lab.apply(made)
    body = objects.deployment(namespace, store, f"{image}:3.9.1", kind="StatefulSet", replicas=3)
    body["spec"] |= {"serviceName": old, "podManagementPolicy": "Parallel"}
    await lab.apply(body)
    await lab.until(lambda: len(backends(lab.world, namespace, store)) == 3)
    sends = App("", upstreams=((namespace, store),), asked=lambda: 28.0)
    sends.failing = lambda one: share if members.is_lost(one) else 0.0
    await lab.app(namespace, sender, like=sends, replicas=4, tag="2.6.0")
    takes = App("", upstreams=((namespace, store),), serves=False)
    await lab.app(namespace, taker, like=takes, replicas=2, tag="1.9.3")
    await rolled(lab, namespace, sender, "2.6.0")
    await lab.until(lambda: len(backends(lab.world, namespace, taker)) == 2)
    await publish(lab, namespace, sender)
    lab.reserve(namespace, store)

    def handled(app: App) -> float:
        return 28.0 * share * (1 - members.lost(app))

    for app, name, verb in ((sends, sender, "produced"), (takes, taker, "consumed")):
        count = lab.adding_up(partial(handled, app))
        lab.measure(f"kafka_messages_{verb}_total", count, "counter", namespace=namespace, service=name)
    lab.alert_errors(namespace, sender)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    why = "the same release of the chart, which makes the other Service"
    await lab.also(why, by, "create", "Service", namespace, new, headless(new))
    await lab.culprit(by, "delete", "Service", namespace, old)


USERS, STANDS, TRIES = 44.0, 60.0, 3
"""Requests a second: of users, and that the last of three apps stands. How often each of them asks at the most."""


@dataclass
class _Layers:
    """Each asks the next one up to three times; what the last one begins and cannot end in time is lost work."""

    is_paused: bool = False
    failed: float = 0.0
    """The share of its calls that the last one fails."""

    def asked(self) -> float:
        """Requests a second that the one between gets."""
        return USERS * _tries(self.failed**TRIES)

    def asked_last(self) -> float:
        return self.asked() * _tries(self.failed)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            lost = max(0.0, 1 - (STANDS / self.asked_last()) ** 2)
            self.failed = (self.failed + (1.0 if self.is_paused else lost)) / 2


def _tries(failed: float) -> float:
    return sum(failed**before for before in range(TRIES))


@family(
    "The disk of a database stands still for some seconds, as the cloud moves it. The app that asks it fails meanwhile,"
    " and of the two apps before that one each tries up to three times: once the disk is back, that app gets many times"
    " what users ask for, is late with it, is asked again for that, and does not come back by itself.",
    culprit=False,
    joined=64,
)
async def each_layer_again(lab: Lab) -> AsyncIterator[None]:
    """As told of layers whose retries multiply, and of a storm that outlasts what began it."""
    namespace, front, between, last = lab.rng.choice(
        (
            ("shop", "basket-page", "pricing", "stock-levels"),
            ("media", "series-page", "playlists", "entitlements"),
            ("search", "hotel-page", "offers", "room-rates"),
        )
    )
    store, layers, seconds = f"{last}-db", _Layers(), lab.rng.uniform(6, 9)
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.9")
    like = App("", upstreams=((namespace, store),), asked=layers.asked_last, capacity=STANDS / 3)
    like.failing, like.fails_with = (lambda _: layers.failed), (lambda _: "503")
    like.latency = lambda _: 0.9 * layers.failed
    await lab.app(namespace, last, like=like, replicas=3, tag="5.2.0")
    like = App("", upstreams=((namespace, last),), asked=layers.asked)
    await lab.app(namespace, between, like=like, replicas=3, tag="2.14.0")
    like = App("", upstreams=((namespace, between),), asked=lambda: USERS)
    await lab.app(namespace, front, like=like, replicas=3, tag="31.0.2")
    await rolled(lab, namespace, between, "2.14.0")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in (front, between, last)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, between)
    lab.reserve(namespace, last)
    told = {"namespace": "monitoring", "service": "postgres-exporter", "server": store}
    active = lambda: 24.0 if layers.is_paused else round(4 + 8 * layers.failed)  # noqa: E731
    lab.measure("pg_stat_activity_count", active, "gauge", **told, state="active")
    lab.alert_errors(namespace, last)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(layers.run())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll("argocd", namespace, between, "2.14.1")
    await lab.pause(lab.rng.uniform(7, 12))
    layers.is_paused = True
    await lab.pause(seconds)
    layers.is_paused = False
