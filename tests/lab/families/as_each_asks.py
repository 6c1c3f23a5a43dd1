"""Who is let in, and how often: a role that wants tokens of one audience, a limit for each address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.programs import informer
from tests.lab.scenario import family

ROLE, ROLES_GROUP = "KubernetesAuthEngineRole", "redhatcop.redhat.io"
LEASE_SECONDS = 28.0
"""For how long what a login gives is good; then a program logs in anew."""
DENIED = "invalid audience (aud) claim: audience claim does not match any expected audience"


@dataclass
class _Vault:
    """It gives each process an account of the database, for a token of the pod's own ServiceAccount."""

    lab: Lab
    role: str
    until: dict[str, float] = field(default_factory=dict)
    """How old a container will be once its lease is over, by uid of its pod."""

    def _grants(self, container: Container) -> bool:
        """Tokens that a pod has unasked are for the API server alone; others stand in its volumes."""
        wanted = self.lab.world[ROLE]["vault", self.role]["spec"].get("audience")
        projected = (one.get("projected", {}) for one in container.pod["spec"].get("volumes", ()))
        tokens = (source.get("serviceAccountToken", {}) for one in projected for source in one.get("sources", ()))
        return not wanted or any(one.get("audience") == wanted for one in tokens)

    def check(self, container: Container) -> Problem | None:
        """Without a lease nothing starts; once one is over the database takes its account no more."""
        uid, age = uid_of(container.pod), container.seconds
        if age < self.until.get(uid, 0.0) - LEASE_SECONDS:
            del self.until[uid]  # it was started anew
        if age < self.until.get(uid, 0.0):
            return None
        if self._grants(container):
            self.until[uid] = age + self.lab.kubelets.rng.uniform(0.6, 1.0) * LEASE_SECONDS
            return None
        if uid not in self.until:
            return Problem("crash", f"PUT /v1/auth/kubernetes/login: 403: {DENIED}", at_once=True)
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 (vault login: {DENIED})")


@family(
    "Whoever keeps Vault has an app's role take tokens of Vault's own audience only, as its next version will want it."
    " The app's pods send the token that each pod has, which is for the API server: what runs has its lease, and when"
    " that is over its login is denied, and the database takes its account no more.",
    joined=65,
)
async def audience_bound(lab: Lab) -> AsyncIterator[None]:
    """As users of Vault's Kubernetes method tell (vault-plugin-auth-kubernetes 102 and 300, vault-operator 965)."""
    namespace, name, front = lab.rng.choice(
        (
            ("payments", "settlements", "merchant-page"),
            ("shop", "returns", "orders-page"),
            ("media", "subscriptions", "member-page"),
        )
    )
    by, vault = lab.rng.choice(("alice", "carol", "flux", "argocd")), _Vault(lab, name)
    role = await lab.custom(ROLE, ROLES_GROUP, LOOSE)
    await lab.namespace("vault")
    await lab.app("vault", "vault", like=App("", serves=False), kind="StatefulSet", replicas=3, tag="1.19.5")
    await lab.controller("vault", "vault-config-operator", informer(role.path()), (ROLES_GROUP, "*", "*"), replicas=1)
    await lab.served(role)
    for one, team in ((name, namespace), ("reports", "search"), ("exports", "media")):
        spec = {"targetServiceAccounts": [one], "targetNamespaces": {"targetNamespaces": [team]}, "policies": [one]}
        meta = {"namespace": "vault", "name": one}
        whole = {"path": "kubernetes", "tokenTTL": 1800, **spec}
        await lab.apply({"apiVersion": f"{ROLES_GROUP}/v1", "kind": ROLE, "metadata": meta, "spec": whole})
    await lab.apply(objects.account(namespace, name))
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    like = App("", upstreams=((namespace, f"{name}-db"), ("vault", "vault")), check=vault.check)
    env = [{"name": "VAULT_AUTH_ROLE", "value": name}]
    await lab.app(namespace, name, like=like, replicas=3, tag="2.14.1", account=name, env=env)
    await rolled(lab, namespace, name, "2.14.1")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="5.0.3")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, front, 0.2)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    await lab.culprit(by, "update", ROLE, "vault", name, {"spec": {"audience": "vault"}})


POLICY, GATEWAY_GROUP = "BackendTrafficPolicy", "gateway.envoyproxy.io"
GATEWAY = ("envoy-gateway-system", "envoy-public")


@dataclass
class _Gateway:
    """What comes from outside, by address: most users have one of their own, those of a carrier share a few."""

    lab: Lab
    alone: float = 12.0
    """Requests a second of all who have an address of their own, each of whom asks for little."""
    shared: tuple[float, ...] = ()
    """Those of each address that many share."""

    def _limit(self) -> float | None:
        """Requests a second that an address may make, once the proxies have what the policy says."""
        found = self.lab.world[POLICY].get((GATEWAY[0], "default"))
        if not found:
            return None
        made = datetime.fromisoformat(found["metadata"]["creationTimestamp"])
        if (datetime.now(made.tzinfo) - made).total_seconds() < self.lab.lag:
            return None
        return float(found["spec"]["rateLimit"]["global"]["rules"][0]["limit"]["requests"]) / 60

    def asked(self) -> float:
        return self.alone + sum(self.shared)

    def refused(self) -> float:
        """The share of all requests that is beyond what their address may ask."""
        limit = self._limit()
        return 0.0 if limit is None else sum(max(0.0, one - limit) for one in self.shared) / self.asked()


def _too_many(lab: Lab) -> float:
    """The share of requests to the gateway that were lately answered with 429."""
    answers = lab.traffic.of_app(*GATEWAY, 10.0).answers
    return answers["429"] / max(1, answers.total())


@family(
    "The gateway for all public names gets a limit on how often an address may ask, for whoever has none of his own,"
    " as a sibling cluster has had it for days. There are few users there; here a carrier has thousands of its"
    " customers come from a handful of addresses, and most of what they ask is answered with 429.",
    joined=65,
)
async def limit_per_address(lab: Lab) -> AsyncIterator[None]:
    """As told of a ban by rate that hit clusters behind one address (kubernetes/k8s.io 7156)."""
    apps = lab.rng.choice(
        (
            (("shop", "mobile-api"), ("shop", "wish-lists")),
            (("media", "app-feed"), ("media", "stories")),
            (("search", "app-search"), ("search", "nearby")),
        )
    )
    by = lab.rng.choice(("bob", "alice", "argocd"))
    gateway, namespace = _Gateway(lab), GATEWAY[0]
    policy = await lab.custom(POLICY, GATEWAY_GROUP, LOOSE)
    await lab.namespace(namespace)
    passed = lambda: gateway.asked() * (1 - gateway.refused()) / len(apps)  # noqa: E731
    for place in apps:
        tag = f"4.{lab.rng.randrange(30)}.0"
        await lab.app(*place, like=App("", asked=passed), replicas=3, tag=tag)
        await rolled(lab, *place, tag)
    like = App("", upstreams=apps, asked=gateway.asked, failing=lambda _: gateway.refused())
    like.fails_with = lambda _: "429"
    await lab.app(*GATEWAY, like=like, replicas=3, tag="distroless-v1.35.3")
    address: Json = {"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.40"}]}}}
    await lab.edit("admin", "Service", *GATEWAY, {"spec": {"type": "LoadBalancer"}})
    await lab.who["admin"].must("PATCH", f"{path('Service', *GATEWAY)}/status", address)
    await rolled(lab, *GATEWAY, "distroless-v1.35.3")
    await lab.served(policy)
    for place in apps:
        lab.reserve(*place)
    summary = "more than a tenth of the requests to the public gateway are answered with 429"
    holds = lambda: _too_many(lab) > 0.1  # noqa: E731
    lab.alert("GatewayTooManyRequests", holds, summary, namespace=namespace, service=GATEWAY[1])
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}
    each = {"sourceCIDR": {"value": "0.0.0.0/0", "type": "Distinct"}}
    rule = {"clientSelectors": [each], "limit": {"requests": lab.rng.choice((100, 120, 200)), "unit": "Minute"}}
    spec: Json = {"targetRefs": [target], "rateLimit": {"type": "Global", "global": {"rules": [rule]}}}
    meta = {"namespace": namespace, "name": "default"}
    body = {"apiVersion": f"{GATEWAY_GROUP}/v1", "kind": POLICY, "metadata": meta, "spec": spec}
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.choice((3, 6)), cluster="eu-2"):
        await lab.pause(3)
        await lab.who[by].must("POST", policy.path(namespace), body)
        await lab.pause(8)
    await lab.who["admin"].must("DELETE", policy.path(namespace, "default"))
    gateway.shared = tuple(lab.rng.uniform(4, 9) for _ in range(lab.rng.randrange(4, 7)))
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    await lab.culprit(by, "create", POLICY, namespace, "default", body)
