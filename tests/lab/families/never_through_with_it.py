"""Never through with it: a controller that wakes itself, and a request for a certificate that nobody looks at."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.lab import objects
from tests.lab.alerts import is_lost, pods
from tests.lab.api import Caller, Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import KUBELET, NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import both, changes, every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

# -- a controller that wakes itself

OPERATORS = (
    ("Team", "teams.corp.example", "team-operator", "team", ("access-sync", "cost-exporter")),
    ("Topic", "topics.corp.example", "topic-operator", "topic", ("schema-sync", "quota-exporter")),
    ("Bucket", "buckets.corp.example", "bucket-operator", "bucket", ("backup-planner", "usage-exporter")),
)
MANY, RESYNC_SECONDS, THREADS, SHARES, WAITING = 26, 9.0, 24, 2, 8
GUARD = ("policy-system", "object-policy")


@dataclass
class _Operator:
    """It looks at an object when it has changed, and at all of them now and then, with so many threads."""

    lab: Lab
    kind: Kind
    new: str
    """The version that notes at each look when it was, and takes that for a change as well."""
    looks: int = 0
    seen: dict[str, str] = field(default_factory=dict)

    async def run(self, process: Process) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        wanted: set[str] = set()

        def enqueue(one: Json) -> None:
            name = str(one["metadata"]["name"])
            if name not in wanted:
                wanted.add(name)
                queue.put_nowait(name)

        async def resync(_: Process) -> None:
            for one in self.lab.world[self.kind.name].values():
                enqueue(one)

        async def thread(_: Process) -> None:
            while True:
                name = await queue.get()
                wanted.discard(name)
                await self._look(process, name)

        told = partial(changes, where=self.kind.path(), told=enqueue, of_all=True)
        await both(told, every(RESYNC_SECONDS, resync), *[thread] * THREADS)(process)

    async def _look(self, process: Process, name: str) -> None:
        where = self.kind.path("platform", name)
        found = await process.api.call("GET", where)
        self.looks += 1
        if not found.ok:
            await asyncio.sleep(process.rng.uniform(0.6, 1.4))  # it is told to come again in a second
            return
        wanted = str(found.body["spec"]["owner"])
        is_noting = process.tag == self.new and (now() - process.started).total_seconds() >= process.lag
        if is_noting or self.seen.get(name) != wanted:
            self.seen[name] = wanted
            status = {"status": {"phase": "Ready", "owner": wanted, "lastReconciled": stamp(now())}}
            if not (await process.api.call("PATCH", where, status)).ok:
                await asyncio.sleep(process.rng.uniform(0.6, 1.4))


async def _few_seats(lab: Lab) -> None:
    """What runs in the platform's namespace asks by one level, which lends and borrows none. Raises RefusedError."""
    queue = {"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": WAITING}}
    own = {"nominalConcurrencyShares": SHARES, "lendablePercent": 0, "borrowingLimitPercent": 0}
    spec: Json = {"type": "Limited", "limited": {**own, "limitResponse": queue}}
    await lab.apply({"kind": "PriorityLevelConfiguration", "metadata": {"name": "operators"}, "spec": spec})
    subject = {"kind": "Group", "group": {"name": "system:serviceaccounts:platform"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": "operators"},
        "matchingPrecedence": 650,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [subject], "resourceRules": [everything]}],
    }
    await lab.apply({"kind": "FlowSchema", "metadata": {"name": "operators"}, "spec": spec})


@family(
    "The new version of an operator notes at each object when it last looked at it. It is told of its own note as of"
    " any other change, and looks again: each of its objects is written as often as it gets a turn. All operators share"
    " the API server's seats for them, and the others are told that there are too many requests.",
    joined=106,
)
async def woken_by_its_own_note(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had left a predicate out of a watch."""
    called, group, name, word, others = lab.rng.choice(OPERATORS)
    by, minor, takes = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(3, 30), lab.rng.uniform(0.3, 0.45)
    old, new = f"0.{minor}.2", f"0.{minor + 1}.0"
    kind = await lab.custom(called, group, ANY)
    await lab.served(kind)
    await lab.namespace(GUARD[0])
    await lab.app(*GUARD, like=App("", serves=False), tag="3.2.1")
    await rolled(lab, *GUARD, "3.2.1")

    async def review(_: Json) -> None:
        """It looks up in the directory who may own what."""
        await asyncio.sleep(takes)

    guard = Webhook(review, service=GUARD)
    await guard.start()
    lab.servers.append(guard)
    made = configuration("object-policy", guard)
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [kind.plural]}
    made["webhooks"][0] |= {"rules": [rule], "failurePolicy": "Ignore"}
    await lab.apply(made)
    await _few_seats(lab)
    for number in range(MANY):
        meta = {"namespace": "platform", "name": f"{word}-{number:02}"}
        spec = {"owner": lab.rng.choice(("shop", "media", "search", "payments"))}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": called, "metadata": meta, "spec": spec})
    operator = _Operator(lab, kind, new)
    right = (group, kind.plural, "get,list,watch,patch")
    await lab.controller("platform", name, operator.run, right, replicas=1, tag=old)
    told = {"namespace": "platform", "service": name, "controller": word}
    lab.measure("controller_runtime_reconcile_total", lambda: operator.looks, "counter", **told)

    async def see(process: Process) -> None:
        for where in (path("ResourceQuota", "shop"), f"{path('Pod', 'media')}?limit=5", path("ConfigMap", "search")):
            await process.api.call("GET", where)

    for one in others:
        asks = ("", "resourcequotas,pods,configmaps", "get,list")
        app = await lab.controller("platform", one, every(0.5, see), asks, replicas=1, tag="1.4.0")
        await rolled(lab, "platform", one, "1.4.0")
        throttled = lab.rate(lab.refused(app.image, 429), 0.3, seconds=8)
        summary = f"requests of platform/{one} to the API server are answered with 429"
        lab.alert("KubeClientThrottled", throttled, summary, 5, namespace="platform", deployment=one)
    await rolled(lab, "platform", name, old)
    await lab.pause(12)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "shop", "cart", {"data": {"LOG_LEVEL": "warn"}})

    yield
    await lab.roll("ci", "platform", others[0], "1.4.1")
    await lab.pause(lab.rng.uniform(6, 11))
    owner = {"spec": {"owner": lab.rng.choice(("shop", "media"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), called, "platform", f"{word}-{lab.rng.randrange(MANY):02}", owner)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, "platform", name, new, culprit=True)
    lab.start(afterwards())


# -- a certificate

REQUESTS, SIGNER = "/apis/certificates.k8s.io/v1/certificatesigningrequests", "pki.corp.example/kubelet-client"
AGAIN_SECONDS = 13.0
"""For how long a kubelet waits for an answer before it asks with another key."""


def _asked(node: str) -> str:
    """A request as a kubelet makes it, with a key of its own."""
    organization = x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:nodes")
    subject = x509.Name([organization, x509.NameAttribute(x509.NameOID.COMMON_NAME, f"system:node:{node}")])
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


@dataclass
class _Renewal:
    """Of the certificate of one node's kubelet."""

    lab: Lab
    node: str
    over: float
    """When the one that it has is over."""

    async def ask(self) -> None:
        """Again and again, until nobody listens to it any more."""
        user = f"system:node:{self.node}"
        kubelet = Caller(self.lab.client, user, self.lab.plane.token(user), KUBELET)
        usages = ["digital signature", "client auth"]
        while self.left() > 0:
            spec = {"request": _asked(self.node), "signerName": SIGNER, "usages": usages}
            await kubelet.must("POST", REQUESTS, {"metadata": {"generateName": "csr-"}, "spec": spec})
            await asyncio.sleep(min(AGAIN_SECONDS, max(0.5, self.left())))

    def left(self) -> float:
        return max(0.0, self.over - now().timestamp())

    async def end(self) -> None:
        await asyncio.sleep(self.left())
        self.lab.kubelets.expire(self.node)


@family(
    "No culprit. The company's own authority signs for kubelets what a person has approved, and who did that has"
    " another job since the spring. One node's kubelet asks for its next certificate again and again. On the day on"
    " which the one that it has is over it is unauthorized, and its node is called lost.",
    culprit=False,
    joined=106,
)
async def approved_by_nobody(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found forty requests that were pending."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "shelf-plans", "shelf-page"),
            ("payments", "tax-tables", "tax-page"),
            ("media", "cover-art", "cover-page"),
            ("search", "word-forms", "words-page"),
        )
    )
    minor = lab.rng.randrange(2, 40)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    await lab.app(namespace, name, like=App("", asked=lambda: 22.0), replicas=4, tag=f"5.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await set_before(lab, namespace, front, name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    node = lab.rng.choice(pods(lab.world, namespace, name))["spec"]["nodeName"]
    renewal = _Renewal(lab, node, now().timestamp() + lab.rng.uniform(105, 135))
    for one in NODES:
        lost = partial(is_lost, lab.world, one)
        lab.alert("KubeNodeNotReady", lost, f"{one} has been unready for a while", 5, node=one)
    told = {"namespace": "kube-system", "service": "kubelet", "node": node}
    lab.measure("kubelet_certificate_manager_client_ttl_seconds", renewal.left, **told)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    lab.start(renewal.ask())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(7, 14))
        await change_page(lab, namespace, front)

    yield
    agent = lab.world["DaemonSet"]["monitoring", "node-agent"]["spec"]["template"]["spec"]["containers"]
    image = f"{agent[0]['image'].rsplit(':', 1)[0]}:1.{minor}.1"
    body: Json = {"spec": {"template": {"spec": {"containers": [{**agent[0], "image": image}]}}}}
    await lab.edit(lab.rng.choice(("argocd", "flux")), "DaemonSet", "monitoring", "node-agent", body)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"CACHE_SECONDS": "45"}})
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"5.{minor}.1")
    lab.start(renewal.end())
    lab.start(afterwards())
