"""Waited for: threads that each wait for the other, and a database behind a cache that has nothing in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.api import now
from tests.lab.apps import LATE, App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

# -- threads

THREADS, PATIENCE_SECONDS = 200, 5.0
"""Of a process, for requests; and for how long whoever asks waits for one of them."""


@dataclass
class _Locked:
    """Processes of which two threads hold what the other wants, and since when: whoever needs either waits too."""

    lab: Lab
    lasts: float
    """Seconds until all threads of such a process wait."""
    since: dict[str, float] = field(default_factory=dict)

    def share(self, container: Container) -> float:
        """Of a process's threads, those that wait."""
        began = self.since.get(uid_of(container.pod))
        if began is None:
            return 0.0
        return min(1.0, max(0.0, (now().timestamp() - began - self.lab.lag) / self.lasts))

    def fails(self, container: Container) -> float:
        """What finds no thread that is free, or needs the same lock."""
        return 0.95 * self.share(container) ** 2

    def waits(self, container: Container) -> float:
        return PATIENCE_SECONDS * self.fails(container)

    def blocked(self, like: App) -> int:
        there = [one.container for one in self.lab.kubelets.running() if one.app is like]
        return round(THREADS * sum(map(self.share, there)))

    async def go_on(self, like: App, *, others: int, pause: float) -> None:
        """One comes to it, and sometimes another one for the same reason, as they are asked the same."""
        for turn in range(1 + others):
            if turn:
                await asyncio.sleep(pause)
            there = [uid_of(one.container.pod) for one in self.lab.kubelets.running() if one.app is like]
            left = [uid for uid in sorted(there) if uid not in self.since]
            if left:
                self.since[self.lab.kubelets.rng.choice(left)] = now().timestamp()


@family(
    "No culprit. Two threads of an app that has run for days hold what the other wants, and all that come to either"
    " wait with them. It answers nothing any more, in one of its pods or in two, until somebody restarts them.",
    culprit=False,
    joined=98,
)
async def each_waits_for_the_other(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found it in a thread dump: Found one Java-level deadlock."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "reservations", "reserve-page", "reserve-mails"),
            ("payments", "balance-lock", "account-view", "account-export"),
            ("media", "live-sessions", "live-page", "live-stats"),
            ("search", "index-reader", "finder-page", "finder-warmup"),
        )
    )
    minor, is_probed, others = lab.rng.randrange(2, 40), lab.rng.random() < 0.45, lab.rng.choice((0, 0, 1))
    locked, pause = _Locked(lab, lab.rng.uniform(8, 20)), lab.rng.uniform(10, 18)

    def check(container: Container) -> Problem | None:
        """Its probe is answered by a thread of its own, or by one of those."""
        return Problem("unready", LATE, at_once=True) if is_probed and locked.share(container) >= 1 else None

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="5000"))
    like = App("", asked=lambda: 24.0, check=check, failing=locked.fails, latency=locked.waits)
    like.fails_with = lambda _: "504"
    await lab.app(namespace, name, like=like, replicas=3, tag=f"7.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.3.0", config=other)
    await rolled(lab, namespace, name, f"7.{minor}.0")
    await rolled(lab, namespace, other, "1.3.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name}
    lab.measure("jvm_threads_states_threads", lambda: locked.blocked(like), **told, state="blocked")
    for one in (name, front):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.3.1")
    await lab.pause(lab.rng.uniform(4, 10))
    size = {"data": {"TIMEOUT_MS": lab.rng.choice(("4000", "6000"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(4, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 14))
    lab.start(locked.go_on(like, others=others, pause=pause))


# -- a cache

FOUND = 0.96
"""The share of what is looked for that a cache has once it is warm."""
GIVES_UP = 3.0
"""Seconds after which a query is given up."""


KINDS = (("redis", "7.2.4", "7.4.1"), ("cache", "7.2.8", "8.0.1"))
"""What a cache is called after, its version (of Redis, or of Valkey), and the next one."""


@dataclass
class _Cache:
    """What is in it is gone with its process, and comes again as the database answers what was not found."""

    lab: Lab
    store: App
    asked: float
    stands: float
    """Queries a second that the database stands."""
    warms: float
    """Seconds in which it is warm again where the database answers all."""
    found: float = FOUND
    _started: datetime | None = None

    async def run(self) -> None:
        while True:
            there = [one for one in self.lab.kubelets.running() if one.app is self.store and one.problem is None]
            if there and there[0].started != self._started:
                self.found = 0.0 if self._started else FOUND  # what was there at first has been there for long
                self._started = there[0].started
            if there:
                answered = min(1.0, 1 / max(self.over(), 0.01))
                self.found = min(FOUND, self.found + 0.5 * answered * FOUND / self.warms)
            await asyncio.sleep(0.5)

    def hit(self) -> float:
        """The share that is found: of a cache that is not there, nothing."""
        return self.found if any(one.app is self.store for one in self.lab.kubelets.running()) else 0.0

    def queries(self) -> float:
        return self.asked * (1 - self.hit())

    def over(self) -> float:
        """By how much more is asked of the database than it stands; 1 where that is just as much."""
        return self.queries() / self.stands

    def is_felt(self) -> bool:
        began = self._started
        return began is not None and (now() - began).total_seconds() >= self.lab.lag

    def waits(self, _: Container) -> float:
        return min(GIVES_UP, 1.5 * max(0.0, self.over() - 1)) if self.is_felt() else 0.0

    def given_up(self, _: Container) -> float:
        return min(0.9, 0.5 * max(0.0, 1 - 1 / max(self.over(), 0.01))) if self.is_felt() else 0.0


@family(
    "A cache is upgraded to its next version, restarts for it and is empty: it keeps nothing on a disk. All that it had"
    " is looked for in the database behind it, which does not stand that, and so it is long until the cache is warm.",
    joined=98,
)
async def empty_after_its_upgrade(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had patched a cache at noon, as it is only a cache."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "product-api", "product-view", "product-export"),
            ("payments", "tariff-api", "tariff-page", "tariff-report"),
            ("media", "listing-api", "listing-page", "listing-feed"),
            ("search", "synonym-api", "synonym-page", "synonym-build"),
        )
    )
    by, minor = lab.rng.choice((*TEAMS, "argocd", "flux", "ci")), lab.rng.randrange(2, 40)
    suffix, version, upgraded = lab.rng.choice(KINDS)
    held, db, asked = f"{name}-{suffix}", f"{name}-db", lab.rng.uniform(56, 72)
    store = App("", serves=False)
    cache = _Cache(lab, store, asked, asked * lab.rng.uniform(0.22, 0.4), lab.rng.uniform(30, 45))
    database = App("", serves=False, latency=cache.waits, failing=cache.given_up)
    await lab.app(namespace, db, like=database, kind="StatefulSet", replicas=1, tag="16.4")
    await lab.until(lambda: backends(lab.world, namespace, db))
    await lab.app(namespace, held, like=store, kind="StatefulSet", replicas=1, tag=version, memory="512Mi")
    await rolled(lab, namespace, held, version)
    lab.start(cache.run())
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_TTL="3600"))
    env = [{"name": "CACHE_URL", "value": f"redis://{held}:6379"}]
    like = App("", upstreams=((namespace, db),), asked=lambda: asked)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"3.{minor}.0", config=name, env=env)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, like=App("", upstreams=((namespace, db),)), replicas=2, tag="1.1.0", config=other)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await rolled(lab, namespace, other, "1.1.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, held, db)
    told = {"namespace": namespace, "service": held}
    hits = lab.adding_up(lambda: asked * cache.hit())
    lab.measure("redis_keyspace_hits_total", hits, "counter", **told)
    misses = lab.adding_up(cache.queries)
    lab.measure("redis_keyspace_misses_total", misses, "counter", **told)
    active = lambda: round(min(100.0, 4 + 20 * cache.over()))  # noqa: E731
    lab.measure("pg_stat_activity_count", active, namespace=namespace, service=db, state="active")
    for one in (name, front, other):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.1.1")
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"CACHE_TTL": lab.rng.choice(("2700", "5400"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(4, 9))
    [there] = lab.world["StatefulSet"][namespace, held]["spec"]["template"]["spec"]["containers"]
    container = {**there, "image": f"registry.corp.example/{namespace}/{held}:{upgraded}"}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await lab.culprit(by, "update", "StatefulSet", namespace, held, body)
    lab.start(afterwards())
