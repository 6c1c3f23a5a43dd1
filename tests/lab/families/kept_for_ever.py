"""What comes to light later: connections that are kept, and a run at night."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from zlib import crc32

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

POOL, HELD_SECONDS, WAITS_SECONDS = 20, 0.4, 2.0
"""Connections of each process, how long a request holds one, and how long one waits for one before it is given up."""


@family(
    "A release of an app does not give a connection back on one of its ways out. All is well for a while; then the"
    " pools of its processes are used up, requests wait for a connection in vain, and fail.",
    joined=79,
)
async def never_given_back(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pool said that it timed out after 30 seconds."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "gift-cards", "gift-page", "gift-reports"),
            ("media", "subscriptions", "account-page", "churn-reports"),
            ("payments", "mandates", "mandate-page", "mandate-export"),
        )
    )
    db, minor, by = f"{name}-db", lab.rng.randrange(4, 50), lab.rng.choice(("ci", "argocd", "flux"))
    old, new, lasts, asks = f"4.{minor}.1", f"4.{minor + 1}.0", lab.rng.uniform(18, 26), lab.rng.uniform(50, 62)

    def leaked(container: Container) -> float:
        """Connections that nobody will give back; some get more than others of what takes that way."""
        uneven = 0.8 + (crc32(container.pod["metadata"]["uid"].encode()) % 40) / 100
        since = max(0.0, container.seconds - lab.lag) if container.tag == new else 0.0
        return min(POOL, POOL * since / (lasts * uneven))

    def in_vain(container: Container) -> float:
        """The share of its requests that get none."""
        each = asks / max(1, len(backends(lab.world, namespace, name)))
        return max(0.0, 1 - (POOL - leaked(container)) / HELD_SECONDS / each)

    def waits(container: Container) -> float:
        return WAITS_SECONDS * in_vain(container)

    like = App("", upstreams=((namespace, db),), asked=lambda: asks, failing=in_vain, latency=waits)

    def there() -> list[Container]:
        return [one.container for one in lab.kubelets.running() if one.app is like]

    def active() -> float:
        """Of all its processes."""
        busy = HELD_SECONDS * asks / max(1, len(there()))
        return sum(min(POOL, leaked(one) + busy) for one in there())

    await lab.app(namespace, db, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.6")
    await lab.until(lambda: backends(lab.world, namespace, db))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE=f"{POOL}"))
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await lab.app(namespace, other, like=App("", upstreams=((namespace, db),)), replicas=1, tag="1.2.2")
    await rolled(lab, namespace, name, old)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="9.4.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    told = {"namespace": namespace, "service": name, "pool": db}
    lab.measure("hikaricp_connections_active", active, **told)
    lab.measure("hikaricp_connections_max", lambda: float(POOL * len(there())), **told)
    idle = {"namespace": namespace, "service": db, "state": "idle in transaction"}
    lab.measure("pg_stat_activity_count", lambda: sum(map(leaked, there())), **idle)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_slow(namespace, name, 1.0)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        """The others go on with their work."""
        await lab.pause(lab.rng.uniform(5, 9))
        await lab.roll("ci", namespace, other, "1.3.0")
        await lab.pause(lab.rng.uniform(4, 8))
        await lab.edit("carol", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "warn"}})
        await lab.pause(lab.rng.uniform(4, 8))
        await lab.roll("ci", namespace, front, "9.4.1")

    await lab.pause(lab.rng.uniform(2, 7))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


MINUTE, BEFORE_SECONDS = 60.0, 35.0
"""A CronJob is due on the minute: what is prepared is through so long before one, and the run is due after the next."""
RUN_SECONDS = 8.0


@dataclass(frozen=True)
class _Nightly:
    """A run of each night: what its program is called with, and what of that an older and a newer version know."""

    namespace: str
    name: str
    args: tuple[str, ...]
    knows: frozenset[str]
    since: frozenset[str]
    added: str
    """What somebody adds, for the next version or by a wrong name."""


NIGHTLY = (
    _Nightly(
        "payments",
        "settlement-export",
        ("--day=yesterday", "--bucket=settlements"),
        frozenset({"--day", "--bucket", "--parallel"}),
        frozenset({"--date", "--bucket", "--parallel"}),
        "--paralel=4",
    ),
    _Nightly(
        "shop",
        "stock-import",
        ("--source=erp", "--full"),
        frozenset({"--source", "--full", "--batch-size"}),
        frozenset({"--source", "--mode", "--batch-size"}),
        "--batchsize=500",
    ),
    _Nightly(
        "media",
        "originals-cleanup",
        ("--older-than=90d", "--prefix=originals"),
        frozenset({"--older-than", "--prefix", "--dry-run"}),
        frozenset({"--max-age", "--prefix", "--dry-run"}),
        "--skip-favourites",
    ),
)


@family(
    "Somebody changes what a CronJob runs at night: a newer image, or a further argument. Its program does not know one"
    " of the flags that it is called with. By day nothing is to be seen; the run of the night ends at once, and fails.",
    joined=79,
)
async def at_two_in_the_morning(lab: Lab) -> AsyncIterator[None]:
    """As everybody finds out in the morning."""
    job, by = lab.rng.choice(NIGHTLY), lab.rng.choice(("ci", "flux", "argocd", "alice", "bob"))
    namespace, name, is_image = job.namespace, job.name, lab.rng.random() < 0.5
    image, minor = f"registry.corp.example/{namespace}/{name}", lab.rng.randrange(2, 30)
    old, new, asked = f"1.{minor}.3", "2.0.0", f"{name.partition('-')[0]}-api"

    def check(container: Container) -> Problem | None:
        known = job.since if container.tag == new else job.knows
        flags = (one.partition("=")[0] for one in container.spec.get("args", ()))
        unknown = next((one for one in flags if one not in known), "")
        return Problem("crash", f"Error: unknown flag: {unknown}", at_once=True) if unknown else None

    def has_failed() -> bool:
        return any(
            one["type"] == "Failed" and one["status"] == "True"
            for (where, _), found in lab.world["Job"].items()
            for one in found.get("status", {}).get("conditions", ())
            if where == namespace
        )

    upstreams = ((namespace, asked),)
    lab.apps[image] = App(image, check=check, ends_after=RUN_SECONDS, upstreams=upstreams, serves=False)
    await lab.app(namespace, asked, replicas=2, tag="3.3.0")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="5000"))
    await lab.until(lambda: backends(lab.world, namespace, asked))
    await asyncio.sleep((MINUTE - BEFORE_SECONDS - now().timestamp()) % MINUTE)
    due = (now() + timedelta(minutes=2)).replace(second=0, microsecond=0)

    def template(tag: str, *args: str) -> Json:
        env = [{"name": "API_URL", "value": f"http://{asked}"}]
        manifest = objects.deployment(namespace, name, f"{image}:{tag}", config=name, env=env, restartPolicy="Never")
        made: Json = manifest["spec"]["template"]
        [container] = made["spec"]["containers"]
        del container["readinessProbe"]
        container["args"] = list(args)
        return {"spec": {"template": made, "backoffLimit": 1}}

    spec = {
        "schedule": f"{due.minute} {due.hour} * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": template(old, *job.args),
    }
    await lab.apply({"kind": "CronJob", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    last = [due - timedelta(days=1), due - timedelta(days=1) + timedelta(minutes=9)]
    began, done = (f"{stamp(at)[:19]}Z" for at in last)
    status = {"lastScheduleTime": began, "lastSuccessfulTime": done}
    await lab.who["admin"].must("PATCH", f"{path('CronJob', namespace, name)}/status", {"status": status})
    lab.alert("KubeJobFailed", has_failed, f"a run of {namespace}/{name} has failed", 3, namespace=namespace)
    yield
    await lab.edit("carol", "ConfigMap", namespace, name, {"data": {"TIMEOUT_MS": lab.rng.choice(("3000", "8000"))}})
    await lab.pause(lab.rng.uniform(1, 4))
    changed = template(new, *job.args) if is_image else template(old, *job.args, job.added)
    await lab.culprit(by, "update", "CronJob", namespace, name, {"spec": {"jobTemplate": changed}})
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll("ci", namespace, asked, "3.3.1")
