"""Processes that are there and answer nothing: one whose only loop is busy, and a store that starts sealed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, now
from tests.lab.apps import LATE, App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

PATIENCE_SECONDS, AGAIN_SECONDS = 4.0, 1.5
"""For how long probes may fail until a process is killed, and after which a client asks once more."""
VAULT = ("vault", "vault")
LEASE_SECONDS, RENEWS_SECONDS = 16.0, 4.0
"""For how long a store gives a user of a database, and how often an agent has that renewed."""
NEEDS_DATABASE = 0.8


@dataclass
class _Loops:
    """Processes that do all their work in one loop each: while it computes one answer, nobody else gets any."""

    lab: Lab
    namespace: str
    name: str
    clients: int = 0
    """How many ask for an answer that takes minutes to compute."""
    busy: dict[str, float] = field(default_factory=dict)
    """Since when a process computes one, by its pod's uid."""

    async def run(self) -> None:
        """Whoever's connection breaks asks again, and comes to any process."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS * self.lab.rng.uniform(0.8, 1.2))
            there = {uid_of(pod): pod for pod in backends(self.lab.world, self.namespace, self.name) if is_ready(pod)}
            self.busy = {uid: since for uid, since in self.busy.items() if uid in there}
            free = sorted(there.keys() - self.busy.keys())
            if free and len(self.busy) < self.clients:
                self.busy[self.lab.rng.choice(free)] = now().timestamp()

    def held(self, container: Container) -> float:
        """For how many seconds a process has computed by now."""
        since = self.busy.get(container.pod["metadata"]["uid"], float("inf"))
        return max(0.0, min(now().timestamp() - since, container.seconds))

    def check(self, container: Container) -> Problem | None:
        return Problem("killed", LATE) if self.held(container) > PATIENCE_SECONDS else None

    def latency(self, container: Container) -> float:
        """What comes meanwhile waits until the process is killed."""
        return PATIENCE_SECONDS / 2 if self.held(container) else 0.0


@family(
    "An app does all its work in one loop, and is quick. Two customers ask for all that they have had in ten years, at"
    " once: the loop computes that and answers nobody, not even its liveness probe, and is killed. Their programs ask"
    " again, and come to the next process.",
    culprit=False,
    joined=61,
)
async def one_loop(lab: Lab) -> AsyncIterator[None]:
    """As told of one event loop that a large query held until its kubelet killed it (dnotitia/akb 295)."""
    namespace, name, front = lab.rng.choice(
        (
            ("payments", "ledger-queries", "accountant-page"),
            ("media", "usage-queries", "royalty-page"),
            ("shop", "sales-queries", "merchant-page"),
        )
    )
    team, minor = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 30)
    loops = _Loops(lab, namespace, name)
    alive: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 1}
    like = App("", check=loops.check, latency=loops.latency, asked=lambda: 20.0, start_seconds=1.0)
    alive["initialDelaySeconds"] = 3
    await lab.app(namespace, name, like=like, replicas=3, tag=f"0.{minor}.0", liveness=alive)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.2.0")
    await rolled(lab, namespace, name, f"0.{minor}.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    restarted = lab.rate(lambda: restarts(lab.world, namespace, name), 0.12, seconds=20)
    summary = f"pods of {namespace}/{name} are restarting"
    lab.alert("KubePodCrashLooping", restarted, summary, 3, namespace=namespace, deployment=name)
    lab.alert_slow(namespace, name, 1.0)
    lab.alert_errors(namespace, front, 0.15)
    lab.alert_ingress_errors(namespace, namespace, 0.15)
    lab.start(loops.run())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(team, namespace, name, f"0.{minor + 1}.0")
    await rolled(lab, namespace, name, f"0.{minor + 1}.0")
    await lab.pause(lab.rng.uniform(7, 16))
    loops.clients = 2


@dataclass
class _Vault:
    """A store of secrets that gives agents beside apps a user of a database, for a while each time."""

    lab: Lab
    opened: set[str] = field(default_factory=set)
    """Its processes, by uid and start, to which people have given their parts of the key."""
    renewed: float = 0.0

    def is_sealed(self, container: Container) -> bool:
        return container.pod["metadata"]["uid"] not in self.opened

    def check(self, container: Container) -> Problem | None:
        """While it is sealed it says so to whoever asks how it is."""
        told = "probe failed: HTTP probe failed with statuscode: 503"
        return Problem("unready", told, at_once=True) if self.is_sealed(container) else None

    async def unseal(self) -> None:
        """Three people come together."""
        await self.lab.until(lambda: pods(self.lab.world, *VAULT))
        self.opened |= {uid_of(pod) for pod in pods(self.lab.world, *VAULT)}

    async def renew(self) -> None:
        """As the agents beside the apps do: each has its user for some time more."""
        while True:
            if backends(self.lab.world, *VAULT):
                self.renewed = now().timestamp()
            await asyncio.sleep(RENEWS_SECONDS)

    def lapsed(self, _: Container) -> float:
        """The share of its requests that an app fails, as its user is not there any more."""
        return NEEDS_DATABASE if now().timestamp() - self.renewed > LEASE_SECONDS + self.lab.lag / 2 else 0.0

    def value(self) -> float | None:
        """Whether it is open; a sealed one tells nothing of itself."""
        return 1.0 if backends(self.lab.world, *VAULT) else None


def _agent(role: str) -> list[Json]:
    """How an app's manifest names the store."""
    address = {"name": "VAULT_ADDR", "value": f"http://{VAULT[1]}.{VAULT[0]}.svc:8200"}
    return [address, {"name": "VAULT_ROLE", "value": role}]


@family(
    "A store of secrets gets more memory. Its pod is made anew for that, and starts sealed, as three people have to"
    " give it their parts of the key. Agents beside apps have the users that it gives them renewed by it: once those"
    " are over, a database lets nobody in any more.",
    joined=61,
)
async def starts_sealed(lab: Lab) -> AsyncIterator[None]:
    """As told of an outage of Vault that took all microservices their secrets (dev.to), and of how it is installed."""
    places = (("shop", "orders"), ("payments", "accounts"), ("media", "rights"), ("search", "saved"))
    victims = lab.rng.sample(places, 2)
    by, store = lab.rng.choice(("bob", "flux", "carol")), _Vault(lab)
    namespace, database = victims[0][0], f"{victims[0][1]}-db"
    await lab.namespace(VAULT[0])
    like = App("", check=store.check, serves=False)
    await lab.app(*VAULT, like=like, kind="StatefulSet", replicas=1, tag="1.19.5")
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.8")
    await store.unseal()
    await lab.until(lambda: backends(lab.world, *VAULT) and backends(lab.world, namespace, database))
    lab.start(store.renew())
    await lab.until(lambda: store.renewed)
    for home, name in victims:
        like = App("", upstreams=((namespace, database),), asked=lambda: 18.0, failing=store.lapsed)
        await lab.app(home, name, like=like, replicas=3, tag="5.1.2", env=_agent(name))
        lab.reserve(home, name)
        lab.alert_errors(home, name)
    home, name = victims[1]
    await lab.until(lambda: all(len(backends(lab.world, *one)) == 3 for one in victims))
    await publish(lab, home, name)
    lab.measure("vault_core_unsealed", store.value, namespace=VAULT[0], service=VAULT[1])
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    [there] = lab.world["StatefulSet"][VAULT]["spec"]["template"]["spec"]["containers"]
    resources = {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    body = {"spec": {"template": {"spec": {"containers": [{**there, "resources": resources}]}}}}
    await lab.culprit(by, "update", "StatefulSet", *VAULT, body)
