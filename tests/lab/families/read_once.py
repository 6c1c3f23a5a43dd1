"""What was handed to a program and is another one now: a password in its environment, the roots that it trusts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

KEY = "password"
OLDEST = (14.0, 24.0)
"""For how many seconds a pool keeps a connection, at least and at most."""
OVERLAP = 10.0
"""For how many seconds the database takes the password of before too, for those who have not read the new one yet."""
BUNDLE, PEM = "corp-roots", "roots.pem"
OLD_ROOT, NEW_ROOT = "Corp Internal Root 2018", "Corp Internal Root 2026"


@dataclass
class _Password:
    """Of a database's user. A connection that stands asks for none; a new one has to have that of now."""

    oldest: float
    value: str = ""
    since: datetime | None = None

    def to(self, value: str) -> Json:
        """It is this from now on: what the Secret says of it."""
        self.since = now() if self.value else None
        self.value = base64.b64encode(value.encode()).decode()
        return {KEY: self.value}

    def _reopened(self) -> float:
        """The share of connections that were made anew since only the new one is taken."""
        passed = (now() - self.since).total_seconds() if self.since else 0.0
        return min(1.0, max(0.0, passed - OVERLAP) / self.oldest)

    def by_environment(self, container: Container) -> float:
        """Of a program that was given it at its start."""
        is_older = self.since is not None and now() - timedelta(seconds=container.seconds) < self.since
        return self._reopened() if is_older else 0.0

    def by_file(self, container: Container) -> float:
        """Of one that reads it for each new connection."""
        return 0.0 if container.secret.get(KEY) == self.value else self._reopened()


@family(
    "The password of a database's user is rotated, in the database and in the Secret; the old one is taken for"
    " a while. Who reads a file has the new one by then, who was given it in its environment goes on with the old one.",
    joined=27,
)
async def env_password(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of Secrets has it of environment variables: they stay as they were at the start."""
    namespace, name, other = lab.rng.choice(
        (("payments", "invoices", "dunning"), ("shop", "loyalty", "coupons"), ("media", "rights", "royalties"))
    )
    database, secret = f"{name}-postgres", f"{name}-db"
    password = _Password(lab.rng.uniform(*OLDEST))
    upstreams = ((namespace, database),)
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    meta = {"namespace": namespace, "name": secret}
    await lab.apply({"kind": "Secret", "metadata": meta, "data": password.to(f"{lab.rng.getrandbits(64):x}")})
    reference = {"secretKeyRef": {"name": secret, "key": KEY}}
    env = [{"name": "DB_PASSWORD", "valueFrom": reference}]
    given = App("", upstreams=upstreams, failing=password.by_environment)
    await lab.app(namespace, name, like=given, replicas=3, env=env, tag="4.1.3")
    reads = App("", upstreams=upstreams, failing=password.by_file)
    await lab.app(namespace, other, like=reads, replicas=2, secret=secret, tag="2.7.0")
    rotator = "credential-rotator"
    rules = ("", "secrets", "get,patch")
    await lab.controller("platform", rotator, every(5, _look(namespace, secret)), rules, replicas=1, tag="1.12.0")
    await lab.robot("rotator", "platform", rotator, f"{rotator}/1.12.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    for one in (name, other):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    rotated = {
        "metadata": {"annotations": {"rotation.corp.example/last": f"{now():%Y-%m-%d}"}},
        "data": password.to(f"{lab.rng.getrandbits(64):x}"),
    }
    await lab.culprit("rotator", "update", "Secret", namespace, secret, rotated)


def _look(namespace: str, secret: str) -> Callable[[Process], Awaitable[None]]:
    async def look(process: Process) -> None:
        """When it was rotated last."""
        await process.api.call("GET", path("Secret", namespace, secret))

    return look


def _certificate(name: str) -> str:
    """A root as bundles have it: who it is, and what looks like it."""
    digest = hashlib.sha512(name.encode()).digest() * 6
    text = base64.encodebytes(digest).decode()
    return f"# {name}\n-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"


@family(
    "The old root is taken out of the bundle that all apps of the company trust by, as the new one has been there for"
    " long. One app still has a certificate of the old one: who calls it does not trust it any more.",
    joined=27,
)
async def bundle_swapped(lab: Lab) -> AsyncIterator[None]:
    """As guides to the rotation of a root warn: first the certificates, and then the bundle."""
    called = lab.rng.choice((("payments", "settlements"), ("search", "profiles"), ("media", "licences")))
    callers = [one for one in (("shop", "orders"), ("payments", "fraud"), ("search", "answers")) if one[0] != called[0]]
    other, namespaces = ("platform", "addresses"), ("shop", "payments", "search", "media")

    def trusted(namespace: str) -> bool:
        bundle = lab.world["ConfigMap"].get((namespace, BUNDLE), {}).get("data", {}).get(PEM, "")
        return OLD_ROOT in bundle

    def untrusted(container: Container) -> float:
        """Of a caller's pages: what needs the other app's answer."""
        return 0.0 if OLD_ROOT in container.config.get(PEM, "") else 0.6

    async def copy(process: Process) -> None:
        """As what keeps the bundle the same in all namespaces."""
        source = await process.api.call("GET", path("ConfigMap", "cert-manager", BUNDLE))
        for namespace in namespaces if source.ok else ():
            where = path("ConfigMap", namespace, BUNDLE)
            found = await process.api.call("GET", where)
            if found.status == 404:
                made = objects.config_map(namespace, BUNDLE, **source.body["data"])
                await process.api.call("POST", path("ConfigMap", namespace), made)
            elif found.ok and found.body["data"] != source.body["data"]:
                await process.api.call("PATCH", where, {"data": source.body["data"]})

    both = _certificate(OLD_ROOT) + _certificate(NEW_ROOT)
    await lab.apply(objects.config_map("cert-manager", BUNDLE, **{PEM: both}))
    rules = ("", "configmaps", "get,create,patch")
    await lab.controller("cert-manager", "trust-manager", every(2, copy), rules, replicas=1, tag="0.18.0")
    for (namespace, name), root in ((called, OLD_ROOT), (other, NEW_ROOT)):
        meta = {"namespace": namespace, "name": f"{name}-tls", "annotations": {"pki.corp.example/issuer": root}}
        data = {"tls.crt": base64.b64encode(_certificate(f"{name}, by {root}").encode()).decode()}
        await lab.apply({"kind": "Secret", "metadata": meta, "data": data})
    usual = lab.rng.uniform(30, 50)
    asked = App("", asked=lambda: usual * sum(trusted(one) for one, _ in callers) / len(callers))
    await lab.app(*called, like=asked, replicas=3, secret=f"{called[1]}-tls")
    await lab.app(*other, secret=f"{other[1]}-tls")
    await lab.until(lambda: all((one, BUNDLE) in lab.world["ConfigMap"] for one in namespaces))
    roots = [{"name": "roots", "configMap": {"name": BUNDLE}}]
    for one in callers:
        like = App("", upstreams=(called, other), failing=untrusted, fails_with=lambda _: "502")
        await lab.app(*one, like=like, replicas=3, volumes=roots)
    await lab.until(lambda: all(len(backends(lab.world, *one)) == 3 for one in callers))
    await publish(lab, *callers[0])
    for one in callers:
        lab.alert_errors(*one)
    yield
    by = lab.rng.choice(("alice", "carol", "flux"))
    body = {"data": {PEM: _certificate(NEW_ROOT)}}
    await lab.culprit(by, "update", "ConfigMap", "cert-manager", BUNDLE, body)
