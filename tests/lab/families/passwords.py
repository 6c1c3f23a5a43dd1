"""What runs has the old one: a token that was replaced in place, a password that the cloud changes by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab.api import Answer, Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

LIFETIME = timedelta(seconds=14)
"""For how long a connection is kept at most."""


def from_secret(variable: str, secret: str, key: str) -> Json:
    """A variable that is read from a Secret at each start of its container."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def restarted() -> Json:
    """As ``kubectl rollout restart`` has it."""
    stamp = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
    return {"spec": {"template": {"metadata": {"annotations": stamp}}}}


def begun(container: Container) -> datetime:
    """When it was started."""
    return now() - timedelta(seconds=container.seconds)


@family(
    "The token for an API outside is rotated in its Secret in place, and the old one is not taken any more at once."
    " What runs has read it at its start: its calls fail until it was started anew, one pod after another.",
    joined=28,
)
async def token_replaced(lab: Lab) -> AsyncIterator[None]:
    """As an engineer tells of a secret for an API of authentication (zoelog)."""
    namespace, name, front = lab.rng.choice(
        (("platform", "auth-service", "sign-in"), ("payments", "acquiring", "pay"), ("shop", "addresses", "delivery"))
    )
    secret, by, share = f"{name}-api-secrets", lab.rng.choice(("carol", "alice", "flux")), lab.rng.uniform(0.6, 0.8)
    replaced: list[datetime] = []

    def refused(container: Container) -> float:
        """Of the requests for which it asks outside."""
        return share if replaced and begun(container) < replaced[-1] else 0.0

    def token() -> Json:
        return {"stringData": {"api_token": f"token {lab.rng.randrange(10**9)}"}}

    await lab.apply({"kind": "Secret", "metadata": {"namespace": namespace, "name": secret}, **token()})
    like = App("", abroad=("api.identity.example",), failing=refused, start_seconds=6.0)
    env = [from_secret("API_TOKEN", secret, "api_token")]
    await lab.app(namespace, name, like=like, replicas=6, tag="2.18.0", env=env)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=3, tag="7.4.1")
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    yield
    await lab.culprit(by, "update", "Secret", namespace, secret, token())
    replaced.append(now())
    await lab.pause(lab.rng.uniform(2, 3))
    await lab.edit(by, "Deployment", namespace, name, restarted())


@dataclass
class _Managed:
    """A database of the cloud's, which has a new password now and then; who is connected stays so."""

    lab: Lab
    namespace: str
    name: str
    user: str
    changed: list[datetime] = field(default_factory=list)
    """When, unless the Secret has it by now."""

    def refused(self, container: Container) -> Problem | None:
        """Whoever starts afterwards gets no connection at all."""
        if self.changed and begun(container) > self.changed[-1]:
            return Problem("crash", f'FATAL: password authentication failed for user "{self.user}" (SQLSTATE 28P01)')
        return None

    def failing(self, _: Container) -> float:
        """One connection after another is as old as it may be, and no new one is let in."""
        return min(1.0, (now() - self.changed[-1]) / LIFETIME) if self.changed else 0.0

    async def copy(self, by: str) -> None:
        """Somebody puts the new one into the Secret, and has all start anew."""
        body = {"stringData": {"password": f"password {self.lab.rng.randrange(10**9)}"}}
        await self.lab.edit(by, "Secret", self.namespace, f"{self.name}-db", body)
        self.changed.clear()
        await self.lab.edit(by, "Deployment", self.namespace, self.name, restarted())

    async def release(self, by: str, tag: str) -> Answer:
        answer = await self.lab.roll(by, self.namespace, self.name, tag)
        await rolled(self.lab, self.namespace, self.name, tag)
        return answer


@family(
    "The cloud gives a managed database a new password every week by itself, and the cluster's Secret has the old one:"
    " connections that are there go on until they are as old as they may be, and each new one is refused.",
    culprit=False,
    joined=28,
)
async def managed_rotation(lab: Lab) -> AsyncIterator[None]:
    """As a team tells of its database (world-federation-of-advertisers, cross-media-measurement 1648, 2024)."""
    namespace, name, front = lab.rng.choice(
        (("payments", "duchies", "computations"), ("media", "rights", "licensing"), ("search", "saved", "collections"))
    )
    managed, by = _Managed(lab, namespace, name, name), lab.rng.choice(("argocd", "ci"))
    first = {"stringData": {"password": "password"}}
    await lab.apply({"kind": "Secret", "metadata": {"namespace": namespace, "name": f"{name}-db"}, **first})
    like = App("", abroad=(f"{name}.rds.cloud.example",), failing=managed.failing, check=managed.refused)
    env = [from_secret("DB_PASSWORD", f"{name}-db", "password")]
    await lab.app(namespace, name, like=like, replicas=3, tag="0.5.2", env=env)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_lacking(namespace, name)
    async with before(lab, days=7) as then:
        suspect = await managed.release(by, "0.5.3")
        await lab.pause(3)
        managed.changed.append(now())
        await then.fires()
        await managed.copy("bob")
        await then.is_well()
        then.judge(suspect, "not it")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    yield
    await managed.release(by, "0.5.4")
    await lab.pause(lab.rng.uniform(5, 9))
    managed.changed.append(now())
