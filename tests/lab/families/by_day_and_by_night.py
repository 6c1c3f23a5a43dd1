"""By day and by night: a run that comes among the customers, and one for which the night is too short by now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import Since, stored
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


def _running(lab: Lab, namespace: str, name: str) -> int:
    """How many pods of a run are at work."""
    return sum(one.get("status", {}).get("phase") == "Running" for one in pods(lab.world, namespace, name))


def _work(namespace: str, name: str, image: str, *args: str, memory: str = "256Mi", **job: object) -> Json:
    """What a CronJob makes of each run."""
    made = objects.deployment(namespace, name, image, config=name, memory=memory, restartPolicy="Never")
    template = made["spec"]["template"]
    [container] = template["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = list(args)
    return {"spec": {"template": template, "backoffLimit": 0, **job}}


async def _scheduled(lab: Lab, namespace: str, name: str, schedule: str, work: Json) -> None:
    """Raises RefusedError."""
    times = {"schedule": schedule, "timeZone": "Etc/UTC", "concurrencyPolicy": "Forbid"}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "CronJob", "metadata": meta, "spec": {**times, "jobTemplate": work}})


# -- by day

MANY, SOON_SECONDS, AT_NIGHT = 8, 24.0, 3
"""Pods of a large run, how many seconds before the next one it is changed, and an hour at which people sleep."""
ZONES = (
    "Pacific/Honolulu",
    "America/Los_Angeles",
    "America/Chicago",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Dubai",
    "Asia/Bangkok",
    "Asia/Tokyo",
    "Pacific/Auckland",
)


def _zone(at: datetime) -> str:
    """In which it is night at a time."""
    return min(ZONES, key=lambda one: abs(at.astimezone(ZoneInfo(one)).hour - AT_NIGHT))


@family(
    "A run that makes reports gets the time zone of the head office, where it is night while most customers are awake;"
    " or one that has always been small, and so has run through the day, is split among many pods to be done sooner."
    " It reads all that the database of the customers has, and whatever they ask waits.",
    joined=105,
)
async def report_in_the_day(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose database was slow at three in the night, of another continent."""
    namespace, job, names, front, db = lab.rng.choice(
        (
            ("shop", "returns-report", ("order-history", "order-status"), "orders-page", "orders-db"),
            ("payments", "fraud-report", ("card-history", "card-limits"), "cards-page", "cards-db"),
            ("media", "views-report", ("watch-history", "watch-list"), "watched-page", "views-db"),
            ("search", "terms-report", ("query-history", "saved-queries"), "saved-page", "queries-db"),
        )
    )
    is_split, minor, waits = lab.rng.random() < 0.5, lab.rng.randrange(2, 30), lab.rng.uniform(1.3, 2.2)
    by, image = lab.rng.choice((*TEAMS, "ci", "flux")), f"registry.corp.example/{namespace}/{job}"
    at_work = partial(_running, lab, namespace, job)
    is_busy = Since(lab, lambda: at_work() > 2)

    def latency(_: Container) -> float:
        """What customers ask for is in memory no more."""
        return 0.004 + (waits * min(1.0, at_work() / MANY) if is_busy() else 0.0)

    lab.apps[image] = App(image, ends_after=50.0, upstreams=((namespace, db),), serves=False)
    store = App("", serves=False, latency=latency)
    await lab.app(namespace, db, like=store, kind="StatefulSet", replicas=1, tag="17.2")
    await lab.until(lambda: backends(lab.world, namespace, db))
    lab.reserve(namespace, db)
    for name in names:
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
        like = App("", upstreams=((namespace, db),), asked=lambda: 16.0)
        await lab.app(namespace, name, like=like, replicas=2, tag=f"3.{minor}.0", config=name)
        await rolled(lab, namespace, name, f"3.{minor}.0")
    await set_before(lab, namespace, front, names[0])
    await lab.apply(objects.config_map(namespace, job, LOG_LEVEL="info", BATCH_SIZE="5000"))
    own, parts = f"{image}:1.{minor}.2", {"parallelism": MANY, "completions": MANY}
    work = _work(namespace, job, own, "--since=30d", "--database", db)
    work["spec"] |= {} if is_split else parts
    here = now().astimezone(ZoneInfo(_zone(now())))
    schedule = "* * * * *" if is_split else f"{lab.rng.randrange(5, 55)} {here.hour} * * *"
    await _scheduled(lab, namespace, job, schedule, work)
    blocks = lab.adding_up(lambda: 300.0 + 5200.0 * at_work())
    lab.measure("pg_stat_database_blks_read_total", blocks, "counter", namespace=namespace, service=db)
    for name in (*names, front):
        lab.alert_slow(namespace, name)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, names[0], {"data": {"LOG_LEVEL": "warn"}})
        await lab.pause(lab.rng.uniform(6, 12))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, names[1], f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, names[1], {"data": {"POOL_SIZE": "25"}})
    await lab.pause((60 - SOON_SECONDS - now().timestamp()) % 60)
    if is_split:
        await lab.culprit(by, "update", "CronJob", namespace, job, {"spec": {"jobTemplate": {"spec": parts}}})
    else:
        zone = _zone(now())
        due = (now() + timedelta(minutes=1)).astimezone(ZoneInfo(zone))
        moved = {"schedule": f"{due.minute} {due.hour} * * *", "timeZone": zone}
        await lab.culprit(by, "update", "CronJob", namespace, job, {"spec": moved})
    lab.start(afterwards())


# -- by night

IN_TIME, NEEDED, LIMIT = 30, 46.0, 512
"""The seconds that a run may take, those that it would need by now, and the memory that it may have, in MiB."""
LEAD_SECONDS = 200


@family(
    "No culprit. What a report reads each night has grown for a year, and the report with it. Last night it just came"
    " to its end. Tonight it does not: the time that a run may take is over, or the memory that it may have is full,"
    " and in the morning there is no report.",
    culprit=False,
    joined=105,
)
async def longer_than_its_night(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked for what had been changed, and it was two rows more each minute."""
    namespace, job, name, front, db = lab.rng.choice(
        (
            ("shop", "sales-report", "sales-api", "sales-page", "sales-db"),
            ("payments", "settlement-report", "settlement-api", "settlement-page", "settlement-db"),
            ("media", "royalty-report", "royalty-api", "royalty-page", "royalty-db"),
            ("search", "ranking-report", "ranking-api", "ranking-page", "ranking-db"),
        )
    )
    by_memory, minor, rows = lab.rng.random() < 0.5, lab.rng.randrange(2, 40), lab.rng.uniform(6.1e7, 9.4e7)
    image, full = f"registry.corp.example/{namespace}/{job}", lab.rng.uniform(14, 22)

    def used() -> float | None:
        """By the run of this night, in bytes: it may keep what it has read until its end."""
        there = [one.container.seconds for one in lab.kubelets.running() if one.app is run]
        if not there:
            return None
        return 2**20 * (max(there) / full * LIMIT if by_memory else 90 + 2 * max(there))

    def check(container: Container) -> Problem | None:
        is_full = by_memory and container.seconds >= full
        return Problem("oom", f"needs more than {LIMIT}Mi", at_once=True) if is_full else None

    def has_failed() -> bool:
        return any(
            one["type"] == "Failed" and one["status"] == "True"
            for (where, called), found in lab.world["Job"].items()
            for one in found.get("status", {}).get("conditions", ())
            if where == namespace and called.startswith(job)
        )

    to = ((namespace, db),)
    run = lab.apps[image] = App(image, ends_after=NEEDED, upstreams=to, serves=False, check=check)
    await stored(lab, namespace, db)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
    await lab.app(
        namespace, name, like=App("", upstreams=to, asked=lambda: 15.0), replicas=2, tag=f"2.{minor}.0", config=name
    )
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await set_before(lab, namespace, front, name)
    await lab.apply(objects.config_map(namespace, job, LOG_LEVEL="info", FORMAT="xlsx"))
    due = (now() + timedelta(seconds=LEAD_SECONDS)).replace(second=0, microsecond=0)
    args, last = ("--from=beginning", "--database", db), due - timedelta(days=1)
    limits = {"activeDeadlineSeconds": IN_TIME} if not by_memory else {}
    work = _work(namespace, job, f"{image}:1.{minor}.4", *args, memory=f"{LIMIT}Mi", **limits)
    await _scheduled(lab, namespace, job, f"{due.minute} {due.hour} * * *", work)
    took = timedelta(seconds=IN_TIME - lab.rng.uniform(0.4, 1.5))
    status = {"lastScheduleTime": f"{stamp(last)[:19]}Z", "lastSuccessfulTime": f"{stamp(last + took)[:19]}Z"}
    await lab.who["admin"].must("PATCH", f"{path('CronJob', namespace, job)}/status", {"status": status})
    began, told = now(), {"namespace": namespace, "service": db}
    there = lambda: rows + 2 * (now() - began).total_seconds()  # noqa: E731
    lab.measure("pg_stat_user_tables_n_live_tup", there, **told, relname=f"{namespace}_events")
    read = lab.adding_up(lambda: rows / NEEDED / 100 if _running(lab, namespace, job) else 0.0)
    lab.measure("report_pages_read_total", read, "counter", namespace=namespace, service=job)
    lab.measure("container_memory_working_set_bytes", used, namespace=namespace, service=job, container=job)
    lab.alert("KubeJobFailed", has_failed, f"a run of {namespace}/{job} has failed", 3, namespace=namespace)
    lab.alert_slow(namespace, name)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)

    yield
    left = (due - now()).total_seconds()
    await lab.pause(max(0.0, left - lab.rng.uniform(30, 45)))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 9))
    level = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, job, level)
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    await lab.pause(max(0.0, (due - now()).total_seconds()))
