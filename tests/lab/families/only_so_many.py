"""What there are only so many of: seats of a licence that several apps share, shards that a search engine opens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

LICENCES = ("platform", "licence-server")
SEATS, EACH_TAKES, NEEDED = 24, 2, 8
"""Seats of the licence, how many each process of the one app has for as long as it runs, how many the other uses."""
SETTLED_SECONDS = 2.0
"""After its start a process asks for its seats."""


@dataclass
class _Licence:
    """Who runs keeps its seats; who has one only for a piece of work takes what is left."""

    lab: Lab
    keeper: tuple[str, str]

    @property
    def kept(self) -> int:
        image = f"registry.corp.example/{'/'.join(self.keeper)}"
        there = (one.container.seconds for one in self.lab.kubelets.running() if one.app.image == image)
        return min(SEATS, EACH_TAKES * sum(seconds > SETTLED_SECONDS + self.lab.lag for seconds in there))

    def denied(self, _: Container | None = None) -> float:
        """The share of the other app's work for which there is no seat."""
        return max(0.0, 1 - (SEATS - self.kept) / NEEDED)

    def used(self) -> float:
        return float(min(SEATS, self.kept + NEEDED))


@family(
    "Two apps share the seats of one licence. The first, each process of which has seats for as long as it runs, is"
    " scaled up as its work is to be through sooner: the other, which takes a seat for each piece of work, finds none"
    " for most of it.",
    joined=63,
)
async def seats_taken(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose optimiser says that the number of uses of its token server is exceeded."""
    namespace, keeper, home, name, front = lab.rng.choice(
        (
            ("media", "render-farm", "shop", "product-preview", "preview-page"),
            ("search", "tuning-solver", "shop", "route-planner", "delivery-page"),
            ("media", "schedule-solver", "payments", "cash-planner", "treasury-page"),
        )
    )
    by, minor = lab.rng.choice(("alice", "bob", "carol")), lab.rng.randrange(3, 30)
    licence = _Licence(lab, (namespace, keeper))
    await lab.app(*LICENCES, like=App("", serves=False), replicas=1, tag="11.19.4")
    await lab.app(namespace, keeper, like=App("", upstreams=(LICENCES,), serves=False), replicas=4, tag="3.7.0")
    like = App("", upstreams=(LICENCES,), asked=lambda: 14.0, failing=licence.denied, fails_with=lambda _: "503")
    await lab.app(home, name, like=like, replicas=3, tag=f"2.{minor}.0")
    await lab.app(home, front, like=App("", upstreams=((home, name),)), replicas=2, tag="5.1.3")
    await rolled(lab, home, name, f"2.{minor}.0")
    await rolled(lab, namespace, keeper, "3.7.0")
    await lab.until(lambda: backends(lab.world, home, front))
    await publish(lab, home, front)
    lab.reserve(home, name)
    told = {"namespace": LICENCES[0], "service": LICENCES[1], "feature": "solver"}
    lab.measure("licence_seats_used", licence.used, **told)
    lab.measure("licence_seats_issued", lambda: float(SEATS), **told)
    lab.measure("licence_denials_total", lab.adding_up(lambda: 14 * licence.denied()), "counter", **told)
    lab.alert_errors(home, name)
    lab.alert_errors(home, front)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll("ci", home, name, f"2.{minor}.1")
    await rolled(lab, home, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(3, 9))
    body = {"spec": {"replicas": lab.rng.choice((11, 12))}}
    await lab.culprit(by, "update", "Deployment", namespace, keeper, body)


OPEN_SHARDS, EACH_INDEX = 3000, 2
"""What three members of a search engine open at most, and how many shards an index has."""


@family(
    "Each customer has an index for each day, which is made with the day's first entry. There are more customers than"
    " ever: one night the search engine has as many shards open as it may, those who come later get no index, and what"
    " they write is refused.",
    culprit=False,
    joined=63,
)
async def shards_at_limit(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose next daily index would add two shards to the most that a cluster has open."""
    namespace, name, front = lab.rng.choice(
        (
            ("search", "entry-writer", "entries-api"),
            ("shop", "activity-writer", "activity-api"),
            ("payments", "audit-writer", "audit-api"),
        )
    )
    store = f"{name.removesuffix('-writer')}-store"
    shards, with_index, without = [float(lab.rng.randrange(2540, 2600))], [0], [0]

    def refused(_: Container) -> float:
        """Of what is written, by customers who are there today; until the day begins all have their index."""
        return without[0] / max(1, with_index[0] + without[0])

    async def begin_day(customers: int) -> None:
        """Those whose first entry comes, each of whom gets an index as long as there may be one more."""
        while with_index[0] + without[0] < customers:
            for _ in range(lab.rng.randrange(8, 20)):
                if shards[0] + EACH_INDEX <= OPEN_SHARDS:
                    shards[0] += EACH_INDEX
                    with_index[0] += 1
                else:
                    without[0] += 1
            await asyncio.sleep(1)

    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=3, tag="8.17.2")
    like = App("", upstreams=((namespace, store),), asked=lambda: 26.0, failing=refused)
    await lab.app(namespace, name, like=like, replicas=3, tag="4.2.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="7.0.5")
    await rolled(lab, namespace, name, "4.2.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, store)
    told = {"namespace": "monitoring", "service": "elasticsearch-exporter", "cluster": store}
    lab.measure("elasticsearch_cluster_health_active_shards", lambda: shards[0], **told)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    lab.start(begin_day(lab.rng.randrange(300, 360)))
