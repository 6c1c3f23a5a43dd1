"""What apps stand on: a Service that many call, a cache, a database that a report reads, a store with shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from tests.lab import objects
from tests.lab.alerts import lacking, pods
from tests.lab.api import now
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.scenario import family

FAILED = "probe failed: HTTP probe failed with statuscode: 503"


@family(
    "A Service may be reached on the caller's own node only, so that no call pays for its way between zones: it has"
    " fewer pods than there are nodes, and callers on the other ones wait in vain.",
    joined=9,
)
async def traffic_policy(lab: Lab) -> AsyncIterator[None]:
    home, callee = lab.rng.choice((("platform", "sessions"), ("platform", "flags"), ("search", "geocoder")))
    namespace, name = lab.rng.choice((("shop", "addresses"), ("media", "profiles"), ("payments", "wallet")))
    await lab.app(home, callee, replicas=2)
    await lab.app(namespace, name, like=App("", upstreams=((home, callee),)), replicas=5)
    lab.alert_lacking(namespace, name)
    yield
    body = {"spec": {"internalTrafficPolicy": "Local"}}
    await lab.culprit(lab.rng.choice(("bob", "flux", "ci")), "update", "Service", home, callee, body)


@family(
    "A cache that is full as always is told to throw nothing away, so that no session is lost: it takes nothing new,"
    " and whoever writes into it fails.",
    joined=9,
)
async def cache_eviction(lab: Lab) -> AsyncIterator[None]:
    home, cache = "platform", lab.rng.choice(("redis-shared", "redis-web", "redis-main"))
    namespace, name = lab.rng.choice((("shop", "sign-in"), ("media", "player"), ("payments", "one-time-codes")))
    kept = "maxmemory 2gb\nsave 900 1\nmaxmemory-policy {}\ntcp-keepalive 300\n"

    def check(container: Container) -> Problem | None:
        """What the cache is told applies as soon as it is written, as a reloader does it (CONFIG SET)."""
        told = lab.world["ConfigMap"][home, cache]["data"]["redis.conf"]
        reason = "OOM command not allowed when used memory > 'maxmemory'"
        return Problem("unready", f"{FAILED} ({reason})") if "maxmemory-policy noeviction" in told else None

    await lab.apply(objects.config_map(home, cache, **{"redis.conf": kept.format("allkeys-lru")}))
    await lab.app(home, cache, config=cache, replicas=1)
    env = [{"name": "REDIS_URL", "value": f"redis://{cache}.{home}:6379"}]
    await lab.app(namespace, name, like=App("", check=check, upstreams=((home, cache),)), replicas=3, env=env)
    lab.alert_lacking(namespace, name)
    yield
    body = {"data": {"redis.conf": kept.format("noeviction")}}
    await lab.culprit(lab.rng.choice(("alice", "flux", "argocd")), "update", "ConfigMap", home, cache, body)


@family(
    "A nightly report is to be made every hour, but its schedule says every minute of every hour: by day, while others"
    " need the database as well, one run is too much for it, and the next begins beside it.",
    joined=9,
)
async def cron_schedule(lab: Lab) -> AsyncIterator[None]:
    namespace, name, database = lab.rng.choice(
        (("shop", "orders", "orders-db"), ("payments", "transfers", "transfers-db"), ("media", "playlists", "media-db"))
    )
    home, report = lab.rng.choice(
        (("platform", "usage-report"), ("search", "suggestions-build"), (namespace, "totals"))
    )
    usual, read = lab.rng.choice((160.0, 190.0, 220.0)), 150.0
    image = f"registry.corp.example/{home}/{report}"
    lab.apps[image] = App(image, ends_after=75)
    env = [{"name": "DATABASE_HOST", "value": f"{database}.{namespace}"}]
    made = objects.deployment(home, report, f"{image}:1.0.0", env=env, restartPolicy="Never")["spec"]["template"]
    del made["spec"]["containers"][0]["readinessProbe"]
    spec = {
        "schedule": f"0 {(now().hour + 12) % 24} * * *",
        "jobTemplate": {"spec": {"template": made, "backoffLimit": 0}},
    }
    await lab.apply({"kind": "CronJob", "metadata": {"namespace": home, "name": report}, "spec": spec})

    async def work() -> None:
        """Each run reads whole tables as long as it lasts."""
        while True:
            runs = sum(pod.get("status", {}).get("phase") == "Running" for pod in pods(lab.world, home, report))
            server.load = usual + read * runs
            await asyncio.sleep(0.5)

    server = await lab.app(namespace, database, replicas=3)
    await lab.app(namespace, name, like=App("", upstreams=((namespace, database),)), replicas=3, env=env)
    lab.start(work())
    lab.alert_lacking(namespace, name)
    yield
    by = lab.rng.choice(("alice", "carol", "argocd"))
    await lab.culprit(by, "update", "CronJob", home, report, {"spec": {"schedule": "* */1 * * *"}})
    await lab.pause(60 - now().timestamp() % 60)


@family(
    "Somebody whom millions follow posts something: all of them ask the one shard of a store that has it, and that one"
    " does not stand it, however many others there are.",
    culprit=False,
    joined=9,
)
async def hot_shard(lab: Lab) -> AsyncIterator[None]:
    namespace, store, caller = lab.rng.choice(
        (("media", "timelines", "feed"), ("shop", "listings", "offers"), ("search", "topics", "trends"))
    )
    number, asked = lab.rng.randrange(4), [60.0]

    def check(container: Container) -> Problem | None:
        if asked[0] <= app.capacity or container.pod["metadata"]["name"] != f"{store}-{number}":
            return None
        return Problem("unready", "probe failed: context deadline exceeded while awaiting headers")

    def misses(container: Container) -> Problem | None:
        """Its pages are made of what every shard has."""
        absent = [pod["metadata"]["name"] for pod in pods(lab.world, namespace, store) if not is_ready(pod)]
        return Problem("unready", f"{FAILED} ({absent[0]}.{store}: i/o timeout)") if absent else None

    def read(shard: int) -> float:
        """How often a second a shard is asked."""
        return asked[0] if shard == number else 60.0

    app = await lab.app(namespace, store, like=App("", check=check, serves=False), replicas=4, kind="StatefulSet")
    for shard in range(4):
        reads = lab.adding_up(partial(read, shard))
        pod = f"{store}-{shard}"
        lab.measure("store_reads_total", reads, "counter", namespace=namespace, service=store, pod=pod)
    await lab.app(namespace, caller, like=App("", check=misses), replicas=3)
    holds = lambda: lacking(lab.world, namespace, store)  # noqa: E731
    summary = f"{namespace}/{store} has not had its replicas for a while"
    lab.alert("KubeStatefulSetReplicasMismatch", holds, summary, 6, namespace=namespace, statefulset=store)
    lab.alert_lacking(namespace, caller)
    yield
    asked[0] = lab.rng.choice((300.0, 900.0))
