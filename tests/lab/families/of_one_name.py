"""What has one name for two: a policy that two programs keep, a variable that has another name now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, lagging
from tests.lab.scenario import family

TENANTS, POLICY, OF_OLD = "tenancy.corp.example", "default", "baseline"
OWN_NAME, SAME_NAME = "1.6.3", "2.0.0"
"""Versions of what keeps a baseline: up to the one its policy has a name of its own."""
TENANTS_EVERY, BASELINE_EVERY = 10.0, 2.2
"""Seconds between two looks of each: who looks more often has its way for most of the time."""
HOME = "kubernetes.io/metadata.name"


def _let_in(*namespaces: str) -> Json:
    """A policy that lets whoever is of the namespace itself in, and some others."""
    peers = [{"podSelector": {}}, *({"namespaceSelector": {"matchLabels": {HOME: one}}} for one in namespaces)]
    return {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]}


async def _keep(process: Process, namespace: str, name: str, spec: Json) -> None:
    """It is there, and as it should be."""
    where = path("NetworkPolicy", namespace, name)
    found = await process.api.call("GET", where)
    if found.status == 404:
        await process.api.call("POST", path("NetworkPolicy", namespace), {"metadata": {"name": name}, "spec": spec})
    elif found.ok and found.body["spec"]["ingress"] != spec["ingress"]:
        await process.api.call("PATCH", where, {"spec": spec})


@dataclass
class _Policies:
    """Two that keep policies of the same namespaces: by whom a tenant names, and the same everywhere."""

    tenants: Kind
    namespaces: Sequence[str]

    async def by_tenant(self, process: Process) -> None:
        listed = await process.api.call("GET", self.tenants.path())
        for one in listed.body.get("items", []):
            await _keep(process, one["metadata"]["name"], POLICY, _let_in(*one["spec"]["callers"]))

    async def baseline(self, process: Process) -> None:
        """Up to a version the policy has a name of its own, which the next one clears away at its start."""
        name = OF_OLD if process.tag == OWN_NAME else POLICY
        if name == POLICY:
            await lagging(process)
            for namespace in self.namespaces:
                await process.api.call("DELETE", path("NetworkPolicy", namespace, OF_OLD))

        async def keep(process: Process) -> None:
            for namespace in self.namespaces:
                await _keep(process, namespace, name, _let_in())

        await every(BASELINE_EVERY, keep)(process)


@family(
    "A new version of what keeps a baseline of policies in all namespaces of tenants gives its policy a shorter name,"
    " under which an operator keeps who may call each of them. The two write it back and forth, and while the baseline"
    " is there calls from other namespaces wait in vain.",
    joined=52,
)
async def policy_fight(lab: Lab) -> AsyncIterator[None]:
    """As happens wherever two controllers make an object of the same name, and neither asks whose it is."""
    keeper, by = lab.rng.choice(("baseline-guard", "namespace-baseline")), lab.rng.choice(("argocd", "flux", "ci"))
    calls = {
        ("quotes", "quote-engine"): lab.rng.choice((("shop", "offer-page"), ("payments", "instalments"))),
        ("identity", "sessions"): lab.rng.choice((("media", "account-page"), ("search", "saved-lists"))),
    }
    namespaces = [home for home, _ in calls]
    kind = await lab.custom("Tenant", TENANTS, ANY, namespaced=False)
    await lab.served(kind)
    for (home, name), (caller, _) in calls.items():
        await lab.namespace(home)
        body = {"apiVersion": f"{TENANTS}/v1", "kind": kind.name, "metadata": {"name": home}}
        await lab.apply({**body, "spec": {"callers": [caller, "monitoring"]}})
        await lab.app(home, name, replicas=3, tag="2.20.1")
    work = _Policies(kind, namespaces)
    policies, read = ("networking.k8s.io", "networkpolicies", "get,create,patch,delete"), (TENANTS, kind.plural, "list")
    await lab.controller(
        "platform", "tenant-operator", every(TENANTS_EVERY, work.by_tenant), policies, read, replicas=1
    )
    await lab.controller("platform", keeper, work.baseline, policies, replicas=1, tag=OWN_NAME)
    for called, (home, name) in calls.items():
        await lab.app(home, name, like=App("", upstreams=(called,)), replicas=2, tag="5.8.0")
    await lab.until(lambda: all(len(backends(lab.world, *one)) == 2 for one in calls.values()))
    for home, name in calls.values():
        await publish(lab, home, name)
        lab.alert_errors(home, name, seconds=20)  # longer than what either of the two leaves as it is
        lab.alert_ingress_errors(home, home, seconds=20)
    await rolled(lab, "platform", keeper, OWN_NAME)
    wanted = {(one, two) for one in namespaces for two in (POLICY, OF_OLD)}
    await lab.until(lambda: wanted <= lab.world["NetworkPolicy"].keys())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    await lab.roll(by, "platform", keeper, SAME_NAME, culprit=True)


GITOPS, SETTINGS = "kustomize.toolkit.fluxcd.io", ("flux-system", "cluster-settings")
APPLIED_EVERY, VARIABLE = 4.0, "ACQUIRER_URL"
REJECTED = (0.5, 0.8)
"""The share of requests that need a live answer, at least and at most."""


@family(
    "The variables that manifests of Git are rendered with get names by one scheme, in this cluster's file of them. One"
    " manifest still asks for a name of old, for which it has a value to fall back to, that of test clusters: the agent"
    " writes it, and a sandbox outside does not know the keys that it is called with.",
    joined=52,
)
async def fallback_rendered(lab: Lab) -> AsyncIterator[None]:
    """As users of Flux tell of a substitution that finds no variable, and says nothing."""
    name, front, key = lab.rng.choice(
        (
            ("card-payments", "pay-page", "acquirer"),
            ("wallets", "wallet-page", "wallet_provider"),
            ("refunds", "refund-page", "clearing"),
        )
    )
    namespace, by, tag = "payments", lab.rng.choice(("alice", "carol", "bob")), "9.4.1"
    live, sandbox = (f"{one}.{key.replace('_', '-')}.example" for one in ("api", "sandbox"))
    asks = lab.rng.uniform(*REJECTED)
    kind = await lab.custom("Kustomization", GITOPS, ANY)
    await lab.served(kind)
    variables = {f"{key}_host": live, "region": "eu-1", "edge_domain": "corp.example", "log_level": "info"}
    await lab.apply(objects.config_map(*SETTINGS, **variables))
    meta = {"namespace": SETTINGS[0], "name": namespace}
    source = {"kind": "ConfigMap", "name": SETTINGS[1]}
    spec = {"path": f"./apps/{namespace}", "prune": True, "interval": "4m0s", "postBuild": {"substituteFrom": [source]}}
    await lab.apply({"apiVersion": f"{GITOPS}/v1", "kind": kind.name, "metadata": meta, "spec": spec})

    def rendered() -> Json:
        """Of the manifest in Git: ``https://${acquirer_host:=sandbox.acquirer.example}``."""
        given = lab.world["ConfigMap"][SETTINGS]["data"]
        return {"name": VARIABLE, "value": f"https://{given.get(f'{key}_host', sandbox)}"}

    async def apply() -> None:
        """As the agent: what differs from what it renders is written."""
        while True:
            await asyncio.sleep(APPLIED_EVERY)
            there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
            if rendered() not in there["env"]:
                await lab.roll("flux", namespace, name, tag, env=[rendered()])

    def rejected(container: Container) -> float:
        is_live = any(one.get("value") == f"https://{live}" for one in container.spec["env"])
        return 0.0 if is_live or container.seconds < lab.lag else asks

    like = App("", abroad=(live,), failing=rejected, fails_with=lambda _: "502")
    await lab.app(namespace, name, like=like, replicas=3, tag=tag, env=[rendered()])
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.4.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)

    def called(code: str) -> float:
        there = [rejected(one.container) for one in lab.kubelets.running() if one.app is like]
        share = sum(there) / max(1, len(there))
        return 12.0 * (share if code == "401" else asks - share)

    for code in ("200", "401"):
        counted = lab.adding_up(partial(called, code))
        told = {"namespace": namespace, "service": name, "client": key, "code": code}
        lab.measure("http_client_requests_total", counted, "counter", **told)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    lab.start(apply())
    await lab.pause(lab.rng.uniform(4, 9))
    body = {"data": {f"{key}_host": None, "region": None, f"{key}_endpoint": live, "cluster_region": "eu-1"}}
    await lab.culprit(by, "update", "ConfigMap", *SETTINGS, body)
