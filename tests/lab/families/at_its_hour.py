"""What comes at its hour or from elsewhere: a root that is over, a network's maintenance, a backup each night."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import image_of
from tests.lab.network import backends
from tests.lab.scenario import family


@family(
    "A root certificate of old is over at its hour. What a partner shows has another way to a newer root, which newer"
    " clients take: those with a library of old stop at the first one, and each of their calls to the partner fails.",
    culprit=False,
    joined=21,
)
async def root_expired(lab: Lab) -> AsyncIterator[None]:
    """As users of Nextcloud tell of AddTrust (30 May 2020, nextcloud/desktop 2049), whose browsers went on."""
    host = lab.rng.choice(("api.acquirer.example", "rates.carrier.example", "id.partner.example"))
    places = lab.rng.sample(
        [
            ("payments", "capture"),
            ("shop", "shipping"),
            ("media", "licensing"),
            ("search", "enrichment"),
            ("shop", "tax"),
        ],
        4,
    )
    old, over = places[: lab.rng.choice((1, 2))], asyncio.Event()
    for place in places:
        needs = lab.rng.uniform(0.5, 0.9)  # the share of what it is asked for which it asks the partner

        def failing(_: Container, *, share: float = needs if place in old else 0.0) -> float:
            return share if over.is_set() else 0.0

        like = App("", abroad=(host,), failing=failing, fails_with=lambda _: "502")
        await lab.app(*place, like=like, replicas=3, tag=f"{lab.rng.randrange(1, 9)}.{lab.rng.randrange(20)}.0")
        lab.alert_errors(*place)
    await lab.until(lambda: all(len(backends(lab.world, *place)) == 3 for place in places))
    await publish(lab, *old[0])
    lab.alert_ingress_errors(old[0][0], old[0][0])
    yield
    over.set()


STORE = "sessions.infra.example"
"""Where sessions are kept, over a network that others maintain."""
TRIES_SECONDS, WAITS_SECONDS = 3.0, 1.5
"""For how long whoever connects anew does so in vain, and how long whoever has a dead connection waits each time."""


@family(
    "Those who run a network outside of the cluster maintain it, and connections over it are gone without a word. Most"
    " connect anew. What signs users in has its connection since its start, and waits on it for answers for ever.",
    culprit=False,
    joined=21,
)
async def dead_connections(lab: Lab) -> AsyncIterator[None]:
    """As TOPdesk tells of 9 September 2020."""
    namespace, name, caller, other = lab.rng.choice(
        (
            ("platform", "sign-in", "console", "audit-trail"),
            ("shop", "login", "account", "wishlist"),
            ("media", "identity", "studio", "watchlist"),
        )
    )
    cut: list[datetime] = []

    def age() -> float:
        return (now() - cut[0]).total_seconds() if cut else 0.0

    def is_dead(container: Container) -> bool:
        """Of a process that had its connection before."""
        return bool(cut) and container.seconds > age()

    def reconnecting(_: Container) -> float:
        return 0.4 if cut and age() < TRIES_SECONDS else 0.0

    kept = App(
        "",
        abroad=(STORE,),
        failing=lambda one: 0.85 if is_dead(one) else 0.0,
        fails_with=lambda _: "504",
        latency=lambda one: WAITS_SECONDS if is_dead(one) else 0.0,
    )
    await lab.app(namespace, name, like=kept, replicas=3)
    await lab.app(namespace, other, like=App("", abroad=(STORE,), failing=reconnecting), replicas=2)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
    lab.reserve(namespace, name)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 2)
    await publish(lab, namespace, caller)
    for each in (name, caller, other):
        lab.alert_errors(namespace, each)
    lab.alert_slow(namespace, name, 1.0)
    yield
    cut.append(now())


MINUTE, BEFORE_SECONDS = 60.0, 20.0
"""A CronJob is due on the minute: what is prepared is through so long before one, and the run is due after the next."""
COPIES_SECONDS = 25.0
"""How long a copy takes once nobody holds it up."""


@family(
    "A migration rewrites a large table in one go, which no user sees. The copy of each night comes meanwhile and wants"
    " a lock on all tables for a moment: it waits for the migration, and all who write wait behind it.",
    joined=21,
)
async def migration_overlaps(lab: Lab) -> AsyncIterator[None]:
    """As Be My Eyes tells of 6 June 2024, whose copy was the first of the two."""
    namespace, name, others = lab.rng.choice(
        (
            ("shop", "orders", ("checkout-api", "returns")),
            ("payments", "bookings", ("transfers", "payouts-api")),
            ("media", "calls", ("matching", "volunteers")),
        )
    )
    database, backup, migration = f"{name}-db", f"{name}-db-backup", f"{name}-migrate"
    image = f"registry.corp.example/{namespace}/"
    upstreams = ((namespace, database),)
    writes = dict(zip(others, lab.rng.sample((0.35, 0.45, 0.55, 0.65), 2), strict=True))

    def runs(job: str) -> bool:
        found = (pod for (where, _), pod in lab.world["Pod"].items() if where == namespace)
        return any(pod["status"].get("phase") == "Running" for pod in found if image_of(pod) == f"{image}{job}")

    def is_locked() -> bool:
        return runs(backup) and runs(migration)

    async def copy() -> None:
        """It is done so long after its lock: what it waits for is not a part of that."""
        held = 0.0
        while True:
            await asyncio.sleep(0.5)
            held = held + 0.5 if is_locked() else held
            lab.apps[f"{image}{backup}"].ends_after = COPIES_SECONDS + held

    def job(of: str, seconds: float) -> Json:
        """The template of a pod that is done after a while, told where its database is as its chart does."""
        lab.apps[f"{image}{of}"] = App(f"{image}{of}", ends_after=seconds, upstreams=upstreams, serves=False)
        env = [{"name": "PGHOST", "value": f"{database}.{namespace}"}, {"name": "PGPORT", "value": "5432"}]
        made = objects.deployment(namespace, of, f"{image}{of}:3.8.0", env=env, restartPolicy="Never")
        del made["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
        whole: Json = made["spec"]["template"]
        return {"template": whole, "backoffLimit": 0}

    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    for one, share in writes.items():

        def waits(_: Container, *, share: float = share) -> float:
            return share if is_locked() else 0.0

        like = App(
            "", upstreams=upstreams, failing=waits, fails_with=lambda _: "504", latency=lambda _: is_locked() * 1.2
        )
        await lab.app(namespace, one, like=like, replicas=3)
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one, 0.8)
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in others))
    nightly, once = job(backup, COPIES_SECONDS), job(migration, lab.rng.uniform(95, 110))
    await asyncio.sleep((MINUTE - BEFORE_SECONDS - now().timestamp()) % MINUTE)
    due = (now() + timedelta(minutes=2)).replace(second=0, microsecond=0)
    spec = {
        "schedule": f"{due.minute} {due.hour} * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": nightly},
    }
    await lab.apply({"kind": "CronJob", "metadata": {"namespace": namespace, "name": backup}, "spec": spec})
    last = [due - timedelta(days=1), due - timedelta(days=1) + timedelta(minutes=24)]
    began, done = (f"{stamp(at)[:19]}Z" for at in last)
    status = {"status": {"lastScheduleTime": began, "lastSuccessfulTime": done}}
    await lab.who["admin"].must("PATCH", f"{path('CronJob', namespace, backup)}/status", status)
    lab.start(copy())
    yield
    by, number = lab.rng.choice(("ci", "alice", "bob")), lab.rng.randrange(40, 400)
    meta = {"name": f"{migration}-{number:04}"}
    await lab.culprit(by, "create", "Job", namespace, meta["name"], {"metadata": meta, "spec": once})
