"""What is too much for a database: more pods with a pool of connections each, a lock on a large table."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import Since, stored
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.scenario import family

RESERVED = 3
"""Connections that PostgreSQL keeps for its superuser."""
LIVES_SECONDS, NEEDED = 22.0, 0.9
"""For how long a pool keeps a connection, and the share of a pool that its requests need."""
REFUSED = "FATAL: sorry, too many clients already"


@dataclass
class _Server:
    """A database's connections. Each process opens its whole pool, and each connection is made anew after a while."""

    lab: Lab
    most: int
    pools: dict[str, int]
    """How many connections a process opens, by app."""
    held: dict[str, int] = field(default_factory=dict)
    refused: int = 0

    async def run(self) -> None:
        rng = self.lab.kubelets.rng
        while True:
            await asyncio.sleep(0.5)
            there = {
                uid_of(one.container.pod): self.pools[name]
                for one in self.lab.kubelets.running()
                if (name := one.app.image.rsplit("/", 1)[1]) in self.pools and one.container.seconds >= self.lab.lag
            }
            self.held = {uid: self.held.get(uid, 0) for uid in there}
            for uid, kept in self.held.items():
                self.held[uid] -= sum(rng.random() < 0.5 / LIVES_SECONDS for _ in range(kept))
            self.refused = 0
            for uid in rng.sample(sorted(there), len(there)):  # whoever asks first is given one
                wanted = there[uid] - self.held[uid]
                given = min(wanted, self.most - RESERVED - sum(self.held.values()))
                self.held[uid] += given
                self.refused += wanted - given

    def lacks(self, container: Container) -> float:
        """Which share of its requests waits in vain for a connection."""
        uid, name = uid_of(container.pod), container.spec["name"]
        if uid not in self.held:
            return 0.0
        return max(0.0, 1 - self.held[uid] / (NEEDED * self.pools[name]))

    def check(self, container: Container) -> Problem | None:
        """A process that has none at all says so to its probe."""
        if self.held.get(uid_of(container.pod), 1) > 0:
            return None
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({REFUSED})", at_once=True)


@family(
    "More is expected, and an app gets more pods. Each of them opens its whole pool of connections, and all together"
    " are more than the database of this team allows: the last ones get none, and what others close they do not get"
    " back.",
    joined=89,
)
async def pods_times_pool(lab: Lab) -> AsyncIterator[None]:
    """As all tell who read *too many clients already* after a change that was to help."""
    namespace, name, other, front, db = lab.rng.choice(
        (
            ("shop", "wish-items", "wish-mails", "wish-page", "wishes-db"),
            ("payments", "mandates", "mandate-letters", "mandate-page", "mandates-db"),
            ("media", "watch-history", "watch-stats", "history-page", "history-db"),
            ("search", "saved-queries", "query-mails", "saved-page", "saved-db"),
        )
    )
    by, pool = lab.rng.choice((*TEAMS, *TEAMS, "flux", "argocd")), lab.rng.choice((10, 12, 15))
    before, aside, minor = lab.rng.choice((3, 4)), lab.rng.choice((5, 8)), lab.rng.randrange(2, 40)
    most = 10 * math.ceil((pool * before + 2 * aside + RESERVED + pool) / 10)
    after = before + math.ceil((most - pool * before - 2 * aside) / pool) + lab.rng.choice((2, 3, 4))
    server = _Server(lab, most, {name: pool, other: aside})
    await lab.apply(objects.config_map(namespace, db, **{"postgresql.conf": f"max_connections = {most}\n"}))
    await stored(lab, namespace, db)
    for one, size in ((name, pool), (other, aside)):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", DB_POOL_SIZE=str(size)))
    like = [
        App("", upstreams=((namespace, db),), asked=lambda: 24.0, failing=server.lacks, check=server.check),
        App("", upstreams=((namespace, db),), asked=lambda: 9.0, failing=server.lacks, check=server.check),
    ]
    await lab.app(namespace, name, like=like[0], replicas=before, tag=f"3.{minor}.0", config=name)
    await lab.app(namespace, other, like=like[1], replicas=2, tag="1.9.0", config=other)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await rolled(lab, namespace, other, "1.9.0")
    await set_before(lab, namespace, front, name)
    lab.start(server.run())
    told = {"namespace": namespace, "service": db}
    lab.measure("pg_stat_activity_count", lambda: float(sum(server.held.values())), **told, state="idle")
    lab.measure("pg_settings_max_connections", lambda: float(most), **told)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, other)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.9.1")

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(8, 13))
    await lab.edit(by, "Deployment", namespace, front, {"spec": {"replicas": 4}})
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"replicas": after}})
    lab.start(afterwards())


MIGRATES_SECONDS = 75.0
LONG = (
    "ALTER TABLE {0} ADD CONSTRAINT {0}_origin_set CHECK (origin IS NOT NULL)",
    "ALTER TABLE {0} ALTER COLUMN id TYPE bigint",
    "CREATE INDEX {0}_created_at_idx ON {0} (created_at)",
)
"""Each of them keeps writers away from the table for as long as it reads, or writes, all of its rows."""


@family(
    "A release brings a statement that looks at each row of a large table. It took a moment where it was tried. Here it"
    " holds its lock for an hour, and whoever writes to that table, also an app of another team, waits until the time"
    " for it is over.",
    joined=89,
)
async def table_locked(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *canceling statement due to lock timeout* in apps that nobody had changed."""
    namespace, name, other, front, table = lab.rng.choice(
        (
            ("shop", "order-lines", "order-imports", "order-form", "order_lines"),
            ("payments", "bookings", "booking-batches", "booking-form", "bookings"),
            ("media", "play-events", "play-imports", "play-page", "play_events"),
            ("search", "click-log", "click-imports", "click-page", "clicks"),
        )
    )
    by, is_job, minor = lab.rng.choice(("ci", "ci", "argocd")), lab.rng.random() < 0.5, lab.rng.randrange(2, 40)
    old, new, statement = f"5.{minor}.0", f"5.{minor + 1}.0", lab.rng.choice(LONG).format(table)
    step, db, writes = f"{name}-migrate", f"{name}-db", lab.rng.uniform(0.3, 0.7)
    image = f"registry.corp.example/{namespace}/{step}"

    def migrates(container: Container) -> bool:
        return not is_job and container.tag == new and container.seconds < MIGRATES_SECONDS

    def starting(container: Container) -> Problem | None:
        """It listens once its own migration is through."""
        why = "probe failed: dial tcp :8080: connect: connection refused"
        return Problem("unready", why, at_once=True) if migrates(container) else None

    def runs() -> bool:
        jobs = pods(lab.world, namespace, step)
        is_run = any(one.get("status", {}).get("phase") == "Running" for one in jobs)
        return is_run or any(one.app is like and migrates(one.container) for one in lab.kubelets.running())

    is_locked = Since(lab, runs)

    def fails(_: Container) -> float:
        return writes * 0.9 if is_locked() else 0.0

    def waits(_: Container) -> float:
        return 1.4 if is_locked() else 0.0

    lab.apps[image] = App(image, ends_after=MIGRATES_SECONDS, serves=False)
    await stored(lab, namespace, db)
    for one in (name, other):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", DB_LOCK_TIMEOUT_MS="2000"))
    to = ((namespace, db),)
    like = App("", upstreams=to, asked=lambda: 20.0, check=starting, failing=fails, latency=waits)
    aside = App("", upstreams=to, asked=lambda: 11.0, failing=fails, latency=waits)
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await lab.app(namespace, other, like=aside, replicas=2, tag="2.2.0", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "2.2.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": db, "datname": name}
    mode = "sharelock" if statement.startswith("CREATE INDEX") else "accessexclusivelock"
    lab.measure("pg_locks_count", lambda: 1.0 if is_locked() else 0.0, **told, mode=mode)
    longest = lambda: now().timestamp() - is_locked.since if is_locked.since else 0.05  # noqa: E731
    lab.measure("pg_stat_activity_max_tx_duration", longest, **told, state="active")
    for one in (name, other):
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"LOG_LEVEL": "warn"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "2.2.1")
    await lab.pause(lab.rng.uniform(6, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 8))
    if is_job:
        job = _migration(namespace, f"{name}-{new.replace('.', '-')}", f"{image}:{new}", name, statement)
        await lab.culprit(by, "create", "Job", namespace, job["metadata"]["name"], job)
    else:
        await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


def _migration(namespace: str, name: str, image: str, config: str, statement: str) -> Json:
    """The Job of a release that changes its database."""
    step = image.rsplit("/", 1)[1].partition(":")[0]
    made = objects.deployment(namespace, step, image, config=config, restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = ["migrate", "up", "--sql", statement]
    meta = {"namespace": namespace, "name": f"{name}-migrate"}
    return {"kind": "Job", "metadata": meta, "spec": {"template": made["spec"]["template"], "backoffLimit": 0}}
