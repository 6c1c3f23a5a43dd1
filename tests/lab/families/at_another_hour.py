"""What was done at night, and is done by day now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import now
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import Since
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

RUNS_SECONDS, SOON_SECONDS = 70.0, 30.0
"""For how long the run goes on, and how many seconds before it is due its schedule is changed."""


@family(
    "A run that goes through the whole database at night is to be done by day, so that somebody is there if it fails,"
    " or each hour, so that its figures are fresh. While it runs whatever users ask of that database waits.",
    joined=89,
)
async def run_by_day(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose database was slow at five past two, each day since Tuesday."""
    namespace, job, names, front, db = lab.rng.choice(
        (
            ("shop", "margin-report", ("price-api", "offer-api"), "offer-page", "prices-db"),
            ("payments", "balance-check", ("account-api", "limits-api"), "account-page", "accounts-db"),
            ("media", "royalty-sums", ("track-api", "album-api"), "album-page", "tracks-db"),
            ("search", "link-ranks", ("link-api", "site-api"), "site-page", "links-db"),
        )
    )
    by, is_hourly, waits = lab.rng.choice((*TEAMS, "flux")), lab.rng.random() < 0.4, lab.rng.uniform(1.0, 1.9)
    image = f"registry.corp.example/{namespace}/{job}"

    def runs() -> bool:
        return any(one.get("status", {}).get("phase") == "Running" for one in pods(lab.world, namespace, job))

    is_busy = Since(lab, runs)

    def latency(_: Container) -> float:
        """What others look for is in memory no more, and the disk has much to read."""
        return 0.004 + (waits * min(1.0, (now().timestamp() - is_busy.since) / 8) if is_busy() else 0.0)

    to = ((namespace, db),)
    lab.apps[image] = App(image, ends_after=RUNS_SECONDS, upstreams=to, serves=False)
    await lab.app(
        namespace, db, like=App("", serves=False, latency=latency), kind="StatefulSet", replicas=1, tag="16.4"
    )
    await lab.until(lambda: backends(lab.world, namespace, db))
    for name in names:
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
        await lab.app(
            namespace, name, like=App("", upstreams=to, asked=lambda: 15.0), replicas=2, tag="4.1.0", config=name
        )
        await rolled(lab, namespace, name, "4.1.0")
    await set_before(lab, namespace, front, names[0])
    made = objects.deployment(namespace, job, f"{image}:1.8.2", restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = ["--from=all", "--database", db]
    night = (now() + timedelta(hours=lab.rng.randrange(8, 14))).hour
    spec = {
        "schedule": f"{lab.rng.randrange(5, 55)} {night} * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": made["spec"]["template"], "backoffLimit": 1}},
    }
    await lab.apply({"kind": "CronJob", "metadata": {"namespace": namespace, "name": job}, "spec": spec})
    told = {"namespace": namespace, "service": db}
    blocks = lab.adding_up(lambda: 38000.0 if is_busy() else 320.0)
    lab.measure("pg_stat_database_blks_read_total", blocks, "counter", **told)
    for name in (*names, front):
        lab.alert_slow(namespace, name)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, names[0], {"data": {"LOG_LEVEL": "warn"}})
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, names[1], "4.1.1")
    await lab.pause((60 - SOON_SECONDS - now().timestamp()) % 60)
    due = now() + timedelta(minutes=1)
    schedule = f"{due.minute} * * * *" if is_hourly else f"{due.minute} {due.hour} * * *"
    await lab.culprit(by, "update", "CronJob", namespace, job, {"spec": {"schedule": schedule}})
    lab.start(afterwards())
