"""Once for each: all pods are listed from each node, and a database is asked for each row of a list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx2

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.collapses import LONG_TEMPLATE_BYTES, LOW_FACTOR, UNCACHED, cluster
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready, uid_of
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, lagging
from tests.lab.scenario import family

# -- each node

LISTS_EVERY, AT_ONCE = 1.0, 10
"""Seconds, and how many lists a node asks for in each: six nodes stand for some dozens."""


@dataclass
class _Agents:
    """On each node one, which has to know all pods: it watches them, or lists them at each of its rounds."""

    old: str

    async def run(self, process: Process) -> None:
        if process.tag == self.old:
            await informer(f"{path('Pod')}?fieldSelector=spec.nodeName={process.see().pod['spec']['nodeName']}")(
                process
            )
        await lagging(process)
        await both(*(every(LISTS_EVERY, self._list) for _ in range(AT_ONCE)))(process)

    async def _list(self, process: Process) -> None:
        """What comes is read, and next to all of it thrown away."""
        api = process.api
        try:
            async with api.client.stream("GET", path("Pod"), headers=api.headers, timeout=30) as answer:
                api.counts[answer.status_code] += 1
                async for piece in answer.aiter_raw():
                    api.received += len(piece)
        except httpx2.TransportError:
            api.counts[0] += 1


@family(
    "An agent that runs on every node gets a new version. The old one had a watch on the pods of its own node; the new"
    " one lists all pods of the cluster at each of its rounds, from each node and past the cache. As it is rolled out,"
    " the API server has more and more to answer, and is killed for its memory.",
    flags=UNCACHED,
    joined=102,
)
async def listed_from_each_node(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found LIST pods at the top of their audit log, by the number of their nodes."""
    home, name, old, new = lab.rng.choice(
        (
            ("monitoring", "cost-agent", "1.14.2", "1.15.0"),
            ("platform", "runtime-scanner", "0.38.1", "0.40.0"),
            ("monitoring", "trace-agent", "7.52.1", "7.54.0"),
        )
    )
    by, minor = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(41, 60)
    rights = ("", "pods", "get,list,watch")
    await lab.controller(home, name, _Agents(old).run, rights, kind="DaemonSet", tag=old)
    await cluster(lab, LONG_TEMPLATE_BYTES, LOW_FACTOR)
    await lab.until(lambda: len([one for one in pods(lab.world, home, name) if is_ready(one)]) > 5)
    places = lab.rng.sample((("search", "query"), ("media", "uploads"), ("payments", "ledger"), ("shop", "catalog")), 2)
    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", *places[0], {"data": {"TIMEOUT_MS": "750"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), *places[1], f"1.{minor}.0")
    await lab.pause(lab.rng.uniform(5, 11))
    [there] = lab.world["DaemonSet"][home, name]["spec"]["template"]["spec"]["containers"]
    image = there["image"].rsplit(":", 1)[0]
    body = {"spec": {"template": {"spec": {"containers": [{**there, "image": f"{image}:{new}"}]}}}}
    await lab.culprit(by, "update", "DaemonSet", home, name, body)
    await lab.pause(lab.rng.uniform(1, 2))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", *places[1], {"data": {"LOG_LEVEL": "warn"}})


# -- each row

ASKED, POOL, GIVES_UP_SECONDS = 20.0, 30, 5.0
"""Requests a second to the app, connections of all its pods, and for how long a request waits for one."""


@dataclass
class _Lists:
    """An app that shows lists of a database: a version reads one by one what belongs to each of their rows."""

    lab: Lab
    namespace: str
    name: str
    new: str
    rows: float
    share: float
    """Of its requests, that show a list."""
    each_seconds: float
    """What one further query takes, on an idle database."""
    since: dict[str, float] = field(default_factory=dict)

    def _asks_each(self, container: Container) -> bool:
        return container.tag == self.new and container.seconds >= self.lab.lag

    def part(self) -> float:
        """Of the app's pods, those that ask so by now."""
        at, there = now().timestamp(), backends(self.lab.world, self.namespace, self.name)
        asking = [uid_of(one) for one in there if images(one)[0].endswith(f":{self.new}")]
        begun = [uid for uid in asking if at - self.since.setdefault(uid, at) >= self.lab.lag]
        return len(begun) / max(1, len(there))

    def queries(self) -> float:
        """A second, of the app."""
        lists = ASKED * self.share
        return ASKED + lists * self.rows * self.part()

    def crowded(self) -> float:
        """How many times as long all takes, as connections are held and the database has more to do."""
        held = ASKED * self.share * self.part() * self.rows * self.each_seconds
        return 1 + min(3.0, 2 * held / POOL)

    def waits(self, container: Container) -> float:
        crowd = self.crowded() - 1
        if not self._asks_each(container):
            return 0.02 * crowd
        return self.share * min(GIVES_UP_SECONDS, self.rows * self.each_seconds * (1 + crowd))

    def fails(self, container: Container) -> float:
        """Lists that are not there in time."""
        takes = self.rows * self.each_seconds * self.crowded()
        return self.share * max(0.0, 1 - GIVES_UP_SECONDS / takes) if self._asks_each(container) else 0.0

    def waits_of_others(self, _: Container) -> float:
        return 0.05 * (self.crowded() - 1)


@family(
    "A new version of an app reads what belongs to the rows of a list by a query for each of them, where it was one for"
    " all before. With the ten rows of a test nobody sees it. Customers have a hundred: each list takes seconds, and"
    " the database is asked many times as often.",
    joined=102,
)
async def a_query_for_each_row(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose framework loads lazily what a template asks for."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "order-lists", "my-orders-page", "order-digest"),
            ("payments", "invoice-lists", "invoices-page", "invoice-export"),
            ("media", "watchlist-api", "watchlist-page", "watchlist-mails"),
            ("search", "saved-lists", "saved-page", "saved-digest"),
        )
    )
    minor, db, by = lab.rng.randrange(2, 40), f"{name}-db", lab.rng.choice(("ci", "argocd", "flux"))
    old, new = f"4.{minor}.3", f"4.{minor + 1}.0"
    lists = _Lists(
        lab,
        namespace,
        name,
        new,
        rows=float(lab.rng.randrange(80, 200)),
        share=lab.rng.uniform(0.5, 0.8),
        each_seconds=lab.rng.uniform(0.012, 0.022),
    )
    await stored(lab, namespace, db)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_ROWS="200"))
    like = App("", upstreams=((namespace, db),), asked=lambda: ASKED, latency=lists.waits, failing=lists.fails)
    like.fails_with = lambda _: "504"
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    beside = App("", upstreams=((namespace, db),), asked=lambda: 7.0, latency=lists.waits_of_others)
    await lab.app(namespace, other, like=beside, replicas=2, tag="1.8.0", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.8.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": db}
    lab.measure("pg_stat_statements_calls_total", lab.adding_up(lists.queries), "counter", **told, datname=namespace)
    held = lambda: float(round(2 + min(POOL, (lists.queries() - ASKED) * lists.each_seconds)))  # noqa: E731
    lab.measure("pg_stat_activity_count", held, **told, state="active")
    for one in (name, front):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.8.1")
    await lab.pause(lab.rng.uniform(5, 10))
    rows = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, rows)
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())
