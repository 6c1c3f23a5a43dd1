"""What is asked at each pod's start, and what gives apps their passwords: injectors, policies, a store of secrets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.company import READ
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import every, informer, tell
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

REVISION, PROXY = "mesh.corp.example/rev", "registry.corp.example/mesh/proxy"


@family(
    "A namespace is given the label of the mesh's next revision, which has no injector in this cluster yet. Nothing"
    " happens, as pods keep what they were made with; those of the next release come up without a proxy, and whoever"
    " wants to be called by proxies alone hangs up on them.",
    joined=66,
)
async def unknown_revision(lab: Lab) -> AsyncIterator[None]:
    """As those tell who changed istio.io/rev on a namespace and found their new pods outside of the mesh."""
    namespace, name, called = lab.rng.choice(
        (("booking", "booking-api", "fares"), ("lending", "loans-api", "scores"), ("loyalty", "points-api", "members"))
    )
    by, home, minor = lab.rng.choice(("alice", "bob", "carol")), f"{namespace}-core", lab.rng.randrange(3, 30)
    proxy = {"name": "mesh-proxy", "image": f"{PROXY}:1.24.3", "resources": {"requests": {"cpu": "20m"}}}

    async def inject(request: Json) -> list[Json] | None:
        there = images(request["object"])
        return None if f"{PROXY}:1.24.3" in there else [{"op": "add", "path": "/spec/containers/-", "value": proxy}]

    def is_strict() -> bool:
        spec = lab.world["PeerAuthentication"].get((home, "default"), {}).get("spec", {})
        return bool(spec.get("mtls", {}).get("mode") == "STRICT")

    def alone(container: Container) -> Problem | None:
        """It has no proxy, and whom it calls takes nothing that does not come by one."""
        has_proxy = any(image.startswith(PROXY) for image in images(container.pod))
        if has_proxy or not is_strict():
            return None
        why = f"read tcp {called}.{home}:80: read: connection reset by peer"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})")

    kind = await lab.custom("PeerAuthentication", "security.mesh.corp.example", ANY)
    await lab.served(kind)
    await lab.namespace("mesh")
    injector = Webhook(inject, service=("mesh", "injector-1-24"))
    await injector.start()
    lab.servers.append(injector)
    await lab.app("mesh", "injector-1-24", like=App("", serves=False), tag="1.24.3")
    await rolled(lab, "mesh", "injector-1-24", "1.24.3")
    lab.apps[PROXY] = App(PROXY, serves=False)
    hook = configuration("injector-1-24", injector)
    hook["kind"] = "MutatingWebhookConfiguration"
    hook["webhooks"][0] |= {"namespaceSelector": {"matchLabels": {REVISION: "1-24"}}, "reinvocationPolicy": "Never"}
    await lab.apply(hook)
    for one in (namespace, home):
        await lab.namespace(one)
        await lab.edit("admin", "Namespace", "", one, {"metadata": {"labels": {REVISION: "1-24"}}})
    await lab.pause(2)
    await lab.app(home, called, replicas=2, tag="5.2.0")
    meta = {"namespace": home, "name": "default"}
    spec = {"apiVersion": f"{kind.group}/v1", "kind": kind.name, "metadata": meta, "spec": {"mtls": {"mode": "STRICT"}}}
    await lab.apply(spec)
    await lab.until(lambda: backends(lab.world, home, called))
    like = App("", upstreams=((home, called),), check=alone)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"1.{minor}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", home, called, "5.2.1")
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.culprit(by, "update", "Namespace", "", namespace, {"metadata": {"labels": {REVISION: "1-26"}}})
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"1.{minor + 1}.0")


POLICY = ("platform", "policy-server")


async def _drain(lab: Lab, by: str, node: str) -> None:
    """As kubectl does it: no further pod there, and those that are there are to go, but for agents."""
    await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": True}})
    for (namespace, name), pod in list(lab.world["Pod"].items()):
        owners = {one["kind"] for one in pod["metadata"].get("ownerReferences", ())}
        if pod["spec"].get("nodeName") == node and "DaemonSet" not in owners:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await lab.who[by].call("POST", f"{path('Pod', namespace, name)}/eviction", body)


@family(
    "The policies for pods are to be kept to for certain: no pod is made any more while the server of policies does not"
    " answer. It has one pod, and is asked for that one too. As its node is drained for maintenance, as nodes are each"
    " week, nobody may make it anew, nor any of the others that ran there.",
    joined=66,
)
async def fails_closed(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of Gatekeeper, Kyverno and others with failurePolicy: Fail and their own namespace in it."""
    by, host = lab.rng.choice(("alice", "argocd", "flux")), lab.rng.choice(("carol", "bob"))
    places = (("payments", "refunds"), ("shop", "wishlist"))

    async def review(request: Json) -> str | None:
        if not backends(lab.world, *POLICY):
            raise ConnectionError  # nobody is behind the Service
        asked = request["object"]["spec"]["containers"]
        if any(not one.get("resources", {}).get("limits") for one in asked if one["name"] == "refunds"):
            return "each container needs a limit of its memory"
        return None

    server = Webhook(review, service=POLICY)
    await server.start()
    lab.servers.append(server)
    await lab.app(*POLICY, like=App("", serves=False), replicas=1, tag="1.13.2")
    await rolled(lab, *POLICY, "1.13.2")
    policy = configuration("policy", server)
    policy["webhooks"][0]["failurePolicy"] = "Ignore"
    await lab.apply(policy)
    for place in places:
        await lab.app(*place, replicas=4, tag="3.0.0")
        await rolled(lab, *place, "3.0.0")
        lab.alert_lacking(*place)
    lab.alert_lacking(*POLICY)
    await lab.until(lab.is_well)
    yield
    await lab.edit("ci", "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "900"}})
    await lab.pause(lab.rng.uniform(3, 8))
    [hook] = lab.world["ValidatingWebhookConfiguration"]["", "policy"]["webhooks"]
    body = {"webhooks": [{**hook, "failurePolicy": "Fail"}]}
    await lab.culprit(by, "update", "ValidatingWebhookConfiguration", "", "policy", body)
    await lab.pause(lab.rng.uniform(2, 4))
    await lab.roll("ci", *lab.rng.choice(places), "3.0.1")
    await lab.pause(lab.rng.uniform(6, 10))
    [pod] = [one for one in lab.world["Pod"].values() if f"{'/'.join(POLICY)}:" in images(one)[0]]
    await _drain(lab, host, pod["spec"]["nodeName"])


LEASE_SECONDS, RENEWED_EVERY = 14.0, 4.0
"""For how long a password for the database is good, an hour in life, and how often another one is asked for."""
EXTERNAL = "external-secrets.io"


@dataclass
class _Store:
    """The store of secrets outside, which gives out passwords that are good for a while."""

    lab: Lab
    kind: Kind
    is_sealed: bool = False
    until: dict[tuple[str, str], float] = field(default_factory=dict)
    errors: int = 0

    async def renew(self, process: Process) -> None:
        """What the operator does: each of those that are declared gets another password, and a state."""
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", []):
            place = one["metadata"]["namespace"], one["metadata"]["name"]
            condition = {"type": "Ready", "status": "True", "reason": "SecretSynced", "message": "Secret was synced"}
            if self.is_sealed:
                self.errors += 1
                why = "could not get secret data from provider: Code: 503. Errors: * Vault is sealed"
                condition = {"type": "Ready", "status": "False", "reason": "SecretSyncedError", "message": why}
                about = {**one, "kind": self.kind.name}
                await tell(process, about, "Warning", "UpdateFailed", why, by="external-secrets")
            else:
                data = {"stringData": {"password": f"{process.rng.getrandbits(64):016x}"}}
                where, target = path("Secret", place[0]), one["spec"]["target"]["name"]
                done = await process.api.call("PATCH", f"{where}/{target}", data)
                if done.status == 404:
                    done = await process.api.call("POST", where, {"metadata": {"name": target}, **data})
                self.until[place] = now().timestamp() + LEASE_SECONDS if done.ok else 0.0
            before = [{**told, "lastTransitionTime": ""} for told in one.get("status", {}).get("conditions", ())]
            if before != [{**condition, "lastTransitionTime": ""}]:
                told = {"conditions": [{**condition, "lastTransitionTime": f"{now():%Y-%m-%dT%H:%M:%SZ}"}]}
                await process.api.call("PATCH", self.kind.path(*place), {"status": told})

    def is_over(self, namespace: str, name: str) -> bool:
        """Whether the database lets nobody in by the last password that was given out."""
        return now().timestamp() > self.until.get((namespace, name), 0.0) + self.lab.lag


@family(
    "No culprit. The store of passwords outside is restarted by its hosts at night, comes up sealed, and nobody is"
    " there to unseal it: what is to be renewed is not, and one after the other the passwords for databases are over.",
    culprit=False,
    joined=66,
)
async def sealed_store(lab: Lab) -> AsyncIterator[None]:
    """As many tell of Vault, whose pods or machines were restarted."""
    places = lab.rng.sample(
        (("payments", "invoices"), ("shop", "orders"), ("media", "playlists"), ("search", "saved-searches")), 3
    )
    kind = await lab.custom("ExternalSecret", EXTERNAL, ANY)
    store = _Store(lab, kind)
    await lab.served(kind)
    rules = READ, ("", "secrets,events", "create,patch,get"), (EXTERNAL, "externalsecrets", "*")
    operator = ("platform", "external-secrets")

    async def renew(process: Process) -> None:
        await asyncio.gather(informer(kind.path())(process), every(RENEWED_EVERY, store.renew)(process))

    await lab.controller(*operator, renew, *rules, replicas=1, tag="0.19.2")
    for namespace, name in places:
        spec = {
            "refreshInterval": "15m",
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"},
            "target": {"name": f"{name}-db"},
            "dataFrom": [{"extract": {"key": f"database/creds/{name}"}}],
        }
        meta = {"namespace": namespace, "name": name}
        await lab.apply({"apiVersion": f"{EXTERNAL}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.until(lambda: len(store.until) == len(places))
    for namespace, name in places:
        share = lab.rng.uniform(0.4, 0.8)

        def fails(_: Container, place: tuple[str, str] = (namespace, name), share: float = share) -> float:
            return share if store.is_over(*place) else 0.0

        like = App("", asked=lambda: 18.0, failing=fails)
        await lab.app(namespace, name, like=like, replicas=2, tag="2.6.0", secret=f"{name}-db")
        await rolled(lab, namespace, name, "2.6.0")
        lab.reserve(namespace, name)
        lab.alert_errors(namespace, name)
    await publish(lab, *places[0])
    lab.alert_ingress_errors(places[0][0], places[0][0])
    told = {"namespace": operator[0], "service": operator[1]}
    lab.measure("externalsecret_sync_calls_error_total", lambda: float(store.errors), "counter", **told)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", *places[1], "2.6.1")
    await lab.pause(lab.rng.uniform(3, 9))
    store.is_sealed = True
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit("argocd", "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": "info"}})
