"""Incidents without a culprit among the changes: pages that take long to make."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

REPLICAS, WORKERS = 4, 6
"""Servers of pages, and how many of these each of them makes at the same time."""
PAGE_SECONDS, COSTLY_SECONDS, WAIT_SECONDS = 0.06, 3.0, 5.0
"""How long a worker is busy with a page, and with one of those that are a lot of work; how long others wait for one."""


@family(
    "Addresses of a few networks ask again and again for those pages that are a lot of work to make: there are hardly"
    " more requests than on any day, but the workers are all busy with them, and everybody else waits in vain.",
    culprit=False,
    joined=21,
)
async def costly_pages(lab: Lab) -> AsyncIterator[None]:
    """As the Open Build Service tells of 8 July 2026 (obs-landing 574)."""
    namespace, name, caller = lab.rng.choice(
        (("media", "sources", "builds"), ("search", "comparisons", "digests"), ("shop", "order-reports", "invoices"))
    )
    users, most, costly = lab.rng.uniform(60, 80), lab.rng.uniform(13, 18), [lab.rng.uniform(0.4, 0.8)]

    def workers() -> int:
        return WORKERS * max(1, len(backends(lab.world, namespace, name)))

    def wanted() -> float:
        """Workers that would be busy if there were enough of them."""
        return users * PAGE_SECONDS + costly[0] * COSTLY_SECONDS

    def refused(_: Container) -> float:
        return max(0.0, 1 - workers() / wanted())

    def waits(_: Container) -> float:
        """A worker's time for each, and a queue that grows as fewer workers are free."""
        own = wanted() / (users + costly[0]) - 0.02
        free = max(0.0, 1 - wanted() / workers())
        return own + min(WAIT_SECONDS, 0.01 / max(free, 0.001))

    async def ask() -> None:
        """More and more of those addresses."""
        while costly[0] < most:
            costly[0] = min(most, costly[0] + lab.kubelets.rng.uniform(0.4, 0.9))
            await asyncio.sleep(0.5)

    asked = lambda: users + costly[0]  # noqa: E731
    like = App("", asked=asked, failing=refused, fails_with=lambda _: "503", latency=waits)
    await lab.app(namespace, name, like=like, replicas=REPLICAS)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
    busy = lambda: min(wanted(), float(workers()))  # noqa: E731
    lab.measure("http_workers_busy", busy, namespace=namespace, service=name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == REPLICAS)
    await publish(lab, namespace, name)
    lab.reserve(namespace, caller)
    for one in (name, caller):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name, 1.0)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    lab.start(ask())
