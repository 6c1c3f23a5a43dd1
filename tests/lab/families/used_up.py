"""What is used up while nobody looks: the numbers of transactions, the time that a name is paid for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab.api import now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

STOPS_AT = 2**31 - 3_000_000
"""Of the age of the oldest transaction that is still needed: from here on no further number is given out."""
EACH = 60_000
"""Numbers that go by with a write: one that is seen here stands for very many."""
NIGHT, DAY = 8.0, 34.0
"""Requests a second of whoever writes most, by the time of day."""
WRITES = 0.45
"""The share of what an app is asked that writes."""
KEPT_SECONDS = (2.0, 11.0)
"""For how long who has asked for a name goes by the answer."""


@dataclass
class _Numbers:
    """A database that gives each transaction a number, and frees none, as something of old is never finished."""

    lab: Lab
    asked: float = NIGHT
    age: float = STOPS_AT - 56e6

    @property
    def is_over(self) -> bool:
        return self.age >= STOPS_AT

    async def run(self) -> None:
        while not self.is_over:
            await self.lab.pause(1)
            self.age += EACH * self.asked * WRITES * self.lab.kubelets.rng.uniform(0.8, 1.2)

    def refused(self, _: Container) -> float:
        """Whoever writes is told that the database takes no command that needs a number."""
        return WRITES if self.is_over else 0.0


@family(
    "Somebody has prepared a transaction in a database long ago and never finished it, so that no old numbers of"
    " transactions are freed. With a year's growth the last one is given out: the database still reads, and takes no"
    " write from anybody, just after a harmless release of an app that writes there.",
    culprit=False,
    joined=41,
)
async def last_of_them(lab: Lab) -> AsyncIterator[None]:
    """As told of Sentry (July 2015) and Mandrill (February 2019)."""
    namespace, name, front, beside = lab.rng.choice(
        (
            ("shop", "reviews", "review-page", "ratings"),
            ("media", "comments", "watch-page", "moderation"),
            ("payments", "invoices", "invoice-page", "dunning"),
        )
    )
    database, by = f"{name}-db", lab.rng.choice(("ci", "argocd", "flux"))
    numbers = _Numbers(lab)
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="15.6")
    reaches = ((namespace, database),)
    writer = App("", upstreams=reaches, failing=numbers.refused, asked=lambda: numbers.asked)
    await lab.app(namespace, name, like=writer, replicas=3, tag="9.3.0")
    other = App("", upstreams=reaches, failing=lambda container: numbers.refused(container) and 0.9)
    await lab.app(namespace, beside, like=other, replicas=2, tag="0.24.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.1.1")
    there = (database, name, beside, front)
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in there))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    labels = {"namespace": namespace, "service": database, "datname": name}
    lab.measure("pg_database_wraparound_age_datfrozenxid_seconds", lambda: numbers.age, "gauge", **labels)
    lab.measure("pg_prepared_xacts_count", lambda: 1.0, "gauge", **labels)
    for one in (name, front, beside):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 3)
    lab.start(numbers.run())
    yield
    numbers.asked = DAY
    left = (STOPS_AT - numbers.age) / (EACH * DAY * WRITES)
    await lab.pause(max(4.0, left - lab.rng.uniform(8, 14)))
    await lab.roll(by, namespace, name, "9.4.0")


@dataclass
class _Domain:
    """One outside, of somebody who sells a service; ``gone`` since when it is taken away."""

    gone: float = 0.0

    def unknown(self, needs: float, container: Container) -> float:
        """Of requests that need somebody there, once what its pod was told of the name is too old."""
        if not self.gone:
            return 0.0
        first, last = KEPT_SECONDS
        turn = sum(container.pod["metadata"]["uid"].encode()) % 10 / 10
        since = now().timestamp() - self.gone
        return needs if since > first + turn * (last - first) else 0.0


@family(
    "Somebody who sells a service outside has forgotten to pay for the domain, and its registrar takes it away: as what"
    " was told of its names gets too old, none is found any more, and two teams' apps fail what they need there.",
    culprit=False,
    joined=41,
)
async def gone_overnight(lab: Lab) -> AsyncIterator[None]:
    """As told of several sellers of services whose own domain had run out."""
    domain = lab.rng.choice(("textmail.example", "geolines.example", "scorebox.example"))
    callers = lab.rng.sample(
        (
            ("shop", "order-messages", "order-page", 0.5),
            ("payments", "fraud-check", "pay-page", 0.6),
            ("media", "nearby", "map-page", 0.45),
            ("search", "places", "place-page", 0.55),
        ),
        2,
    )
    outside = _Domain()
    asked = 0.0
    for namespace, name, front, needs in callers:
        host, asks = f"{name.split('-')[0]}.{domain}", lab.rng.uniform(16, 26)
        asked += asks * needs
        like = App("", abroad=(host,), asked=partial(float, asks), failing=partial(outside.unknown, needs))
        like.fails_with = lambda _: "502"
        await lab.app(namespace, name, like=like, replicas=3, tag=f"1.{lab.rng.randrange(3, 30)}.2")
        await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="5.0.0")
    for namespace, name, front, _ in callers:
        await lab.until(partial(_are_up, lab, namespace, name, front))
        await publish(lab, namespace, front)
        lab.reserve(namespace, name)
        for one in (name, front):
            lab.alert_errors(namespace, one)
        lab.alert_ingress_errors(namespace, namespace)
    others = 30.0
    for code, rate in (
        ("NOERROR", lambda: others + asked * (not outside.gone)),
        ("NXDOMAIN", lambda: 2.0 + asked * bool(outside.gone)),
    ):
        labels = {"namespace": "kube-system", "service": "kube-dns", "rcode": code}
        lab.measure("coredns_dns_responses_total", lab.adding_up(rate), "counter", **labels)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    outside.gone = now().timestamp()


def _are_up(lab: Lab, namespace: str, *names: str) -> bool:
    return all(len(backends(lab.world, namespace, one)) >= 2 for one in names)
