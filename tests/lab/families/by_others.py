"""What others do, whom nobody here can ask: a partner that sends again, one that ends a version of its API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from tests.lab import objects
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

USUAL, SILENCE, BACKLOG = 6.0, 0.4, 55.0
"""Notices a second of a provider: as ever, while it delivers hardly any, and as it delivers what has waited."""
WRITES, STANDS = 3.0, 70.0
"""Statements that a notice costs, and how many a second a database stands."""
OWN = 18.0
"""Statements a second of whoever else writes there."""
FORMER, TAKEN_BACK, NEXT = "2.11.3", "2.11.4", "2.12.0"
NEEDS_RATES = 0.4
"""The share of an app's requests for which it asks a partner."""


@family(
    "A provider outside has not delivered its notices for hours, which nobody saw, and delivers all of them at once."
    " What takes them writes each down in a database that it shares; the database does not stand it, and each notice"
    " that is not taken is sent again.",
    culprit=False,
    joined=39,
)
async def notices_redelivered(lab: Lab) -> AsyncIterator[None]:
    """Of providers of payments: a notice that was not taken with 2xx is sent again, for days."""
    namespace, taker, name, front = lab.rng.choice(
        (
            ("payments", "payment-notices", "orders", "order-page"),
            ("shop", "parcel-events", "shipments", "tracking-page"),
            ("media", "upload-notices", "assets", "library-page"),
        )
    )
    database, rate, failing = f"{name}-db", [USUAL], [0.0]

    async def deliver() -> None:
        """Until it is through, which takes longer than anybody looks."""
        rate[0] = SILENCE
        await lab.pause(lab.rng.uniform(16, 26))
        while True:
            rate[0] = BACKLOG * (1 + failing[0])
            await lab.pause(1)

    def overloaded(_: Container) -> float:
        """The share of its statements that wait for too long."""
        failing[0] = max(0.0, 1 - STANDS / (OWN + WRITES * rate[0]))
        return failing[0]

    await lab.app(namespace, database, like=App("", serves=False, failing=overloaded), kind="StatefulSet", replicas=1)
    above = ((namespace, database),)
    await lab.app(namespace, taker, like=App("", upstreams=above, asked=lambda: rate[0]), replicas=2, tag="1.3.0")
    await lab.app(namespace, name, like=App("", upstreams=above), replicas=3, tag=FORMER)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.4.0")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (database, taker, name, front)))
    await publish(lab, namespace, front)
    host = f"hooks.{namespace}.corp.example"
    paths = [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": taker, "port": {"number": 80}}}}]
    spec = {"ingressClassName": "nginx", "rules": [{"host": host, "http": {"paths": paths}}]}
    await lab.apply({"kind": "Ingress", "metadata": {"namespace": namespace, "name": taker}, "spec": spec})
    for one in (taker, name):
        lab.reserve(namespace, one)
    statements = lab.adding_up(lambda: OWN + WRITES * rate[0])
    lab.measure("pg_stat_statements_calls_total", statements, "counter", namespace=namespace, service=database)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 3)
    yield
    lab.start(deliver())


@family(
    "A carrier outside ends the first version of its API on the day that it told of a year ago, in a mail to somebody"
    " who has left: each call of it is answered with 410. Weeks ago it had tried that for a few minutes, when a release"
    " of just then was taken back and found to be well.",
    culprit=False,
    joined=39,
)
async def version_sunset(lab: Lab) -> AsyncIterator[None]:
    """Of how public APIs end a version: it is off for some minutes now and then before it is for good."""
    namespace, name, front, host = lab.rng.choice(
        (
            ("shop", "delivery-options", "basket-page", "api.parcels.example"),
            ("payments", "exchange", "price-page", "api.rates.example"),
            ("media", "places", "map-page", "api.maps.example"),
        )
    )
    by, then_by = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.choice(("alice", "ci"))
    gone = [False]
    asked = 14.0
    calls = {
        code: lab.adding_up(partial(lambda code: asked * NEEDS_RATES * (gone[0] is (code == "410")), code))
        for code in ("200", "410")
    }

    def unanswered(container: Container) -> float:
        return NEEDS_RATES if gone[0] and container.seconds >= lab.lag else 0.0

    like = App("", abroad=(host,), asked=lambda: asked, failing=unanswered, fails_with=lambda _: "502")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="0"))
    await lab.app(namespace, name, like=like, replicas=3, tag=FORMER, config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.0.9")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for code, counted in calls.items():
        labels = {"host": host, "code": code}
        lab.measure("http_client_requests_total", counted, "counter", namespace=namespace, service=name, **labels)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(16, 25)) as then:
        await lab.pause(2)
        answer = await lab.roll(then_by, namespace, name, TAKEN_BACK)
        await rolled(lab, namespace, name, TAKEN_BACK)
        await lab.pause(lab.rng.uniform(2, 5))
        gone[0] = True
        await then.fires()
        await lab.roll(then_by, namespace, name, FORMER)
        await lab.pause(6)
        gone[0] = False
        await then.is_well()
        then.judge(answer, "not it")
    await rolled(lab, namespace, name, FORMER)
    await lab.until(lab.is_well)

    async def end() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.roll(by, namespace, name, NEXT)
        await lab.pause(lab.rng.uniform(9, 20))
        gone[0] = True

    yield
    lab.start(end())
