"""What all share is one server: a cache that does one thing at a time, a database that opens connections."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

FIELD_SECONDS = 0.35e-6
"""That a field of a hash takes where the whole of it is read; nothing else is done meanwhile."""
FIELDS, FULL_FIELDS, FIELD_BYTES = 180_000.0, 1_010_000.0, 54
READS = 2.6
"""How often a second the whole of it is read."""
GIVEN_UP = 1.0
"""Seconds after which a client gives a call of the cache up."""
OPENED, KEPT = 48.0, 60
"""How many connections a second a database opens and does nothing else, and how many a pool keeps."""
MORNING, AFTERNOON = 16.0, 88.0
"""Requests a second of the app whose release it is."""
OLD, NEW = "8.14.2", "8.15.0"


@family(
    "All that one customer's machines do is kept as fields of one key of a cache, and today they do more than ever."
    " Reading the whole of it takes longer and longer, and the cache answers nobody meanwhile: whoever shares it is"
    " late.",
    culprit=False,
    joined=32,
)
async def big_key(lab: Lab) -> AsyncIterator[None]:
    """As told of ten incidents of Redis, the first (yiteai.com, chapter 43)."""
    namespace, front, others = lab.rng.choice(
        (
            ("shop", "account", ("coupons", "baskets")),
            ("media", "home", ("watchlist", "progress")),
            ("search", "start-page", ("recent", "trends")),
        )
    )
    cache, fields = f"{namespace}-redis", [FIELDS]

    def reading() -> float:
        return fields[0] * FIELD_SECONDS

    def waits() -> float:
        """In the mean, of a call that comes at any time: the queue in front of one who does one thing at a time."""
        busy = min(0.93, READS * reading())
        return busy * reading() / (2 * (1 - busy))

    def late(_: Container) -> float:
        """The share of calls that wait for longer than their client does."""
        return math.exp(-GIVEN_UP / max(0.01, waits()))

    async def grow(share: float, up_to: float) -> None:
        while fields[0] < up_to:
            await asyncio.sleep(1)
            fields[0] *= 1 + share * lab.kubelets.rng.uniform(0.6, 1.4)

    upstreams = ((namespace, cache),)
    like = App("", serves=False, latency=lambda _: waits())
    await lab.app(namespace, cache, like=like, kind="StatefulSet", replicas=1, tag="7.2")
    for one in (front, *others):
        await lab.app(namespace, one, like=App("", upstreams=upstreams, failing=late), replicas=3, tag="4.6.1")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in (front, *others)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, *others)
    lab.measure("redis_memory_used_bytes", lambda: 6e8 + fields[0] * FIELD_BYTES, namespace=namespace, service=cache)
    lab.measure("redis_last_slow_execution_duration_seconds", reading, namespace=namespace, service=cache)
    for one in (front, *others):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.start(grow(0.003, 1.2 * FIELDS))
    team, touched = lab.rng.choice(("ci", "bob")), lab.rng.choice(others)
    await lab.until(lab.is_well)
    yield
    lab.start(grow(lab.rng.uniform(0.05, 0.065), FULL_FIELDS))
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(team, namespace, touched, "4.6.2")


@family(
    "A release of one app opens a connection to the database for each request and no longer keeps any. In the morning"
    " nobody sees it; as users come in the afternoon the database is busy with opening connections, and all apps that"
    " share it wait for it or are refused.",
    joined=32,
)
async def connection_churn(lab: Lab) -> AsyncIterator[None]:
    """As Proton tells of 9 January 2025, whose new connections rose sharply (bleepingcomputer.com)."""
    namespace, name, others = lab.rng.choice(
        (
            ("payments", "accounts", ("statements", "limits")),
            ("media", "library", ("subtitles", "collections")),
            ("shop", "addresses", ("vouchers", "order-history")),
        )
    )
    database, users = f"{namespace}-mysql", [MORNING]

    def opened() -> float:
        """New connections a second: of the requests that get to a process of that release."""
        ready = [pod for pod in pods(lab.world, namespace, name) if is_ready(pod)]
        of_new = sum(images(pod)[0].endswith(f":{NEW}") for pod in ready)
        return users[0] * of_new / max(1, len(ready)) + 0.4

    def refused(_: Container) -> float:
        """The share that gets none in time."""
        return max(0.0, 1 - OPENED / opened())

    def waits(_: Container) -> float:
        return 0.02 / max(0.02, 1 - opened() / OPENED)

    async def come(up_to: float) -> None:
        while users[0] < up_to:
            await asyncio.sleep(1)
            users[0] *= lab.rng.uniform(1.08, 1.2)

    upstreams = ((namespace, database),)
    like = App("", serves=False, failing=refused, latency=waits)
    await lab.app(namespace, database, like=like, kind="StatefulSet", replicas=1, tag="8.0.36")
    like = App("", upstreams=upstreams, asked=lambda: users[0])
    await lab.app(namespace, name, like=like, replicas=4, tag=OLD)
    for one, share in zip(others, (0.5, 0.3), strict=True):
        asked = lambda share=share: 6 + share * users[0]  # noqa: E731
        await lab.app(namespace, one, like=App("", upstreams=upstreams, asked=asked), replicas=3, tag="5.1.0")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) >= 3 for one in (name, *others)))
    await publish(lab, namespace, others[0])
    lab.reserve(namespace, name, *others)
    connected = lambda: KEPT + opened() * 1.5  # noqa: E731
    lab.measure("mysql_global_status_threads_connected", connected, namespace=namespace, service=database)
    for one in (name, *others):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    by = lab.rng.choice(("ci", "argocd", "flux"))
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, NEW, culprit=True)
    await rolled(lab, namespace, name, NEW)
    await lab.pause(lab.rng.uniform(5, 9))
    lab.start(come(AFTERNOON))
