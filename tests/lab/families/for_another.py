"""What was meant for one place and got to another: a new key, written into the Secret of the same app for testing."""

from __future__ import annotations

import asyncio
import random
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

GATEWAY, CLIENTS = "object-gateway", "clients.yaml"
SECRET, KEY_ID = "object-store-key", "ACCESS_KEY_ID"
IDENTITY = re.compile(r"^  - id: (\S+)$", re.MULTILINE)
ASKED, STORES = 20.0, (0.6, 0.8)
"""Requests a second of an app, and the share of them, at least and at most, that needs the store."""


@dataclass
class _Gateway:
    """It takes requests that are signed with a key of its list, which it reads anew where that has changed."""

    lab: Lab
    namespace: str
    name: str
    stores: float
    known: set[str] = field(default_factory=set)
    seen: tuple[str, float] = "", 0.0
    """The list as it is now, and since when."""

    async def follow(self) -> None:
        while True:
            text = self.lab.world["ConfigMap"]["platform", GATEWAY]["data"][CLIENTS]
            if text != self.seen[0]:
                self.seen = text, now().timestamp()
            if now().timestamp() - self.seen[1] >= self.lab.kubelets.lag:
                self.known = set(IDENTITY.findall(text))
            await asyncio.sleep(0.5)

    def refused(self, container: Container) -> float:
        return 0.0 if _key(container) in self.known else self.stores

    def turned_away(self) -> float:
        """Its requests a second from the app's pods whose key it does not take."""
        found = self._processes()
        share = sum(_key(one) not in self.known for one in found) / len(found) if found else 0.0
        return ASKED * self.stores * share

    def taken(self) -> float:
        return ASKED * self.stores - self.turned_away()

    def have_all(self, key: str) -> bool:
        """Whether all pods of the app have read a key."""
        found = self._processes()
        return bool(found) and all(_key(one) == key for one in found)

    def _processes(self) -> list[Container]:
        there = {uid_of(one) for one in pods(self.lab.world, self.namespace, self.name)}
        return [one.container for one in self.lab.kubelets.running() if uid_of(one.container.pod) in there]


def _key(container: Container) -> str:
    return b64decode(container.secret.get(KEY_ID, "")).decode()


def _clients(keys: Sequence[str]) -> Json:
    """The list: not the keys, but what one is known by."""
    lines = (f"  - id: {one}\n    sha256: {sha256(one.encode()).hexdigest()}\n" for one in keys)
    return {"data": {CLIENTS: f"keys:\n{''.join(lines)}"}}


def _secret(key: str, chance: random.Random) -> Json:
    return {"stringData": {KEY_ID: key, "SECRET_ACCESS_KEY": f"{chance.getrandbits(160):040x}"}}


@family(
    "Each quarter an app gets a new key for the store of objects: the store's gateway takes both for a while, the new"
    " one is written into the app's Secret, and then the old one is taken out of what the gateway takes. This time the"
    " new key was written into the Secret of the same app where it is only tested: the app in use has the old one.",
    joined=57,
)
async def key_elsewhere(lab: Lab) -> AsyncIterator[None]:
    """As Cloudflare tells of 21 March 2025, by a thread about stale credentials (SREGym 822)."""
    namespace, name = lab.rng.choice(
        (("media", "recordings"), ("shop", "product-photos"), ("payments", "statements-archive"))
    )
    staging, number = f"{namespace}-staging", lab.rng.randrange(5, 30)
    by, tester = lab.rng.choice(("carol", "alice", "bob")), f"{name}-staging"
    old, new, newest = (f"{name}-{number + one}" for one in range(3))
    gateway = _Gateway(lab, namespace, name, lab.rng.uniform(*STORES))
    await lab.namespace(staging)
    data = _clients((old, tester))["data"]
    await lab.apply(objects.config_map("platform", GATEWAY, **data))
    await lab.app("platform", GATEWAY, like=App("", serves=False), replicas=2, tag="2.14.0", config=GATEWAY)
    called = (("platform", GATEWAY),)
    in_use = App("", upstreams=called, asked=lambda: ASKED, failing=gateway.refused)
    in_test = App("", upstreams=called, asked=lambda: 1.0)
    for place, like, key, replicas in ((namespace, in_use, old, 4), (staging, in_test, tester, 1)):
        await lab.apply({"kind": "Secret", "metadata": {"namespace": place, "name": SECRET}, **_secret(key, lab.rng)})
        await lab.app(place, name, like=like, replicas=replicas, tag="5.9.3", secret=SECRET)
    lab.start(gateway.follow())
    await rolled(lab, namespace, name, "5.9.3")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    told = {"namespace": "platform", "service": GATEWAY, "bucket": name}
    for code, counter in (("200", lab.adding_up(gateway.taken)), ("403", lab.adding_up(gateway.turned_away))):
        lab.measure("s3_requests_total", counter, "counter", **told, code=code)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=91):
        await lab.pause(3)
        await lab.edit(by, "ConfigMap", "platform", GATEWAY, _clients((old, new, tester)))
        await lab.edit(by, "Secret", namespace, SECRET, _secret(new, lab.rng))
        await lab.until(lambda: gateway.have_all(new))
        await lab.pause(3)
        await lab.edit(by, "ConfigMap", "platform", GATEWAY, _clients((new, tester)))
        await lab.pause(6)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.edit(by, "ConfigMap", "platform", GATEWAY, _clients((new, newest, tester)))
    await lab.pause(lab.rng.uniform(2, 4))
    why = "the new key was written here in place of the Secret of the app in use"
    await lab.also(why, by, "update", "Secret", staging, SECRET, _secret(newest, lab.rng))
    await lab.pause(lab.rng.uniform(8, 15))
    await lab.culprit(by, "update", "ConfigMap", "platform", GATEWAY, _clients((newest, tester)))
