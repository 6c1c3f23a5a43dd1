"""What lies underneath apps and others see to: what they mount, what they may be put aside for, who reviews them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends, leaves
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration


async def drain(lab: Lab, node: str, namespace: str) -> None:
    """A node is cordoned, and what a namespace has there is evicted. Raises RefusedError."""
    await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": True}})
    for pod in [one for one in lab.world["Pod"].values() if one["spec"].get("nodeName") == node]:
        meta = pod["metadata"]
        if meta["namespace"] == namespace:
            where = f"{path('Pod', namespace, meta['name'])}/eviction"
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"]}}
            await lab.who["admin"].call("POST", where, body)


@family(
    "Somebody tidies a namespace up and deletes the Secrets and ConfigMaps that nothing seems to use. One of them is in"
    " use: whoever runs goes on, and the next pods of the app cannot be created.",
    joined=71,
)
async def cleared_leftovers(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have looked for unused ConfigMaps by what the Deployments of that day named."""
    namespace, name, front = lab.rng.choice(
        (("shop", "vouchers", "gift-page"), ("media", "transcoder", "upload-page"), ("search", "synonyms", "find-page"))
    )
    by = lab.rng.choice(("alice", "bob", "carol"))
    kind = lab.rng.choice(("Secret", "ConfigMap"))
    needed = f"{name}-{lab.rng.choice(('keys', 'defaults', 'legacy'))}"
    old = [f"{name}-v1", f"{front}-2024", "feature-flags-old", "migration-tmp"]
    lab.rng.shuffle(old)
    for one in old:
        await lab.apply(objects.config_map(namespace, one, ENABLED="false"))
    data = {"stringData" if kind == "Secret" else "data": {"token": f"{lab.rng.getrandbits(64):x}"}}
    await lab.apply({"kind": kind, "metadata": {"namespace": namespace, "name": needed}, **data})
    reference = {f"{kind[0].lower()}{kind[1:]}KeyRef": {"name": needed, "key": "token"}}
    env = [{"name": "PARTNER_TOKEN", "valueFrom": reference}]
    await lab.app(namespace, name, like=App("", asked=lambda: 18.0), replicas=3, tag="4.1.0", env=env)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.6.0")
    await rolled(lab, namespace, name, "4.1.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    lab.reserve(namespace, name, front)
    lab.alert_lacking(namespace, name)
    lab.alert_stuck(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll("ci", namespace, front, "2.6.1")
    await lab.pause(lab.rng.uniform(2, 5))
    for one in old[:2]:
        await lab.who[by].must("DELETE", path("ConfigMap", namespace, one))
        await lab.pause(0.3)
    await lab.culprit(by, "delete", kind, namespace, needed)
    for one in old[2:]:
        await lab.who[by].must("DELETE", path("ConfigMap", namespace, one))
        await lab.pause(0.3)
    await lab.pause(lab.rng.uniform(8, 16))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, "4.1.1")
    else:
        node = pods(lab.world, namespace, name)[0]["spec"]["nodeName"]
        await drain(lab, node, namespace)


EACH_ANSWERS = 5.0
"""Requests a second that a process of the app below stands."""


@family(
    "A batch Job is started with a high priority class, so that it is through before the morning: the nodes are full,"
    " and the scheduler puts aside pods of an app that serves users to make room for it.",
    joined=71,
)
async def work_comes_first(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose nightly computing took the place of their shop."""
    namespace, name, front, home, job = lab.rng.choice(
        (
            ("shop", "recommender", "home-page", "search", "reindex-all"),
            ("search", "ranker", "results-page", "payments", "settlement-backfill"),
            ("media", "streamer", "player-page", "shop", "price-simulation"),
        )
    )
    by, team = lab.rng.choice(("alice", "bob", "carol", "argocd")), lab.rng.choice(("ci", "flux"))
    asked = lab.rng.uniform(42, 50)

    def turned_away(_: Container) -> float:
        """The share of requests for which those who are there have no time."""
        return max(0.0, 1 - EACH_ANSWERS * len(backends(lab.world, namespace, name)) / asked)

    high = {"kind": "PriorityClass", "metadata": {"name": "deadline"}, "value": 1000000}
    await lab.apply({**high, "description": "work that has to be done by a certain hour"})
    await lab.app(
        namespace, name, like=App("", asked=lambda: asked, failing=turned_away, fails_with=lambda _: "503"), replicas=0
    )
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    wants = {"requests": {"cpu": "5", "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    pod = {"containers": [{**there, "resources": wants}], "topologySpreadConstraints": [spread]}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"replicas": 12, "template": {"spec": pod}}})
    await rolled(lab, namespace, name, "1.0.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 12)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.3.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    image = f"registry.corp.example/{home}/{job}"
    lab.apps[image] = App(image, serves=False)
    lab.reserve(namespace, name, front)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(team, namespace, front, "3.3.1")
    await lab.pause(lab.rng.uniform(4, 9))
    work: Json = {"name": job, "image": f"{image}:0.9.{lab.rng.randrange(30)}"}
    work |= {"resources": {"requests": {"cpu": "8", "memory": "4Gi"}}}
    template = {"spec": {"restartPolicy": "Never", "priorityClassName": "deadline", "containers": [work]}}
    number = lab.rng.choice((4, 5, 6))
    spec = {"parallelism": number, "completions": number, "backoffLimit": 4, "template": template}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job, "namespace": home}, "spec": spec}
    await lab.culprit(by, "create", "Job", home, job, body)
    await lab.pause(lab.rng.uniform(0.5, 2))
    await lab.edit("bob", "ConfigMap", "payments", "ledger", {"data": {"TIMEOUT_MS": "900"}})


KEEPER = ("policy-system", "policy-webhook")


@family(
    "The webhook that reviews all pods is rolled to a version that does not start, all of its pods at once. Without it"
    " the API server takes no pod, as its configuration says: no rollout of anybody goes on.",
    joined=71,
)
async def keeper_of_rules(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose admission controller was down, and with it all that was to be created."""
    by = lab.rng.choice(("argocd", "flux", "carol"))
    old, new = f"1.{(minor := lab.rng.randrange(9, 14))}.4", f"1.{minor + 1}.0"
    why = lab.rng.choice(
        (
            "unknown flag: --admission-reports",
            'no matches for kind "PolicyException" in version "policies.corp.example/v2"',
            "failed to parse configuration: unknown field excludeGroups",
        )
    )
    released = [(one, lab.rng.choice(("ci", "alice", "bob"))) for one in (("shop", "cart"), ("search", "query"))]
    lab.rng.shuffle(released)

    async def review(request: Json) -> str | None:
        if not backends(lab.world, *KEEPER):
            raise ConnectionError("no pod is behind it")
        listed = request["object"]["spec"]["containers"]
        return "containers must not be privileged" if any("privileged" in one for one in listed) else None

    def fails(container: Container) -> Problem | None:
        return Problem("crash", why, at_once=True) if container.tag == new else None

    await lab.namespace(KEEPER[0])
    like = App("", serves=False, check=fails)
    await lab.app(*KEEPER, like=like, replicas=2, tag=old)
    strategy = {"strategy": {"type": "Recreate", "rollingUpdate": None}}
    await lab.edit("admin", "Deployment", *KEEPER, {"spec": strategy})
    await rolled(lab, *KEEPER, old)
    await lab.until(lambda: backends(lab.world, *KEEPER))
    webhook = Webhook(review, service=KEEPER)
    await webhook.start()
    lab.servers.append(webhook)
    manifest = configuration("policy-webhook", webhook)
    [rule] = manifest["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    rule["values"].append(KEEPER[0])
    await lab.apply(manifest)
    for place, _ in released:
        lab.reserve(*place)
        lab.alert_stuck(*place)
    lab.alert_lacking(*KEEPER, seconds=20)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit("bob", "ConfigMap", "shop", "cart", {"data": {"LOG_LEVEL": lab.rng.choice(("debug", "warn"))}})
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, *KEEPER, new, culprit=True)
    for place, hand in released:
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.roll(hand, *place, f"2.{lab.rng.randrange(30)}.0")


PROVIDERS = {"203.0.113.0/26": "203.0.113.20", "198.51.100.128/26": "198.51.100.140"}
WITHIN = [
    {"to": [{"namespaceSelector": {}}]},
    {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
]


@dataclass
class _Provider:
    """Somebody outside whom an app calls for a part of what it is asked."""

    lab: Lab
    address: str
    share: float
    kept_since: float = 0.0

    def is_kept_from(self, container: Container) -> bool:
        """Calls that were begun before are still answered for a lag."""
        if leaves(self.lab.world, container.pod, self.address, 443):
            self.kept_since = 0.0
            return False
        self.kept_since = self.kept_since or now().timestamp()
        return now().timestamp() - self.kept_since >= self.lab.lag

    def failing(self, container: Container) -> float:
        return self.share if self.is_kept_from(container) else 0.0

    def latency(self, container: Container) -> float:
        return 3.0 * self.share if self.is_kept_from(container) else 0.0


@family(
    "What may leave a namespace is written down in a NetworkPolicy, and the addresses of a provider that an app calls"
    " from there are not among it: those calls time out.",
    joined=71,
)
async def provider_left_out(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose payments timed out after the day on which egress was closed."""
    namespace, name, front, host = lab.rng.choice(
        (
            ("payments", "card-gateway", "pay-page", "api.acquirer.example"),
            ("shop", "parcel-labels", "dispatch-page", "api.carrier.example"),
            ("media", "moderation", "gallery-page", "api.vision.example"),
        )
    )
    by, is_first = lab.rng.choice(("carol", "flux", "argocd")), lab.rng.random() < 0.5
    block, kept = lab.rng.sample(sorted(PROVIDERS), 2)
    provider = _Provider(lab, PROVIDERS[block], lab.rng.uniform(0.25, 0.5))
    like = App("", abroad=(host,), asked=lambda: 24.0, failing=provider.failing, latency=provider.latency)
    like.fails_with = lambda _: "504"
    await lab.app(namespace, name, like=like, replicas=3, tag="5.4.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.9.3")
    await rolled(lab, namespace, name, "5.4.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    policy = "egress"

    def closed(*blocks: str) -> Json:
        """Within the cluster and the company all is open; beyond it, what is named."""
        ports = [{"protocol": "TCP", "port": 443}]
        beyond = [{"to": [{"ipBlock": {"cidr": one}}], "ports": ports} for one in blocks]
        return {"podSelector": {}, "policyTypes": ["Egress"], "egress": [*WITHIN, *beyond]}

    meta = {"namespace": namespace, "name": policy}
    if not is_first:
        await lab.apply({"kind": "NetworkPolicy", "metadata": meta, "spec": closed(*sorted(PROVIDERS))})
    lab.reserve(namespace, name, front)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def release() -> None:
        await asyncio.sleep(lab.rng.uniform(1, 3))
        await lab.roll("ci", namespace, front, "1.10.0")

    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(
        "alice", "ConfigMap", "kube-system", "coredns", {"metadata": {"annotations": {"reviewed-by": "alice"}}}
    )
    if lab.rng.random() < 0.5:
        await lab.roll("ci", namespace, name, "5.4.1")
        await rolled(lab, namespace, name, "5.4.1")
    await lab.pause(lab.rng.uniform(4, 8))
    if is_first:
        body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": closed(kept)}
        await lab.culprit(by, "create", "NetworkPolicy", namespace, policy, body)
    else:
        await lab.culprit(by, "update", "NetworkPolicy", namespace, policy, {"spec": closed(kept)})
    lab.start(release())
