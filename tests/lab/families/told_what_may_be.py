"""Told what there may be: a kind that is uninstalled, a figure that nobody gives, a quota that is lowered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.metrics_api import MetricsApi
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, leading
from tests.lab.scenario import family

# -- a kind that is uninstalled

OPERATORS = (
    ("RabbitmqCluster", "rabbitmq.com", "rabbitmq-cluster-operator", "2.16.0", "bus", "4.1.3"),
    ("Dragonfly", "dragonflydb.io", "dragonfly-operator", "v1.2.1", "cache", "v1.33.1"),
    ("MariaDB", "k8s.mariadb.com", "mariadb-operator", "25.8.4", "mysql", "11.8.3"),
    ("SolrCloud", "solr.apache.org", "solr-operator", "v0.9.1", "solr", "9.9.0"),
)


def _operator(name: str, image: str, group: str) -> list[Json]:
    """What its chart has beside its definition, in the order in which Helm takes it away."""
    rules = (group, "*", "*"), ("coordination.k8s.io", "leases", "*")
    return [
        objects.deployment("platform", name, image, replicas=1, account=name),
        objects.binding(name, name, "platform", name),
        objects.cluster_role(name, *rules),
        objects.account("platform", name),
    ]


async def _instance(lab: Lab, kind: Kind, namespace: str, name: str, tag: str) -> None:
    """One that its operator has made for an object of its kind, which owns it. Raises RefusedError."""
    meta, version = {"namespace": namespace, "name": name}, f"{kind.group}/v1"
    answer = await lab.apply({"apiVersion": version, "kind": kind.name, "metadata": meta, "spec": {"replicas": 2}})
    owner = {"apiVersion": version, "kind": kind.name, "name": name, "uid": answer.body["metadata"]["uid"]}
    owned = {"metadata": {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}}
    await lab.app(namespace, name, like=App("", serves=False), kind="StatefulSet", tag=tag)
    for one in ("StatefulSet", "Service"):
        await lab.edit("admin", one, namespace, name, owned)


@family(
    "An operator is handed over to GitOps: its chart is uninstalled, to be installed anew in a moment. Its definition"
    " is among the chart's templates and goes with it; with that go all objects of the kind, and all that they own.",
    joined=91,
)
async def uninstalled_with_its_kind(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had the operator back within a minute, and none of what it had made."""
    called, group, name, version, word, tag = lab.rng.choice(OPERATORS)
    places = (("shop", "orders", "order-page"), ("payments", "statements", "statement-page"))
    elsewhere = lab.rng.choice((("media", "comments"), ("search", "crawler")))
    (namespace, app, front), by = lab.rng.choice(places), lab.rng.choice(("ci", "alice"))
    kind = await lab.custom(called, group, ANY)
    await lab.served(kind)
    image = f"registry.corp.example/platform/{name}"
    program = both(informer(kind.path()), leading("platform", name))
    lab.apps[image] = App(image, program=program, serves=False)
    for made in reversed(_operator(name, f"{image}:{version}", group)):
        await lab.apply(made)
    await rolled(lab, "platform", name, version)
    for home, caller in ((namespace, app), elsewhere):
        await _instance(lab, kind, home, f"{caller}-{word}", tag)
        await rolled(lab, home, f"{caller}-{word}", tag)
        like = App("", upstreams=((home, f"{caller}-{word}"),))
        await lab.app(home, caller, like=like, replicas=3, tag="3.4.0")
        await lab.until(lambda home=home, caller=caller: backends(lab.world, home, caller))  # type: ignore[misc]
        lab.alert_lacking(home, caller, seconds=8)
        lab.reserve(home, caller)
    await set_before(lab, namespace, front, app)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    defined = lab.world["CustomResourceDefinition"]["", f"{kind.plural}.{group}"]["spec"]
    crd: Json = {"metadata": {"name": f"{kind.plural}.{group}"}}

    async def install() -> None:
        await lab.pause(lab.rng.uniform(5, 9))
        spec = {key: defined[key] for key in ("group", "scope", "names", "versions")}
        await lab.who["argocd"].call("POST", path("CustomResourceDefinition"), {**crd, "spec": spec})
        for made in reversed(_operator(name, f"{image}:{version}", group)):
            await lab.apply(made, "argocd")
        await lab.pause(lab.rng.uniform(3, 6))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, app, "3.4.1")
    await lab.pause(lab.rng.uniform(6, 12))
    why = "of the same uninstall, a moment apart"
    *before, account = _operator(name, f"{image}:{version}", group)
    for gone in before:
        home = gone["metadata"].get("namespace", "")
        await lab.also(why, by, "delete", gone["kind"], home, name)
    await lab.culprit(by, "delete", "CustomResourceDefinition", "", crd["metadata"]["name"])
    await lab.also(why, by, "delete", account["kind"], "platform", name)
    lab.start(install())


# -- a figure that nobody gives

AIMED, HANDLED = 20, 28.0
"""Messages a second for which there is to be one worker, and how many a worker handles."""
LATE_SECONDS = 6.0
"""Of compressed time, from which on the oldest message has waited for too long."""
ADAPTERS = {
    "sqs": "operation error SQS: GetQueueAttributes, exceeded maximum number of attempts, 3, https response error"
    " StatusCode: 503, RequestID: , api error ServiceUnavailable: Service Unavailable",
    "rabbitmq": 'error inspecting rabbitMQ: Get "https://queues.vendor.example/api/queues/prod/{queue}": context'
    " deadline exceeded (Client.Timeout exceeded while awaiting headers)",
    "kafka": "error creating kafka client: kafka: client has run out of available brokers to talk to: dial tcp:"
    " lookup bootstrap.streams.example on 10.96.0.10:53: server misbehaving",
}


@dataclass
class _Backlog:
    """What is sent to a queue outside, and what waits there as its workers are too few."""

    lab: Lab
    namespace: str
    name: str
    arrives: float
    waits: float = 0.0

    def handled(self) -> float:
        """A second, at most."""
        return HANDLED * len(backends(self.lab.world, self.namespace, self.name))

    def oldest(self) -> float:
        """Seconds that the oldest message has waited."""
        return self.waits / max(HANDLED, self.handled())

    async def run(self) -> None:
        while True:
            self.waits = max(0.0, self.waits + (self.arrives - self.handled()) / 2)
            await asyncio.sleep(0.5)

    async def grow(self, to: float, seconds: float) -> None:
        first, steps = self.arrives, round(seconds * 2)
        for step in range(steps):
            self.arrives = first + (to - first) * (step + 1) / steps
            await asyncio.sleep(0.5)


@family(
    "No culprit. An autoscaler goes by how much comes to a queue that somebody outside keeps. The vendor's API does not"
    " answer any more; the workers are as many as they were then, and as the evening comes too few.",
    culprit=False,
    joined=91,
)
async def figures_from_outside(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose queue itself went on all the time, and only said nothing of its length."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "order-worker", "order-page"),
            ("payments", "booking-worker", "booking-page"),
            ("media", "render-worker", "render-page"),
            ("search", "index-worker", "index-page"),
        )
    )
    trigger, minor, is_away = lab.rng.choice(sorted(ADAPTERS)), lab.rng.randrange(2, 30), [False]
    queue = name.removesuffix("-worker")
    metric = f"s0-{trigger}-{queue}"
    failed = f"error when getting metric values metric:{metric} err:{ADAPTERS[trigger].format(queue=queue)}"
    backlog = _Backlog(lab, namespace, name, lab.rng.uniform(64, 76))
    api = MetricsApi(
        lambda: {metric: lambda: backlog.arrives},
        failure=lambda: f"rpc error: code = Unknown desc = {failed}" if is_away[0] else "",
    )
    await lab.app("platform", "keda-metrics-apiserver", like=App("", serves=False), replicas=1, tag="2.17.2")
    await lab.who["admin"].must("DELETE", path("Service", "platform", "keda-metrics-apiserver"))
    await api.start()
    lab.servers.append(api)
    await api.register(lab.who["admin"], "platform", "keda-metrics-apiserver")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PREFETCH="20"))
    await lab.app(namespace, name, like=App("", serves=False), replicas=4, tag=f"1.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"1.{minor}.0")
    await set_before(lab, namespace, front, name)
    target = {"type": "AverageValue", "averageValue": str(AIMED)}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": 16,
        "metrics": [{"type": "External", "external": {"metric": {"name": metric}, "target": target}}],
    }
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
    lab.start(backlog.run())
    told = {"namespace": namespace, "service": name}
    lab.measure("queue_messages_processed_total", lab.adding_up(lambda: min(backlog.handled(), backlog.arrives)),
                "counter", **told, queue=queue)  # fmt: skip
    lab.measure("queue_oldest_message_age_seconds", backlog.oldest, **told, queue=queue)
    of_adapter = {"namespace": "platform", "service": "keda-metrics-apiserver", "metric": metric}
    errors = lab.adding_up(lambda: 0.4 if is_away[0] else 0.0)
    lab.measure("keda_scaler_detail_errors_total", errors, "counter", **of_adapter)
    summary = f"what waits for {namespace}/{name} has waited for too long"
    lab.alert("QueueMessagesLate", lambda: backlog.oldest() > LATE_SECONDS, summary, 4, **told)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == -(-backlog.arrives // AIMED))
    await lab.until(lab.is_well)

    async def evening() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await backlog.grow(lab.rng.uniform(190, 230), lab.rng.uniform(10, 16))

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 14))
    is_away[0] = True
    lab.start(evening())
    await lab.pause(lab.rng.uniform(2, 6))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"PREFETCH": "30"}})


# -- a quota that is lowered

TENANTS = "capsule.clastix.io"
HARD = {"pods": "40", "requests.cpu": "6", "limits.memory": "16Gi"}


@family(
    "The quota of a team's namespace is lowered to what a report says that it needs, by hand or in what a controller"
    " makes the quotas of all teams by. What runs goes on; of the next release no pod can be made.",
    joined=91,
)
async def quota_by_report(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose release of one line did not come up, and whose pods were all green."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("loyalty", "points", "points-page", "points-mails"),
            ("billing", "dunning", "dunning-page", "dunning-letters"),
            ("travel", "seat-maps", "seat-page", "seat-sync"),
            ("claims", "damage-reports", "report-page", "report-scans"),
        )
    )
    by_tenant, by, minor = lab.rng.random() < 0.5, lab.rng.choice((*TEAMS, "flux")), lab.rng.randrange(2, 30)
    lowered = lab.rng.choice(({"pods": "6"}, {"requests.cpu": "600m"}, {"limits.memory": "1536Mi"}))
    tenant = await lab.custom("Tenant", TENANTS, ANY, namespaced=False)
    await lab.served(tenant)
    quota, meta = path("ResourceQuota", namespace), {"namespace": namespace, "name": f"{namespace}-quota"}

    def spec(hard: Json) -> Json:
        return {"spec": {"owners": [{"kind": "Group", "name": namespace}], "resourceQuotas": {"items": [hard]}}}

    async def keep(process: Process) -> None:
        """What the Tenant says is what the quota says."""
        found = await process.api.call("GET", tenant.path(None, namespace))
        there = await process.api.call("GET", f"{quota}/{meta['name']}")
        if found.ok and there.ok and (hard := found.body["spec"]["resourceQuotas"]["items"][0]) != there.body["spec"]:
            await process.api.call("PATCH", f"{quota}/{meta['name']}", {"spec": hard})

    await lab.namespace(namespace)
    await lab.apply({"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": HARD}})
    if by_tenant:
        made = {"apiVersion": f"{TENANTS}/v1", "kind": "Tenant", "metadata": {"name": namespace}}
        await lab.apply({**made, **spec({"hard": HARD})})
        rules = (TENANTS, "tenants", "get,list,watch"), ("", "resourcequotas", "get,list,watch,patch")
        program = both(informer(tenant.path()), every(1.5, keep))
        await lab.controller("platform", "capsule-controller-manager", program, *rules, replicas=1, tag="v0.10.5")
        await rolled(lab, "platform", "capsule-controller-manager", "v0.10.5")
    await lab.app(namespace, name, like=App("", asked=lambda: 19.0), replicas=4, tag=f"2.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.3.2", config=other)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await rolled(lab, namespace, other, "1.3.2")
    await set_before(lab, namespace, front, name)
    for one in (name, front):
        lab.alert_stuck(namespace, one)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 12))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "30s"}})
        await lab.pause(lab.rng.uniform(2, 5))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")

    yield
    await lab.edit(lab.rng.choice(("flux", *TEAMS)), "ConfigMap", namespace, front, {"data": {"PAGE_SIZE": "40"}})
    await lab.pause(lab.rng.uniform(5, 10))
    hard = {"hard": {**HARD, **lowered}}
    if by_tenant:
        await lab.culprit(by, "update", "Tenant", "", namespace, spec(hard))
    else:
        await lab.culprit(by, "update", "ResourceQuota", namespace, meta["name"], {"spec": hard})
    lab.start(afterwards())
