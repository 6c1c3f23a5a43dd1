"""An incident without a culprit among the changes: what was written at the same time is over at the same time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

STANDS, MORNING, CAMPAIGN = 75.0, 22.0, (240.0, 320.0)
"""Queries a second that the database stands, and requests a second as on any morning and as on this one."""
HELD, LONG_TAIL = 0.96, 900.0
"""The share of requests that a full cache answers, and of how many pages a cache that is empty knows none."""
GIVE_UP_SECONDS = 1.4


@dataclass
class _Cache:
    """It is filled at night, and what was written then is over all at once; what is found since stays."""

    lab: Lab
    asked: float = MORNING
    held: float = HELD

    def queries(self) -> float:
        """What the database is asked: each request that is not in the cache asks by itself."""
        return self.asked * (1 - self.held)

    def beyond(self, _: Container) -> float:
        """The share of the queries that are given up."""
        return max(0.0, 1 - STANDS / self.queries())

    def failing(self, container: Container) -> float:
        return (1 - self.held) * self.beyond(container)

    async def fill(self) -> None:
        """Only what the database has answered in time is written."""
        while True:
            answered = min(STANDS, self.queries())
            # the database goes on with what is given up: most of its work is for nothing then
            useful = answered if self.queries() <= STANDS else answered * STANDS / self.queries() / 4
            self.held = min(HELD, self.held + useful / LONG_TAIL)
            await self.lab.pause(1)


@family(
    "A cache is filled at night with all pages, which are good for the same time and so are over at the same minute of"
    " the morning: on any day hardly anybody is there. Today a campaign's mails go out at that minute, each request"
    " asks the database by itself, and what is given up there is never written to the cache. The app had a release"
    " just before.",
    culprit=False,
    joined=50,
)
async def same_lifetime(lab: Lab) -> AsyncIterator[None]:
    """As one tells of a stampede on the morning of a sale, with a lifetime of seven hours (ai-reliability-copilot)."""
    namespace, name, cache, store = lab.rng.choice(
        (
            ("shop", "product-pages", "pages-cache", "products-db"),
            ("media", "show-pages", "shows-cache", "shows-db"),
            ("search", "listing-pages", "listings-cache", "listings-db"),
        )
    )
    team, number = lab.rng.choice(("ci", "argocd", "bob")), lab.rng.randrange(10, 60)
    pages = _Cache(lab)
    late = lambda container: GIVE_UP_SECONDS * (1 - pages.held) if pages.beyond(container) else 0.0  # noqa: E731
    for one, tag in ((cache, "7.4.2"), (store, "16.9")):
        await lab.app(namespace, one, like=App("", serves=False), kind="StatefulSet", replicas=1, tag=tag)
    data = {"LOG_LEVEL": "info", "CACHE_TTL_HOURS": "7", "WARM_UP_SCHEDULE": "0 2 * * *"}
    await lab.apply(objects.config_map(namespace, name, **data))
    like = App("", upstreams=((namespace, cache), (namespace, store)), asked=lambda: pages.asked)
    like.failing, like.fails_with, like.latency = pages.failing, (lambda _: "503"), late
    like.capacity = CAMPAIGN[1]
    await lab.app(namespace, name, like=like, replicas=4, tag=f"11.{number}.0", config=name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name)
    lab.measure("page_cache_hit_ratio", lambda: pages.held, namespace=namespace, service=name)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(pages.fill())
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, namespace, name, f"11.{number}.1")
    await rolled(lab, namespace, name, f"11.{number}.1")
    await lab.pause(lab.rng.uniform(3, 9))
    pages.held = 0.0
    pages.asked = lab.rng.uniform(*CAMPAIGN)
