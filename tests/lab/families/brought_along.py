"""What new versions of operators bring along: one is woken by its own notes, one wants to be asked at a port."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import pods
from tests.lab.api import Json, Key, Kind, now, path, stamp
from tests.lab.apps import Container, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import both, changes, every, lagging
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

QUERIES = 20.0
"""How often a second the client of an operator lets it ask, as most are built."""
OWNED = ("ConfigMap", "ServiceAccount")
"""What an operator keeps for each of its objects."""
RESYNC_SECONDS = 30.0
"""After how long an operator looks at all of them again, whatever happened."""
PORT, TIMEOUT_SECONDS = 9443, 3
"""Where the pods of an operator answer its webhook, and for how long they are waited for."""
ORDERED = 0.4
"""The share of what a page is asked that orders something."""


@dataclass
class _Keeper:
    """An operator that looks at an object once something has told of it, and notes in its status that it has."""

    kind: Kind
    looked: int = 0

    async def run(self, process: Process) -> None:
        """For ever: those of old leave out what is no change of what somebody wants."""
        is_old = process.tag.startswith("0.12.")
        await lagging(process)
        waiting: dict[Key, Json] = {}  # in the order in which they came, each once
        known: dict[Key, int] = {}

        def told(one: Json) -> None:
            meta = one["metadata"]
            key = meta["namespace"], meta["name"]
            if not (is_old and known.get(key) == meta["generation"]):
                known[key] = meta["generation"]
                waiting[key] = one

        async with asyncio.TaskGroup() as group:
            for work in (self._look(process, waiting), changes(process, self.kind.path(), told)):
                group.create_task(work)
            group.create_task(self._resync(process, waiting))

    async def _resync(self, process: Process, waiting: dict[Key, Json]) -> None:
        """All of them, at its start and now and then."""
        while True:
            listed = await process.api.call("GET", self.kind.path())
            for one in listed.body.get("items", []):
                waiting[one["metadata"]["namespace"], one["metadata"]["name"]] = one
            await asyncio.sleep(RESYNC_SECONDS)

    async def _look(self, process: Process, waiting: dict[Key, Json]) -> None:
        while True:
            if waiting:
                await self._reconcile(process, waiting.pop(next(iter(waiting))))
            else:
                await asyncio.sleep(0.1)

    async def _reconcile(self, process: Process, one: Json) -> None:
        """What belongs to it is written as it should be, and that it is so."""
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        self.looked += 1
        for kind in OWNED:
            body = {"metadata": {"name": name, "labels": {"managed-by": process.env.get("NAME", "operator")}}}
            if (await process.api.call("PATCH", path(kind, namespace, name), body)).status == 404:
                await process.api.call("POST", path(kind, namespace), body)
            await asyncio.sleep(1 / QUERIES)
        ready = {"type": "Ready", "status": "True", "lastProbeTime": f"{stamp(now())[:19]}Z"}
        status = {"observedGeneration": one["metadata"]["generation"], "conditions": [ready]}
        await process.api.call("PATCH", f"{self.kind.path(namespace, name)}/status", {"status": status})
        await asyncio.sleep(1 / QUERIES)


@family(
    "A new version of an operator no longer leaves out changes of a status: each time that it has looked at an object"
    " it notes there when, that is a change, and it looks again, without end and at all of them.",
    joined=22,
)
async def own_status(lab: Lab) -> AsyncIterator[None]:
    """As those who make KAI Scheduler tell of its operator (March 2026, KAI-Scheduler 1273)."""
    kind, name = lab.rng.choice((("Queue", "queue-operator"), ("Tenant", "tenant-operator"), ("Pool", "pool-operator")))
    group = "scheduling.corp.example"
    made = await lab.custom(kind, group, ANY)
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}}
    body = {"spec": {"versions": [{**one, "subresources": {"status": {}}}]}}
    await lab.edit("admin", "CustomResourceDefinition", "", f"{made.plural}.{group}", body)
    await lab.served(made)
    for namespace in ("shop", "payments", "search", "media"):
        for size in lab.rng.sample(("batch", "nightly", "reports", "interactive"), 3):
            meta = {"namespace": namespace, "name": f"{namespace}-{size}"}
            spec = {"weight": lab.rng.randrange(1, 5)}
            await lab.apply({"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": spec})
    keeper = _Keeper(made)
    rules = (
        (group, f"{made.plural},{made.plural}/status", "get,list,watch,patch"),
        ("", "configmaps,serviceaccounts", "get,create,patch"),
    )
    env = ({"name": "NAME", "value": name},)
    await lab.controller("platform", name, keeper.run, *rules, replicas=1, tag="0.12.4", env=env)
    looked = lambda: keeper.looked  # noqa: E731
    await lab.until(lambda: keeper.looked >= len(lab.world[kind]))
    lab.measure("controller_runtime_reconcile_total", looked, "counter", namespace="platform", service=name)
    alert_on_load(lab)
    yield
    await lab.roll(lab.rng.choice(("argocd", "ci", "bob")), "platform", name, "0.13.0", culprit=True)


@dataclass
class _Asked:
    """A webhook that the pods of an operator answer at a port, and say themselves that they want to be asked."""

    lab: Lab
    namespace: str
    name: str
    kind: Kind
    webhook: Webhook = field(init=False)

    def __post_init__(self) -> None:
        self.webhook = Webhook(self._review, service=(self.namespace, self.name))

    async def register(self, process: Process) -> None:
        """Versions of old have none."""
        if process.tag.startswith("1.11."):
            return
        await lagging(process)
        made = configuration(self.name, self.webhook, seconds=TIMEOUT_SECONDS)
        rule = {"apiGroups": [self.kind.group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
        hooks = [{**made["webhooks"][0], "rules": [{**rule, "resources": [self.kind.plural]}]}]
        where = path("ValidatingWebhookConfiguration")
        if (await process.api.call("PATCH", f"{where}/{self.name}", {"webhooks": hooks})).status == 404:
            await process.api.call("POST", where, {"metadata": made["metadata"], "webhooks": hooks})

    async def _review(self, request: Json) -> str | None:
        """Where no policy lets the API server in, which is no pod, it waits in vain."""
        if not any(is_ready(pod) for pod in pods(self.lab.world, self.namespace, self.name)):
            raise ConnectionError("no pod is behind it")
        if not self._lets_in():
            await asyncio.sleep(TIMEOUT_SECONDS + 1)
        return None if request["object"]["spec"].get("size") else "spec.size is required"

    def _lets_in(self) -> bool:
        """All policies of the namespace are on all of its pods."""
        policies = [
            one["spec"] for (where, _), one in self.lab.world["NetworkPolicy"].items() if where == self.namespace
        ]
        rules = [rule for policy in policies for rule in policy.get("ingress", ())]
        ports = [[one["port"] for one in rule.get("ports", ())] for rule in rules if "from" not in rule]
        return not policies or any(not some or PORT in some for some in ports)


@family(
    "An operator's new version brings a webhook along, which its pods answer at a port that the policies of their"
    " namespace let nobody in at: whoever orders something waits until the time is up, and is refused.",
    joined=22,
)
async def webhook_port(lab: Lab) -> AsyncIterator[None]:
    """As users of Crossplane tell of the way to 1.12 (May 2023, crossplane 4074 and 4092)."""
    kind, namespace, portal = lab.rng.choice(
        (("Database", "payments", "accounts"), ("Bucket", "media", "folders"), ("Environment", "shop", "trials"))
    )
    group, home = "infra.corp.example", "infra-system"
    operator = f"{kind.lower()}-provider"
    made = await lab.custom(kind, group, ANY)
    asked = _Asked(lab, home, operator, made)
    ordered = deque[bool](maxlen=8)
    numbers = itertools.count(1)

    async def provide(process: Process) -> None:
        """What is new is made outside of the cluster, and where it is found is written down."""
        listed = await process.api.call("GET", made.path())
        for one in listed.body.get("items", []):
            if "address" not in one["spec"]:
                where = made.path(one["metadata"]["namespace"], one["metadata"]["name"])
                address = f"{one['metadata']['name']}.cloud.example"
                await process.api.call("PATCH", where, {"spec": {"address": address}})

    async def order(process: Process) -> None:
        """One for each who asks; the oldest is given back."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": f"{portal}-{next(numbers):04}"}}
        done = await process.api.call("POST", made.path(namespace), {**body, "spec": {"size": "small"}})
        ordered.append(done.ok)
        listed = (await process.api.call("GET", made.path(namespace))).body.get("items", [])
        for one in sorted(listed, key=lambda one: str(one["metadata"]["creationTimestamp"]))[:-6]:
            await process.api.call("DELETE", made.path(namespace, one["metadata"]["name"]))

    def refused(_: Container) -> float:
        return ORDERED * ordered.count(False) / len(ordered) if ordered else 0.0

    await asked.webhook.start()
    lab.servers.append(asked.webhook)
    await lab.namespace(home)
    near = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    spec: Json = {
        "podSelector": {},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {}}]}, {"from": [near], "ports": [{"port": 8080, "protocol": "TCP"}]}],
    }
    await lab.apply({"kind": "NetworkPolicy", "metadata": {"namespace": home, "name": "default"}, "spec": spec})
    await lab.served(made)
    rules = ((group, made.plural, "*"), ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "*"))
    program = both(asked.register, every(2, provide))
    await lab.controller(home, operator, program, *rules, replicas=1, tag="1.11.3")
    ports = ({"name": "http", "port": 80, "targetPort": 8080}, {"name": "webhook", "port": 443, "targetPort": PORT})
    await lab.edit("admin", "Service", home, operator, {"spec": {"ports": list(ports)}})
    app = await lab.controller(namespace, portal, every(1.5, order), (group, made.plural, "*"), replicas=2)
    app.serves, app.failing = True, refused
    await lab.until(lambda: backends(lab.world, namespace, portal) and ordered)
    await publish(lab, namespace, portal)
    lab.alert_errors(namespace, portal)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    port = {"name": "webhook", "containerPort": PORT}
    await lab.roll(lab.rng.choice(("argocd", "ci", "alice")), home, operator, "1.12.1", culprit=True, ports=[port])
