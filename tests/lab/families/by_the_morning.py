"""By the morning: a run of the month's end that has too much to do for one night, and one of each night by day."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import Since, stored
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


def _run(lab: Lab, namespace: str, name: str) -> list[Json]:
    """The pods of a batch that are at work."""
    return [one for one in pods(lab.world, namespace, name) if one.get("status", {}).get("phase") == "Running"]


def _cron_job(namespace: str, name: str, image: str, schedule: str, *, parallelism: int, args: list[str]) -> Json:
    """At its time by UTC, one run at once."""
    made = objects.deployment(namespace, name, image, restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = args
    job = {"parallelism": parallelism, "template": made["spec"]["template"], "backoffLimit": 1}
    spec = {
        "schedule": schedule,
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": job},
    }
    return {"kind": "CronJob", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


# -- the month's end

EACH_DOES = 11.0
"""Items that a pod of the run does in a second."""


@dataclass
class _Batch:
    """What is to be done in one night, and by when."""

    lab: Lab
    namespace: str
    name: str
    left: float
    done: list[int] = field(default_factory=lambda: [0])
    due: float = float("inf")

    def rate(self) -> float:
        return EACH_DOES * len(_run(self.lab, self.namespace, self.name)) if self.left else 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.left = max(0.0, self.left - self.rate() / 2)

    def is_late(self) -> bool:
        return self.left > 0 and now().timestamp() > self.due


@family(
    "No culprit. The run at the end of the month has more to do than in any month before, as there are more customers"
    " and each has more. It does as much in an hour as ever, and at the hour by which all must be done it is not.",
    culprit=False,
    joined=96,
)
async def not_done_by_morning(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked at a bar of progress at six in the morning."""
    namespace, name, front, other, what = lab.rng.choice(
        (
            ("shop", "seller-payouts", "seller-view", "seller-mails", "payouts"),
            ("payments", "month-end-interest", "balance-view", "balance-export", "accounts"),
            ("media", "royalty-statements", "artist-page", "artist-feed", "statements"),
            ("search", "ad-invoices", "advertiser-page", "advertiser-sync", "invoices"),
        )
    )
    minor, workers, db = lab.rng.randrange(2, 40), lab.rng.choice((1, 2, 3)), f"{what}-db"
    api, image = f"{what}-api", f"registry.corp.example/{namespace}/{name}"
    batch = _Batch(lab, namespace, name, workers * EACH_DOES * lab.rng.uniform(300, 420))
    lab.apps[image] = App(image, upstreams=((namespace, db),), ends_after=900, serves=False)
    await stored(lab, namespace, db)
    await lab.apply(objects.config_map(namespace, api, LOG_LEVEL="info", PAGE_LIMIT="200"))
    like = App("", upstreams=((namespace, db),), asked=lambda: 14.0)
    await lab.app(namespace, api, like=like, replicas=2, tag=f"3.{minor}.0", config=api)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.2.0", config=other)
    await rolled(lab, namespace, api, f"3.{minor}.0")
    await rolled(lab, namespace, other, "1.2.0")
    await set_before(lab, namespace, front, api)
    began = now() + timedelta(seconds=75)
    schedule = f"{began.minute} {began.hour} {began.day} * *"
    args = [f"--what={what}", "--period=last-month"]
    await lab.apply(_cron_job(namespace, name, f"{image}:2.9.1", schedule, parallelism=workers, args=args))
    lab.reserve(namespace, name, db)
    await lab.until(lambda: len(_run(lab, namespace, name)) == workers, seconds=120)
    lab.start(batch.run())
    told = {"namespace": namespace, "service": name}
    lab.measure("batch_items_remaining", lambda: round(batch.left), **told)
    lab.measure("batch_items_done_total", lab.adding_up(batch.rate), "counter", **told)
    summary = f"{namespace}/{name} must be done by now, and {what} are left"
    lab.alert("BatchNotDoneInTime", batch.is_late, summary, 3, namespace=namespace, job=name)
    lab.alert_slow(namespace, api)
    lab.alert_errors(namespace, api)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, api, f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 12))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "90s"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    batch.due = now().timestamp() + lab.rng.uniform(6, 20)


# -- each night's, by day

RUNS_SECONDS, COLD_SECONDS = 80.0, 9.0
"""For how long the run goes on, and until nothing that others look for is in the database's memory any more."""


@family(
    "What goes through a whole database each night is moved into the day, as the machines are idle then, or as somebody"
    " wants its figures by noon. The database reads it from its disk, and is slow for everybody who needs it by day.",
    joined=96,
)
async def moved_into_the_day(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose page was slow from half past ten until noon."""
    home, db, front, batch, *readers = lab.rng.choice(
        (
            ("shop", "customers-db", "profile-view", "dedup", ("shop", "profile-api"), ("media", "member-api")),
            ("payments", "bookings-db", "booking-view", "sums", ("payments", "booking-api"), ("shop", "paid-orders")),
            ("media", "library-db", "shelf-page", "scan", ("media", "shelf-api"), ("search", "title-api")),
            ("search", "documents-db", "answer-page", "index", ("search", "snippet-api"), ("shop", "help-search")),
        )
    )
    by, waits, ahead = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.uniform(0.9, 2.0), lab.rng.uniform(14, 48)
    name, image = f"nightly-{batch}", f"registry.corp.example/{home}/nightly-{batch}"
    to, is_busy = ((home, db),), Since(lab, lambda: bool(_run(lab, home, name)))

    def latency(_: Container) -> float:
        return 0.004 + (waits * min(1.0, (now().timestamp() - is_busy.since) / COLD_SECONDS) if is_busy() else 0.0)

    def gives_up(_: Container) -> float:
        """What takes longer than a statement may."""
        return 0.02 * waits * bool(is_busy())

    lab.apps[image] = App(image, ends_after=RUNS_SECONDS, upstreams=to, serves=False)
    store = App("", serves=False, latency=latency, failing=gives_up)
    await lab.app(home, db, like=store, kind="StatefulSet", replicas=1, tag="16.4")
    await lab.until(lambda: backends(lab.world, home, db))
    for where, one in readers:
        await lab.apply(objects.config_map(where, one, LOG_LEVEL="info", POOL_SIZE="20"))
        like = App("", upstreams=to, asked=lambda: 14.0)
        await lab.app(where, one, like=like, replicas=2, tag="3.4.0", config=one)
        await rolled(lab, where, one, "3.4.0")
        lab.reserve(where, one)
    await set_before(lab, home, front, readers[0][1])
    night = now() + timedelta(hours=lab.rng.randrange(8, 14))
    schedule = f"{lab.rng.randrange(5, 55)} {night.hour} * * *"
    args = ["--full", f"--database={db}"]
    await lab.apply(_cron_job(home, name, f"{image}:1.4.6", schedule, parallelism=1, args=args))
    lab.reserve(home, name, db)
    blocks = lab.adding_up(lambda: 41000.0 if is_busy() else 280.0)
    lab.measure("pg_stat_database_blks_read_total", blocks, "counter", namespace=home, service=db)
    for where, one in (*readers, (home, front)):
        lab.alert_slow(where, one)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        where, one = readers[1]
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", where, one, {"data": {"POOL_SIZE": "25"}})
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, home, front)

    yield
    where, one = readers[0]
    await lab.roll(lab.rng.choice(("ci", "argocd")), where, one, "3.4.1")
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.pause((60 - ahead - now().timestamp()) % 60)
    due = now() + timedelta(seconds=ahead + 2)  # in the minute that comes next
    schedule = f"{due.minute} {due.hour} * * {lab.rng.choice(('*', '*', '0-6'))}"
    await lab.culprit(by, "update", "CronJob", home, name, {"spec": {"schedule": schedule}})
    lab.start(afterwards())
