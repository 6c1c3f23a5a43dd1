"""Incidents without a culprit among the changes: a service of the cloud fails, a partner lets everybody wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from tests.lab import objects
from tests.lab.api import Json, Key, now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import app_of, image_of, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

LASTS, EARLY = 45.0, 6.0
"""Seconds for which credentials of the cloud are good, and how long before their end new ones are asked for."""
TOKENS, BUCKET = "sts.eu-1.cloud.example", "objects.eu-1.cloud.example"


@dataclass
class _Tokens:
    """The cloud's service that gives out credentials for a role: it answers nothing but 503 from a time on."""

    lab: Lab
    down_since: float | None = None

    def _got(self, container: Container) -> float | None:
        """When a process was given those that it has: each has its turn, as they were started on different days."""
        started = now().timestamp() - container.seconds
        until = self.down_since or now().timestamp()
        if started >= until:
            return None
        every = LASTS - EARLY
        turn = crc32(uid_of(container.pod).encode()) % int(every)
        return max(started, until - (until - started + turn) % every)

    def lacks(self, container: Container) -> bool:
        """Whether a process has none that are good."""
        got = self._got(container)
        return got is None or now().timestamp() - got >= LASTS

    def _those(self, place: Key) -> Iterator[Container]:
        found = (one.container for one in self.lab.kubelets.running())
        return (one for one in found if app_of(image_of(one.pod)) == place)

    def refused(self, place: Key) -> float:
        """How often a second an app's processes ask in vain: each that is due, each second."""
        if self.down_since is None:
            return 0.0
        got = [self._got(one) for one in self._those(place)]
        return float(sum(one is None or now().timestamp() - one >= LASTS - EARLY for one in got))

    def given(self, place: Key) -> float:
        return 0.0 if self.down_since else len(list(self._those(place))) / (LASTS - EARLY)


@family(
    "The cloud's service that gives out credentials for a role fails in one region. What runs goes on with those that"
    " it has, which are good for an hour: one process after another cannot renew its own and is refused by the store"
    " of objects, and a process that has just been started never had any.",
    culprit=False,
    joined=62,
)
async def hour_credentials(lab: Lab) -> AsyncIterator[None]:
    """As AWS tells of the seventh of December 2021, by those who use its roles for ServiceAccounts."""
    first, second = lab.rng.choice(
        (
            (("media", "originals"), ("payments", "receipts")),
            (("shop", "product-photos"), ("search", "index-archive")),
            (("payments", "statements-archive"), ("media", "subtitles")),
        )
    )
    by, number = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(3, 30)
    tokens, share = _Tokens(lab), lab.rng.uniform(0.55, 0.8)  # of requests, for which an object is read or written
    old, new = f"1.{number}.2", f"1.{number}.3"
    for namespace, name in (first, second):
        account = objects.account(namespace, name)
        account["metadata"]["annotations"] = {"iam.cloud.example/role": f"arn:role/{namespace}-{name}"}
        await lab.apply(account)
        like = App("", abroad=(BUCKET, TOKENS), asked=lambda: 26.0)
        like.failing = lambda one: share if tokens.lacks(one) else 0.0
        await lab.app(namespace, name, like=like, replicas=4, tag=old, account=name)
        await rolled(lab, namespace, name, old)
        told: Json = {"namespace": namespace, "service": name, "host": TOKENS, "operation": "AssumeRoleWithWebIdentity"}
        for status, count in (("200", tokens.given), ("503", tokens.refused)):
            rate = lab.adding_up(partial(count, (namespace, name)))
            lab.measure("cloud_sdk_requests_total", rate, "counter", **told, status=status)
        lab.reserve(namespace, name)
        lab.alert_errors(namespace, name, 0.08)
    await publish(lab, *first)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, *first, new)
    await rolled(lab, *first, new)
    await lab.pause(lab.rng.uniform(2, 6))
    tokens.down_since = now().timestamp()


POOL = 40.0
"""Connections of a pooler to its database, which all apps of a team share."""
IN_DATABASE, AT_PARTNER = 0.03, 0.25
"""Seconds that a transaction takes in the database, and the partner's answer, as ever."""
WAITS_SECONDS = 3.0
"""For how long a client of the pooler waits for a connection before it gives up."""


@dataclass
class _Pooler:
    """One app asks a partner within its transaction and keeps the connection meanwhile; the other asks nobody."""

    asks: float
    """Transactions a second with a call outside."""
    others: float
    """And without."""
    answer: float = AT_PARTNER
    """Seconds in which the partner answers."""

    def needed(self) -> float:
        """How many connections would be in use, were there enough."""
        return self.asks * (IN_DATABASE + self.answer) + self.others * IN_DATABASE

    def denied(self) -> float:
        """The share of transactions for which no connection comes free in time."""
        return max(0.0, 1 - POOL / self.needed())

    def waits(self) -> float:
        """Seconds for which a transaction waits for its connection, in the mean."""
        return WAITS_SECONDS * self.denied()

    def answered(self) -> float:
        """How many calls the partner answers in a second."""
        return self.asks * (1 - self.denied())

    def waited(self) -> float:
        """For how many seconds all of those have waited for it."""
        return self.answered() * self.answer

    async def slow_down(self, most: float) -> None:
        while self.answer < most:
            self.answer = min(most, self.answer * 1.4)
            await asyncio.sleep(1)


@family(
    "An app asks a partner outside within the transaction in which it writes down what the answer was, and a client's"
    " time limit of old is half a minute. One afternoon the partner takes seconds: all connections of the pooler that a"
    " team's apps share are held by transactions that wait for it, and an app that asks nobody outside gets none.",
    culprit=False,
    joined=62,
)
async def open_transaction(lab: Lab) -> AsyncIterator[None]:
    """As told of outages of third parties which become those of all who share a pool with their callers."""
    namespace, asks, other, host = lab.rng.choice(
        (
            ("payments", "payouts", "balances", "api.bankhub.example"),
            ("shop", "returns", "wishlists", "api.parcelhub.example"),
            ("media", "licences", "bookmarks", "api.rightsdesk.example"),
        )
    )
    team = lab.rng.choice(("alice", "bob", "carol"))
    pooler, database = "pgbouncer", f"{namespace}-db"
    calls = _Pooler(asks=lab.rng.uniform(12, 15), others=lab.rng.uniform(26, 34))
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.6")
    await lab.apply(objects.config_map(namespace, pooler, POOL_MODE="transaction", DEFAULT_POOL_SIZE=f"{POOL:.0f}"))
    like = App("", serves=False, upstreams=((namespace, database),))
    await lab.app(namespace, pooler, like=like, replicas=1, tag="1.23.1", config=pooler)
    await lab.until(lambda: backends(lab.world, namespace, pooler))
    like = App("", upstreams=((namespace, pooler),), abroad=(host,), asked=lambda: calls.asks)
    like.failing, like.fails_with = (lambda _: calls.denied()), (lambda _: "503")
    like.latency = lambda _: calls.waits() + calls.answer * (1 - calls.denied())
    await lab.apply(objects.config_map(namespace, asks, LOG_LEVEL="info", PARTNER_TIMEOUT_MS="30000"))
    await lab.app(namespace, asks, like=like, replicas=3, tag="3.8.0", config=asks)
    like = App("", upstreams=((namespace, pooler),), asked=lambda: calls.others)
    like.failing, like.fails_with, like.latency = (
        (lambda _: calls.denied()),
        (lambda _: "503"),
        (lambda _: calls.waits()),
    )
    await lab.app(namespace, other, like=like, replicas=3, tag="5.1.4")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in (asks, other)))
    await publish(lab, namespace, other)
    lab.reserve(namespace, asks, pooler)
    told: Json = {"namespace": namespace, "service": pooler, "database": namespace}
    active = lambda: min(POOL, calls.needed())  # noqa: E731
    lab.measure("pgbouncer_pools_server_active_connections", active, **told)
    waiting = lambda: (calls.asks + calls.others) * calls.waits()  # noqa: E731
    lab.measure("pgbouncer_pools_client_waiting_connections", waiting, **told)
    of_client: Json = {"namespace": namespace, "service": asks, "client_name": host}
    lab.measure("http_client_requests_total", lab.adding_up(calls.answered), "counter", **of_client)
    lab.measure("http_client_request_seconds_total", lab.adding_up(calls.waited), "counter", **of_client)
    lab.alert_errors(namespace, other)
    lab.alert_errors(namespace, asks)
    lab.alert_slow(namespace, other)
    await lab.until(lab.is_well)
    yield
    await lab.edit(team, "ConfigMap", namespace, asks, {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}})
    await lab.pause(lab.rng.uniform(5, 10))
    lab.start(calls.slow_down(lab.rng.uniform(5.0, 7.0)))
