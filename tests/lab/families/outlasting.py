"""Who asks too much: a batch whose backlog outlasts it, an agent for each tenant, a client that has to look around."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from tests.lab import addresses, objects
from tests.lab.alerts import pods
from tests.lab.api import Answer, Json, Kind, now, path, stamp
from tests.lab.apps import App, Process, Program
from tests.lab.families.databases import ANY
from tests.lab.families.load import alert_on_load
from tests.lab.families.meshes import tries
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every, getting
from tests.lab.scenario import family

RETRIES, GIVE_UP_SECONDS = 3, 2.0
"""How often a client asks again, and for how long it waits each time."""
BACKLOG, LOST = 600.0, 0.3
"""How many calls wait at most for a server, and the share of its work that it loses where so many do."""
STEP_SECONDS, STEP_SHARE = 0.5, 0.4


@family(
    "A backfill asks an app for a while for more than that one stands: calls wait longer than their clients do, who"
    " give up and ask again while what they gave up is still answered. The backfill is done, and the backlog stays.",
    joined=21,
)
async def backlog_outlasts(lab: Lab) -> AsyncIterator[None]:
    """As AgentMail tells of 19 August 2026 (agentmail-mcp 43); what set it off there was no more than a blip."""
    namespace, called, others, batch = lab.rng.choice(
        (
            ("shop", "stock", ("basket", "offers"), "stock-backfill"),
            ("payments", "tariffs", ("quotes", "statements"), "tariff-recount"),
            ("search", "embeddings", ("related", "answers"), "embeddings-rebuild"),
            ("media", "metadata", ("player", "playlists"), "metadata-export"),
        )
    )
    each, asks, runs = 40.0, lab.rng.choice((55.0, 60.0, 65.0)), lab.rng.uniform(13, 17)
    wanted = dict(zip(others, lab.rng.sample((32.0, 36.0, 40.0), 2), strict=True))
    calls = {batch: 0.0, **wanted}
    waiting, late, refused = [0.0], [0.0], [0.0]

    def running(name: str) -> int:
        return sum(is_ready(pod) for pod in pods(lab.world, namespace, name))

    def seconds() -> float:
        """For how long a call waits."""
        stands = each * max(1, running(called)) * (1 - LOST * waiting[0] / BACKLOG)
        return waiting[0] / stands

    async def traffic() -> None:
        """What is given up is not taken out of the queue, as its server does not hear of it."""
        while True:
            rates = {name: rate * tries(late[0], RETRIES) for name, rate in wanted.items()}
            rates[batch] = asks * running(batch)
            for name, rate in rates.items():
                calls[name] += STEP_SHARE * (rate - calls[name])
            asked, stands = sum(calls.values()), each * max(1, running(called)) * (1 - LOST * waiting[0] / BACKLOG)
            more = waiting[0] + (asked - stands) * STEP_SECONDS
            waiting[0] = min(BACKLOG, max(0.0, more))
            refused[0] = max(0.0, (more - BACKLOG) / STEP_SECONDS / asked)
            late[0] = min(1.0, max(0.0, (seconds() / GIVE_UP_SECONDS - 0.7) / 0.6))
            await asyncio.sleep(STEP_SECONDS)

    like = App(
        "",
        capacity=2 * each,
        asked=lambda: sum(calls.values()),
        failing=lambda _: refused[0],
        fails_with=lambda _: "503",
        latency=lambda _: seconds(),
    )
    await lab.app(namespace, called, like=like, replicas=3)
    upstreams = ((namespace, called),)
    for name in others:
        given_up = lambda _: late[0] ** (RETRIES + 1)  # noqa: E731
        client = App("", upstreams=upstreams, failing=given_up, fails_with=lambda _: "504")
        await lab.app(namespace, name, like=client, replicas=2)
        lab.reserve(namespace, name)
        counted = lab.adding_up(partial(calls.__getitem__, name))
        lab.measure(
            "http_client_requests_total", counted, "counter", namespace=namespace, service=name, upstream=called
        )
    lab.reserve(namespace, called)
    for name in (called, *others):
        lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, called, 1.0)
    image = f"registry.corp.example/{namespace}/{batch}"
    job = App(image, ends_after=runs, upstreams=upstreams, serves=False)
    lab.apps[image] = job
    told = addresses.told(
        job, namespace, batch, env=(), has_config=False, chance=random.Random(f"{lab.called} {image}")
    )
    await lab.until(lambda: running(called) == 3)
    lab.start(traffic())
    yield
    made = objects.deployment(namespace, batch, f"{image}:1.0.0", env=told.env, restartPolicy="Never")
    spec = {"template": made["spec"]["template"], "parallelism": 2, "completions": 2, "backoffLimit": 1}
    name = f"{batch}-{lab.rng.choice(('2026q3', 'eu', 'missing', '1142'))}"
    by = lab.rng.choice(("alice", "bob", "ci"))
    await lab.culprit(by, "create", "Job", namespace, name, {"metadata": {"name": name}, "spec": spec})


TIER, TENANT = "tenancy.corp.example/tier", "tenancy.corp.example/tenant"
TENANTS = ("acme", "borealis", "cobalt", "dunes", "eider", "fjord", "granite", "harbour", "indigo", "juniper")


def _installing(profile: Kind, name: str, image: str) -> Program:
    """As what keeps add-ons: whichever namespace a profile selects has its agent, with an account that may read."""

    async def install(process: Process) -> None:
        listed = await process.api.call("GET", profile.path("platform"))
        for one in listed.body.get("items", []):
            label = ",".join(f"{key}={value}" for key, value in one["spec"]["namespaceSelector"]["matchLabels"].items())
            found = await process.api.call("GET", f"{path('Namespace')}?labelSelector={label}")
            for namespace in [each["metadata"]["name"] for each in found.body.get("items", [])]:
                if (await process.api.call("GET", path("Deployment", namespace, name))).status != 404:
                    continue
                await process.api.call("POST", path("ServiceAccount", namespace), objects.account(namespace, name))
                may = objects.binding(name, name, namespace, name, within=namespace)
                await process.api.call("POST", path("RoleBinding", namespace), may)
                made = objects.deployment(namespace, name, f"{image}:{one['spec']['version']}", account=name)
                await process.api.call("POST", path("Deployment", namespace), made)

    return every(2, install)


@family(
    "The profile of an add-on selects the namespaces of all tenants in place of those of the pilot: each gets an agent"
    " of its own, each of which asks as often as the first one did, and the API server gets many times the requests.",
    joined=21,
)
async def agent_per_tenant(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    name, group = lab.rng.choice(("secrets-agent", "config-agent", "policy-agent")), "addons.corp.example"
    image, tenants = f"registry.corp.example/platform/{name}", lab.rng.sample(TENANTS, len(TENANTS))
    profile = await lab.custom("AddonProfile", group, ANY)
    period = lab.rng.uniform(0.9, 1.1)

    async def program(process: Process) -> None:
        """It asks for its own namespace only."""
        namespace = process.see().pod["metadata"]["namespace"]
        asked = [path(one, namespace) for one in ("ConfigMap", "Secret")]
        await every(period, getting(*asked))(process)

    lab.apps[image] = App(image, program=program, serves=False)
    for number, tenant in enumerate(tenants):
        await lab.namespace(tenant)
        labels = {TENANT: "true", TIER: "pilot" if number == 0 else "standard"}
        await lab.edit("admin", "Namespace", "", tenant, {"metadata": {"labels": labels}})
    reads = ("", "configmaps,secrets", "get,list")
    await lab.apply(objects.cluster_role(name, reads))
    rules = (
        reads,
        (group, "*", "get,list"),
        ("", "namespaces", "list"),
        ("", "serviceaccounts", "create"),
        ("rbac.authorization.k8s.io", "rolebindings", "create"),
        ("apps", "deployments", "get,create"),
    )
    await lab.served(profile)
    spec = {"namespaceSelector": {"matchLabels": {TIER: "pilot"}}, "version": "2.4.1"}
    meta = {"namespace": "platform", "name": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "AddonProfile", "metadata": meta, "spec": spec})
    await lab.controller("platform", "addon-controller", _installing(profile, name, image), *rules, replicas=1)
    await lab.until(lambda: pods(lab.world, tenants[0], name))
    alert_on_load(lab)
    yield
    by = lab.rng.choice(("alice", "flux", "argocd"))
    body = {"spec": {"namespaceSelector": {"matchLabels": {TIER: None, TENANT: "true"}}}}
    await lab.culprit(by, "update", "AddonProfile", "platform", name, body)


QPS, BURST = 5.0, 10
"""How often a client may ask in a second, and how often at once before that, where nobody says: as client-go has it."""
PAUSE_SECONDS, WAITS_SECONDS = 4.0, 9.5
"""Between two looks of an operator, and how long one who orders something usually waits at most."""
SERVICES = (
    "acm", "amp", "appmesh", "athena", "backup", "batch", "cloudfront", "cognito", "dax", "docdb", "dynamodb", "ec2",
    "ecr", "ecs", "efs", "eks", "elasticache", "emr", "firehose", "glue", "iam", "kafka", "kinesis", "kms", "lambda",
    "mq", "neptune", "rds", "redshift", "route53", "s3", "sns", "sqs", "ssm",
)  # fmt: skip


@dataclass
class _Limited:
    """An operator whose client holds itself back: who has asked often waits before the next request."""

    orders: Kind
    began: datetime | None = None
    """Of the look that it has not done with."""
    tokens: float = BURST
    at: datetime = field(default_factory=now)

    async def call(self, process: Process, method: str, where: str, body: Json | None = None) -> Answer:
        since, self.at = self.at, now()
        self.tokens = min(BURST, self.tokens + QPS * (self.at - since).total_seconds()) - 1
        if self.tokens < 0:
            await asyncio.sleep(-self.tokens / QPS)
        return await process.api.call(method, where, body)

    async def look(self, process: Process) -> None:
        """As a client of old that finds out where each kind is: group by group; then each order that is new."""
        self.began = now()
        for group in (await self.call(process, "GET", "/apis")).body.get("groups", []):
            for version in group["versions"]:
                await self.call(process, "GET", f"/apis/{version['groupVersion']}")
        listed = await self.call(process, "GET", self.orders.path("platform"))
        for one in listed.body.get("items", []):
            if "status" not in one:
                where = self.orders.path("platform", one["metadata"]["name"])
                await self.call(process, "PATCH", where, {"status": {"phase": "Ready"}})
        self.began = None

    def looks_since(self) -> float:
        return (now() - self.began).total_seconds() if self.began else 0.0

    async def order(self, process: Process) -> None:
        """As a portal: one more, and those that are old are given back."""
        kind = self.orders.name
        meta = {"name": f"{kind.lower()}-{process.rng.randrange(16**6):06x}"}
        body = {"apiVersion": f"{self.orders.group}/v1", "kind": kind, "metadata": meta, "spec": {"size": "small"}}
        await process.api.call("POST", self.orders.path("platform"), body)
        listed = await process.api.call("GET", self.orders.path("platform"))
        for name in [one["metadata"]["name"] for one in listed.body.get("items", []) if "status" in one][:-3]:
            await process.api.call("DELETE", self.orders.path("platform", name))


def _group(service: str) -> Json:
    """The definition of what a cloud's service is configured by."""
    names = {"kind": f"{service.capitalize()}Config", "plural": f"{service}configs", "singular": f"{service}config"}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}}
    domain = f"{service}.aws.upbound.io"
    spec = {"group": domain, "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{names['plural']}.{domain}"}, "spec": spec}


@family(
    "Somebody installs a provider of a cloud's services, each of which is a group of the API: an operator that looks"
    " what groups there are asks for each, its client lets it ask only so often, and what it is there for waits.",
    joined=21,
)
async def groups_to_discover(lab: Lab) -> AsyncIterator[None]:
    """As users of VictoriaMetrics' operator tell (August 2024, operator 1059); what was installed is not told."""
    operator, kind = lab.rng.choice((("environment-operator", "Environment"), ("tenant-operator", "Workspace")))
    orders = await lab.custom(kind, "platform.corp.example", ANY)
    limited = _Limited(orders)

    def waits() -> bool:
        since = stamp(now() - timedelta(seconds=WAITS_SECONDS))
        found = lab.world[kind].values()
        return any("status" not in one and one["metadata"]["creationTimestamp"] < since for one in found)

    await lab.served(orders)
    looks, rule = every(PAUSE_SECONDS, limited.look), (orders.group, "*", "get,list,patch")
    await lab.controller("platform", operator, looks, rule, replicas=1)
    rule = (orders.group, "*", "list,create,delete")
    await lab.controller("platform", "portal", every(4, limited.order), rule, replicas=1)
    metric = "workqueue_longest_running_processor_seconds"
    lab.measure(metric, limited.looks_since, namespace="platform", service=operator, controller=kind.lower())
    summary = f"{kind}s have been waiting for {operator} for a while"
    lab.alert("OrdersNotReady", waits, summary, 3, namespace="platform", service=operator)
    yield
    by = lab.rng.choice(("ci", "alice", "bob"))
    for service in lab.rng.sample(SERVICES, 30):
        body = _group(service)
        await lab.culprit(by, "create", "CustomResourceDefinition", "", body["metadata"]["name"], body)
