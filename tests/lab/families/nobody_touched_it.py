"""Nobody touched it: a table that a query is planned otherwise for, and a store of objects in the cloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.api import now
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.scenario import family

# -- a plan

ASKED, GIVES_UP_SECONDS = 22.0, 5.0
"""Requests a second to the app, and for how long a statement may take."""
INDEXED_SECONDS, STANDS = 0.012, 30.0
"""What its query takes by an index, and seconds of reading that the database does in a second before it is late."""


@dataclass
class _Table:
    """It grows as on each day; from so many rows on the database takes it for cheaper to read most of them."""

    lab: Lab
    rows: float
    a_second: float
    share: float
    """Of the app's requests, that look for something there."""
    scan_seconds: float
    """What the query takes that reads the table from end to end, on an idle database."""
    most: float
    """The share of what is looked for, by its values, for which it plans so in the end."""
    grows_by: float
    since: float = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.rows += self.a_second / 2 * self.lab.kubelets.rng.uniform(0.7, 1.3)

    def seconds(self) -> float:
        return max(0.0, now().timestamp() - self.since - self.lab.lag) if self.since else 0.0

    def scanned(self) -> float:
        """The share of the queries that read all of it: first for customers who have much, then for most."""
        return min(self.most, self.most * self.seconds() / self.grows_by) if self.since else 0.0

    def scans(self) -> float:
        """A second."""
        return ASKED * self.share * self.scanned()

    def crowded(self) -> float:
        """How many times as long all takes, as the processors and the disk are busy."""
        return 1 + min(4.0, self.scans() * self.scan_seconds / STANDS * 4)

    def takes(self) -> float:
        """Seconds, of a query that reads all of it."""
        return self.scan_seconds * self.crowded()

    def waits(self, _: Container) -> float:
        slow = self.scanned() * min(GIVES_UP_SECONDS, self.takes())
        return self.share * (slow + (1 - self.scanned()) * INDEXED_SECONDS * self.crowded())

    def fails(self, _: Container) -> float:
        return self.share * self.scanned() * max(0.0, 1 - GIVES_UP_SECONDS / self.takes())

    def waits_of_others(self, _: Container) -> float:
        return 0.02 * self.crowded()

    def active(self) -> float:
        return float(round(2 + self.scans() * min(GIVES_UP_SECONDS, self.takes())))


@family(
    "No culprit. A table has grown for years, and today it has so many rows that the database plans a query of its app"
    " in another way, and reads most of the table in place of some pages: what took milliseconds takes seconds.",
    culprit=False,
    joined=100,
)
async def past_a_number_of_rows(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked for the release for two hours, and then had the query explained."""
    namespace, name, front, other, relation = lab.rng.choice(
        (
            ("shop", "purchase-history", "purchases-page", "purchases-feed", "purchase_items"),
            ("payments", "statement-lines", "statements-view", "statements-run", "bookings"),
            ("media", "play-counts", "charts-page", "charts-export", "plays"),
            ("search", "click-log-api", "trends-page", "trends-job", "clicks"),
        )
    )
    minor, db = lab.rng.randrange(2, 40), f"{name}-db"
    table = _Table(
        lab,
        rows=lab.rng.uniform(3e7, 2.4e8),
        a_second=lab.rng.uniform(300, 2000),
        share=lab.rng.uniform(0.5, 0.8),
        scan_seconds=lab.rng.uniform(1.6, 3.2),
        most=lab.rng.uniform(0.6, 0.95),
        grows_by=lab.rng.choice((1.0, 6.0, 15.0)),
    )
    await stored(lab, namespace, db)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_LIMIT="100"))
    like = App("", upstreams=((namespace, db),), asked=lambda: ASKED, latency=table.waits, failing=table.fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"7.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    beside = App("", upstreams=((namespace, db),), asked=lambda: 7.0, latency=table.waits_of_others)
    await lab.app(namespace, other, like=beside, replicas=2, tag="2.1.0", config=other)
    await rolled(lab, namespace, name, f"7.{minor}.0")
    await rolled(lab, namespace, other, "2.1.0")
    await set_before(lab, namespace, front, name)
    lab.start(table.run())
    told = {"namespace": namespace, "service": db}
    lab.measure("pg_stat_user_tables_n_live_tup", lambda: round(table.rows), **told, relname=relation)
    lab.measure("pg_stat_user_tables_seq_scan", lab.adding_up(table.scans), **told, relname=relation)
    lab.measure("pg_stat_activity_count", table.active, **told, state="active")
    for one in (name, front):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"7.{minor}.1")
    else:
        size = {"data": {"PAGE_LIMIT": lab.rng.choice(("80", "120"))}}
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(8, 15))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "2.1.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 9))
    table.since = now().timestamp()


# -- a store of objects

READS, WRITES = 24.0, 12.0
"""Requests a second to the app that shows what is stored, and to the one that stores it."""
PATIENCE_SECONDS = 3.0


@dataclass
class _Store:
    """Of objects, in the cloud: from its hour on more and more of what it is asked fails, or takes long."""

    lab: Lab
    cached: float
    """The share of what is shown that is at hand without it."""
    writes: float
    """The share of the other app's requests that store something."""
    worst: float
    is_slow: bool
    lost: float = 0.0
    since: float = 0.0

    def felt(self) -> float:
        return self.lost if self.since and now().timestamp() - self.since >= self.lab.lag else 0.0

    def unread(self, _: Container) -> float:
        """What fails is asked once more, before somebody is told of it."""
        return (1 - self.cached) * self.felt() ** 2

    def unwritten(self, _: Container) -> float:
        return self.writes * self.felt()

    def waits(self, share: float) -> float:
        return share * self.felt() * PATIENCE_SECONDS if self.is_slow else 0.0

    def answered(self, calls: float, *, well: bool) -> float:
        """Of so many calls a second."""
        return calls * (1 - self.felt() if well else self.felt())

    async def fall(self) -> None:
        """The cloud's page of its status is green for a while yet."""
        self.since, rng = now().timestamp(), self.lab.kubelets.rng
        while self.lost < self.worst:
            self.lost = min(self.worst, self.lost + rng.uniform(0.03, 0.12))
            await asyncio.sleep(1)


@family(
    "No culprit. The cloud's object storage has an incident: much of what it is asked is answered with 503, or late."
    " What is uploaded is not stored, and pictures that are not at hand elsewhere are not shown.",
    culprit=False,
    joined=100,
)
async def pictures_and_uploads(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read of it elsewhere before the cloud said so."""
    namespace, reads, writes, front, other = lab.rng.choice(
        (
            ("shop", "product-images", "review-photos", "photos-page", "photo-mails"),
            ("payments", "receipt-scans", "scan-intake", "scans-page", "scan-archive"),
            ("media", "cover-art", "clip-intake", "covers-page", "clip-stats"),
            ("search", "page-previews", "crawl-intake", "previews-view", "crawl-report"),
        )
    )
    region, minor = lab.rng.choice(("eu-central-1", "eu-west-1", "us-east-1")), lab.rng.randrange(2, 40)
    host, bucket = f"s3.{region}.cloud.example", f"corp-{namespace}-objects"
    store = _Store(
        lab,
        cached=lab.rng.uniform(0.3, 0.6),
        writes=lab.rng.uniform(0.4, 0.8),
        worst=lab.rng.uniform(0.5, 0.95),
        is_slow=lab.rng.random() < 0.5,
    )
    status = lab.rng.choice(("500", "502", "503"))
    shows = App("", abroad=(host,), asked=lambda: READS, failing=store.unread, fails_with=lambda _: status)
    shows.latency = lambda _: store.waits(1 - store.cached)
    takes = App("", abroad=(host,), asked=lambda: WRITES, failing=store.unwritten, fails_with=lambda _: status)
    takes.latency = lambda _: store.waits(store.writes)
    for name, like in ((reads, shows), (writes, takes)):
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BUCKET=bucket, PARTS="4"))
        await lab.app(namespace, name, like=like, replicas=3, tag=f"3.{minor}.0", config=name)
        await rolled(lab, namespace, name, f"3.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.4.4", config=other)
    await rolled(lab, namespace, other, "1.4.4")
    await set_before(lab, namespace, front, reads)
    lab.reserve(namespace, writes)
    for name, calls in ((reads, READS * (1 - store.cached)), (writes, WRITES * store.writes)):
        told = {"namespace": namespace, "service": name, "host": host}
        for well in (True, False):
            made, code = lab.adding_up(partial(store.answered, calls, well=well)), "200" if well else "503"
            lab.measure("http_client_requests_total", made, "counter", **told, code=code)
    for name in (reads, writes, front):
        lab.alert_errors(namespace, name)
        lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, reads, {"data": {"PARTS": "6"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, writes, f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 13))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.4.5")
    else:
        await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 9))
    lab.start(store.fall())
