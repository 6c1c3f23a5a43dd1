"""From one minute on: a provider of payments outside that is down, and a table whose numbers are all used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.scenario import family

# -- payments

ASKED, PAYS = 20.0, 0.5
"""Requests a second to what takes payments, and the share for which the provider is called."""
PATIENCE_SECONDS, FAST_SECONDS = 4.0, 0.05
"""How long a call is waited for that nobody answers, and one that is refused."""


@dataclass
class _Payments:
    """The provider outside: which share of calls it fails, and whether those are answered at all."""

    lab: Lab
    is_answered: bool
    is_gradual: bool
    down: float = 0.0
    _felt: Lately = field(init=False)

    def __post_init__(self) -> None:
        self._felt = Lately(self.lab, lambda: self.down > 0)

    def lost(self) -> float:
        return self.down if self._felt() else 0.0

    def fails(self, _: Container) -> float:
        return PAYS * self.lost()

    def waits(self, _: Container) -> float:
        return PAYS * self.lost() * (FAST_SECONDS if self.is_answered else PATIENCE_SECONDS)

    def paid(self, result: str) -> float:
        """How many payments a second end so."""
        return ASKED * PAYS * (1 - self.lost() if result == "success" else self.lost())

    async def fall(self) -> None:
        """By and by, as its own machines go one after the other, or at once."""
        rng = self.lab.kubelets.rng
        while self.is_gradual and self.down < 0.9:
            self.down = min(1.0, self.down + rng.uniform(0.05, 0.2))
            await asyncio.sleep(1.5)
        self.down = 1.0


@family(
    "No culprit. The payment provider outside is down: its API answers with 503, or with nothing at all. Whoever wants"
    " to pay is told to try again later, and hardly any order is placed.",
    culprit=False,
    joined=96,
)
async def no_card_is_taken(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read of it on the provider's own page, twenty minutes later."""
    namespace, name, front, other, host = lab.rng.choice(
        (
            ("shop", "order-payments", "pay-step", "order-mails", "api.payprovider.example"),
            ("payments", "card-charges", "charge-page", "charge-reports", "gateway.acquirer.example"),
            ("media", "plan-billing", "upgrade-page", "plan-mails", "api.subscriptions.example"),
            ("payments", "wallet-topup", "topup-page", "topup-export", "checkout.wallets.example"),
        )
    )
    minor, is_answered, is_gradual = lab.rng.randrange(2, 40), lab.rng.random() < 0.5, lab.rng.random() < 0.4
    provider = _Payments(lab, is_answered, is_gradual)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="4000"))
    like = App("", abroad=(host,), asked=lambda: ASKED, failing=provider.fails, latency=provider.waits)
    like.fails_with = lambda _: "502" if is_answered else "504"
    await lab.app(namespace, name, like=like, replicas=3, tag=f"5.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.6.3", config=other)
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await rolled(lab, namespace, other, "1.6.3")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name}
    for result in ("success", "error"):
        counted = lab.adding_up(partial(provider.paid, result))
        lab.measure("payment_attempts_total", counted, "counter", **told, provider=host, result=result)
    fewer = lambda: provider.paid("success") < 0.5 * ASKED * PAYS  # noqa: E731
    lab.alert("PaymentsBelowUsual", fewer, f"{namespace}/{name} takes less than half of the usual payments", 8, **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.6.4")
    await lab.pause(lab.rng.uniform(4, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"5.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 12))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 12))
    lab.start(provider.fall())


# -- numbers

MOST = 2**31 - 1
"""The last number that a column of 32 bits takes."""


@dataclass
class _Numbers:
    """The key of a table, whose next one is given by the database."""

    lab: Lab
    inserts: float
    left: float = MOST
    _over: Lately = field(init=False)

    def __post_init__(self) -> None:
        self._over = Lately(self.lab, lambda: self.left <= 0)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.left = max(0.0, self.left - self.inserts / 2)

    def last(self) -> float:
        return MOST - round(self.left)

    def are_over(self) -> bool:
        return self._over()


DATABASES = (
    ("postgres", "16.4", "pg_sequences_last_value", "2200H"),
    ("mysql", "8.4.2", "mysql_info_schema_auto_increment_column", "HY000"),
)
"""What a database is called after, its version, what its exporter has of the last number, and with which state it
refuses a row once there is none: *nextval: reached maximum value of sequence*, or *Failed to read auto-increment
value from storage engine*."""


@family(
    "No culprit. The key of a table is a number of 32 bits, and has been counted up for years. Today the last one is"
    " given away: no row is inserted any more, and all that is there is read as ever.",
    culprit=False,
    joined=96,
)
async def no_number_left(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had two thousand million of something, and had never thought of it."""
    namespace, name, front, other, table = lab.rng.choice(
        (
            ("shop", "order-lines", "order-view", "order-totals", "order_lines"),
            ("payments", "ledger-entries", "entries-page", "entries-export", "entries"),
            ("media", "play-events", "player-view", "play-charts", "plays"),
            ("search", "query-log", "suggest-page", "query-trends", "queries"),
        )
    )
    minor, share, rate = lab.rng.randrange(2, 40), lab.rng.uniform(0.25, 0.6), lab.rng.uniform(18, 24)
    kind, version, series, state = lab.rng.choice(DATABASES)
    db, numbers = f"{name}-{kind}", _Numbers(lab, share * rate)

    def fails(_: Container) -> float:
        return share if numbers.are_over() else 0.0

    await lab.app(namespace, db, like=App("", serves=False), kind="StatefulSet", replicas=1, tag=version)
    await rolled(lab, namespace, db, version)
    lab.reserve(namespace, db)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="50"))
    like = App("", upstreams=((namespace, db),), asked=lambda: rate, failing=fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"8.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, like=App("", upstreams=((namespace, db),)), replicas=2, tag="2.2.7", config=other)
    await rolled(lab, namespace, name, f"8.{minor}.0")
    await rolled(lab, namespace, other, "2.2.7")
    await set_before(lab, namespace, front, name)
    lab.measure(series, numbers.last, namespace=namespace, service=db, table=table, column="id")
    refused = lab.adding_up(lambda: rate * share * numbers.are_over())
    told = {"namespace": namespace, "service": name, "sqlstate": state}
    lab.measure("db_statement_errors_total", refused, "counter", **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    numbers.left = numbers.inserts * lab.rng.uniform(82, 98)  # some time after it begins
    lab.start(numbers.run())
    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "40"}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"8.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
