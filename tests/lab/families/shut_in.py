"""Who does not get out any more: servers of names, and an operator whose session with a store of secrets is over."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

API_SERVER = "10.0.0.100/32"


def _baseline(namespace: str, name: str) -> Json:
    """A policy for all pods of a namespace: they may call whatever is in the cluster, and the API server."""
    api = {"to": [{"ipBlock": {"cidr": API_SERVER}}], "ports": [{"protocol": "TCP", "port": 6443}]}
    spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"namespaceSelector": {}}]}, api]}
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


@family(
    "Namespaces of the platform get a policy in turn, by which their pods call only what is in the cluster, as all of"
    " them do. The servers of names are in one of them: they answer for the cluster, and do not reach the resolver"
    " outside any more.",
    joined=55,
)
async def servers_shut_in(lab: Lab) -> AsyncIterator[None]:
    """As in a replay of an incident of pods whose names are not resolved (grokdatum.github.io)."""
    callers = (
        ("shop", "address-check", "checkout-page", "api.postcodes.example"),
        ("payments", "sanctions", "transfer-page", "lists.screening.example"),
        ("media", "captions", "studio-page", "api.speech.example"),
    )
    (namespace, name, front, host), (other, second, _, elsewhere) = lab.rng.sample(callers, 2)
    by, team = lab.rng.choice(("alice", "bob", "flux")), lab.rng.choice(("ci", "argocd", "carol"))
    policy, old, new = lab.rng.choice(("egress-baseline", "default-egress", "cluster-only")), "2.18.0", "2.18.1"
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="900"))
    await lab.app(namespace, name, like=App("", abroad=(host,)), replicas=3, tag=old, config=name)
    await lab.app(other, second, like=App("", abroad=(elsewhere,)), replicas=2, tag="4.0.7")
    await rolled(lab, namespace, name, old)
    await rolled(lab, other, second, "4.0.7")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="11.2.0")
    await lab.until(lambda: backends(lab.world, namespace, front) and len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, namespace, name, new)
    await rolled(lab, namespace, name, new)
    for first in lab.rng.sample(("argocd", "monitoring", "cert-manager"), 2):
        await lab.apply({"kind": "NetworkPolicy", **_baseline(first, policy)}, by)
        await lab.pause(lab.rng.uniform(2, 4))
    await lab.culprit(by, "create", "NetworkPolicy", "kube-system", policy, _baseline("kube-system", policy))


SECRETS = "external-secrets.io"
GRACE_SECONDS, AGED_SECONDS = 14.0, 10.0
"""For how long a database takes the password before the last one too, and how old its connections get."""
OVER = "the security token included in the request is expired"


@dataclass
class _Vault:
    """A store outside, which sets a database's passwords by itself; whom it answers has logged in not too long ago."""

    kind: Kind
    namespace: str
    name: str
    share: float
    """Of an app's requests, those that need a connection."""
    number: int = 1
    replaced: datetime | None = None
    is_over: bool = False
    """Whether the operator's session is; it logs in at its start only."""
    refused_since: dict[str, datetime] = field(default_factory=dict)

    @property
    def password(self) -> str:
        return f"generated-{self.number * 7919:08x}"

    def rotate(self) -> None:
        self.number, self.replaced = self.number + 1, now()

    async def sync(self, process: Process) -> None:
        """As the operator: what it is answered becomes a Secret, and a failure the object's condition."""
        found = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        if not found.ok:
            return
        last: Json = next(iter(found.body.get("status", {}).get("conditions", ())), {})
        condition = {"type": "Ready", "status": "True", "reason": "SecretSynced", "message": "secret synced"}
        if self.is_over:
            message = f"could not get secret data from provider: ExpiredTokenException: {OVER}"
            condition |= {"status": "False", "reason": "SecretSyncedError", "message": "could not get secret data"}
            await tell(process, found.body, "Warning", "UpdateFailed", message, by="external-secrets")
        else:
            body = {"stringData": {"password": self.password}}
            await process.api.call("PATCH", path("Secret", self.namespace, self.name), body)
        changed = last.get("status") != condition["status"]
        condition["lastTransitionTime"] = f"{stamp(now())[:19]}Z" if changed else last["lastTransitionTime"]
        status = {"conditions": [condition], **({} if self.is_over else {"refreshTime": f"{stamp(now())[:19]}Z"})}
        await process.api.call("PATCH", self.kind.path(self.namespace, self.name), {"status": status})

    def failing(self, container: Container) -> float:
        """As its connections get old, for each of which it reads the file of the password."""
        told, uid = base64.b64decode(container.secret.get("password", "")).decode(), uid_of(container.pod)
        in_grace = self.replaced is None or (now() - self.replaced).total_seconds() < GRACE_SECONDS
        if told == self.password or in_grace:
            self.refused_since.pop(uid, None)
            return 0.0
        passed = (now() - self.refused_since.setdefault(uid, now())).total_seconds()
        return self.share * min(1.0, passed / AGED_SECONDS)


@family(
    "A store of secrets outside of the cluster sets a database's password anew by itself, and an operator that looks"
    " there now and then writes it into a Secret. That operator has logged in at its start, a session is over at some"
    " time, and it does not log in again: it is running, and the next password does not get into the cluster.",
    culprit=False,
    joined=55,
)
async def session_over(lab: Lab) -> AsyncIterator[None]:
    """As told of a rotation that was not synced (techresolve.blog), with its cause (infisical 7179, ESO 6654)."""
    namespace, name, front = lab.rng.choice(
        (
            ("payments", "mandates", "mandate-page"),
            ("shop", "vouchers", "voucher-page"),
            ("search", "saved-searches", "alerts-page"),
        )
    )
    store, secret = f"{name}-db", f"{name}-db-password"
    kind = await lab.custom("ExternalSecret", SECRETS, ANY)
    vault = _Vault(kind, namespace, secret, lab.rng.uniform(0.5, 0.8))
    await lab.served(kind)
    await lab.apply({"kind": "Secret", "metadata": {"namespace": namespace, "name": secret}})
    reference = {"remoteRef": {"key": f"database/{store}", "property": "password"}, "secretKey": "password"}
    spec: Json = {"refreshInterval": "5m", "secretStoreRef": {"name": "vault", "kind": "ClusterSecretStore"}}
    meta, spec = {"namespace": namespace, "name": secret}, {**spec, "target": {"name": secret}, "data": [reference]}
    await lab.apply({"apiVersion": f"{SECRETS}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (SECRETS, kind.plural, "*"), ("", "secrets,events", "get,create,patch")
    await lab.controller("platform", "external-secrets", every(5, vault.sync), *rules, replicas=1, tag="0.18.2")
    await lab.until(lambda: lab.world[kind.name][namespace, secret].get("status"))
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="17.2")
    like = App("", upstreams=((namespace, store),), failing=vault.failing)
    await lab.app(namespace, name, like=like, replicas=3, tag="6.11.0", secret=secret)
    await rolled(lab, namespace, name, "6.11.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.4.4")
    await lab.until(lambda: backends(lab.world, namespace, front) and len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, store)

    def refusals() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 7.0 * sum(map(vault.failing, there)) / max(1, len(there))

    refused = lab.adding_up(refusals)
    lab.measure("postgresql_authentication_failures_total", refused, "counter", namespace=namespace, service=store)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)

    async def strike() -> None:
        vault.is_over = True
        await asyncio.sleep(lab.rng.uniform(8, 16))
        vault.rotate()

    vault.rotate()  # as each week: it is synced long before the old one is taken no more
    await lab.pause(GRACE_SECONDS + 2)
    await lab.until(lab.is_well)
    yield
    lab.start(strike())
