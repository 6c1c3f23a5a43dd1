"""What fills: a cache that all share, a file that a store appends to, a bus with larger messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import image_of, is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

GIB = 2**30


async def _rolled(lab: Lab, namespace: str, name: str, tag: str) -> None:
    """Wait until all pods of an app are of a version, and ready. Raises TimeoutError."""

    def is_through() -> bool:
        found = pods(lab.world, namespace, name)
        wanted = lab.world["Deployment"][namespace, name]["spec"]["replicas"]
        return len(found) == wanted and all(
            is_ready(pod) and pod["spec"]["containers"][0]["image"].endswith(f":{tag}") for pod in found
        )

    await lab.until(is_through)


@family(
    "Somebody checks a change by a script, which asks for every schema that there is: each of them becomes a key of the"
    " cache that all share, whose memory is full at once. Whoever has to write there fails.",
    joined=24,
)
async def script_fills_cache(lab: Lab) -> AsyncIterator[None]:
    """As Harness tells of 8 May 2023."""
    namespace, front, others = lab.rng.choice(
        (
            ("platform", "console", ("pipelines", "triggers")),
            ("media", "studio", ("playlists", "rights")),
            ("search", "portal", ("saved-searches", "suggestions")),
        )
    )
    cache, script = f"{front}-redis", "validate-schemas"
    image = f"registry.corp.example/{namespace}/{script}"
    used, most = [lab.rng.uniform(0.55, 0.65) * 4 * GIB], 4.0 * GIB
    speed = lab.rng.uniform(0.03, 0.05) * 4 * GIB  # in a second

    def is_full() -> bool:
        return used[0] >= most

    async def write() -> None:
        """Keys that the script has brought about have no end; all others come and go."""
        while True:
            await asyncio.sleep(0.5)
            running = sum(
                image_of(pod) == image and pod["status"].get("phase") == "Running" for pod in lab.world["Pod"].values()
            )
            change = running * speed / 2 + lab.kubelets.rng.uniform(-0.002, 0.002) * most
            used[0] = min(most, used[0] + change)

    upstreams = ((namespace, cache),)
    await lab.app(namespace, cache, like=App("", serves=False), kind="StatefulSet", replicas=1)
    needs = dict(zip((front, *others), lab.rng.sample((0.35, 0.5, 0.65), 3), strict=True))
    for one, share in needs.items():

        def failing(_: Container, *, share: float = share) -> float:
            return share if is_full() else 0.0

        await lab.app(namespace, one, like=App("", upstreams=upstreams, failing=failing), replicas=3, tag="7.1.0")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in needs))
    await publish(lab, namespace, front)
    lab.reserve(namespace, *others)
    lab.measure("redis_memory_used_bytes", lambda: used[0], namespace=namespace, service=cache)
    lab.measure("redis_memory_max_bytes", lambda: most, namespace=namespace, service=cache)
    for one in needs:
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    lab.apps[image] = App(image, ends_after=28, upstreams=upstreams, serves=False)
    env = [{"name": "REDIS_URL", "value": f"redis://{cache}:6379/0"}, {"name": "DRY_RUN", "value": "true"}]
    template: Json = objects.deployment(namespace, script, f"{image}:1.0.0", env=env, restartPolicy="Never")
    del template["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    job = {"template": template["spec"]["template"], "backoffLimit": 0}
    lab.start(write())
    for days, tag in ((14, "7.2.0"), (7, "7.3.0")):  # each week
        async with before(lab, days=days):
            await lab.roll("argocd", namespace, front, tag)
            await _rolled(lab, namespace, front, tag)
    yield
    await lab.roll("argocd", namespace, front, "7.4.0")
    await lab.pause(lab.rng.uniform(6, 10))
    meta = {"name": f"{script}-{lab.rng.randrange(36**5):05x}"}
    by = lab.rng.choice(("carol", "alice"))
    await lab.culprit(by, "create", "Job", namespace, meta["name"], {"metadata": meta, "spec": job})


@family(
    "A customer imports far more than ever: the store of jobs appends each change to a file, whose disk is full before"
    " the file is written anew. The store ends, and cannot read the broken end of its file at any start.",
    culprit=False,
    joined=24,
)
async def broken_append(lab: Lab) -> AsyncIterator[None]:
    """As the forms team of the province of British Columbia tells of 9 July 2025."""
    namespace, web, worker = lab.rng.choice(
        (("media", "forms", "exports"), ("shop", "backoffice", "imports"), ("search", "catalogues", "crawls"))
    )
    store, bad = f"{web}-redis", "2.4.0"
    size, written = 2.0 * GIB, [lab.rng.uniform(0.5, 0.6) * 2 * GIB]

    def keeps_all() -> bool:
        """Whether a worker runs whose release never deletes what it has done."""
        return any(
            pod["spec"]["containers"][0]["image"].endswith(f":{bad}") and pod["status"].get("phase") == "Running"
            for pod in pods(lab.world, namespace, worker)
        )

    def at_store(container: Container) -> Problem | None:
        if written[0] >= size:
            return Problem(
                "crash", "Bad file format reading the append only file: use redis-check-aof --fix <filename>"
            )
        return Problem("oom", "needs more than it may have") if keeps_all() and container.seconds > 2 else None

    async def append() -> None:
        """Faster and faster: what is kept of the import is changed again and again."""
        speed = 0.01 * size
        while written[0] < size:
            await asyncio.sleep(0.5)
            speed = min(0.06 * size, speed * lab.kubelets.rng.uniform(1.0, 1.2))
            written[0] = min(size, written[0] + speed / 2)

    upstreams = ((namespace, store),)
    await lab.app(namespace, store, like=App("", check=at_store, serves=False), kind="StatefulSet", replicas=1)
    await lab.app(namespace, web, like=App("", upstreams=upstreams), replicas=3)
    await lab.app(namespace, worker, like=App("", upstreams=upstreams, serves=False), replicas=2, tag="2.3.1")
    at_once: Json = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    await lab.edit("admin", "Deployment", namespace, worker, at_once)  # no two releases work at the same time
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (store, web, worker)))
    await publish(lab, namespace, web)
    lab.reserve(namespace, worker)
    lab.measure("redis_aof_current_size_bytes", lambda: written[0], namespace=namespace, service=store)
    for one in (store, web):
        lab.alert_lacking(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    async with before(lab, days=lab.rng.randrange(18, 25)) as then:
        answer = await lab.roll("ci", namespace, worker, bad)
        await then.fires()
        await lab.roll("ci", namespace, worker, "2.3.1")
        await _rolled(lab, namespace, worker, "2.3.1")
        await then.is_well()
        then.judge(answer, "it")
    yield
    await lab.roll("ci", namespace, worker, "2.5.0")
    await lab.pause(lab.rng.uniform(7, 11))
    lab.start(append())


@dataclass
class _Bus:
    """What takes messages, as many bytes of them as it can; until somebody sends more than that."""

    rate: float
    kib: float
    most_kib: float

    def takes_all(self) -> bool:
        return self.rate * self.kib <= self.most_kib

    async def grow(self, up_to: float) -> None:
        """Some send larger messages, as often as before."""
        while self.kib < up_to:
            await asyncio.sleep(0.5)
            self.kib = min(up_to, self.kib * 1.09)


@family(
    "Two customers send messages many times as large as before, though not more of them: the bus does not take so many"
    " bytes, and each server that waits for it in vain ends, until there is none who takes anything from anybody.",
    culprit=False,
    joined=24,
)
async def larger_messages(lab: Lab) -> AsyncIterator[None]:
    """As PostHog tells of 23 August 2021 (status 3)."""
    namespace, name, consumer = lab.rng.choice(
        (
            ("platform", "capture", "plugins"),
            ("media", "playback-events", "recommendations"),
            ("shop", "clicks", "funnels"),
        )
    )
    bus = f"{name}-bus"
    messages = _Bus(rate=lab.rng.uniform(60, 90), kib=lab.rng.uniform(1.8, 2.6), most_kib=600.0)

    def check(container: Container) -> Problem | None:
        """It gives up at the first message that the bus has not confirmed in its time."""
        patience = 2 + crc32(container.pod["metadata"]["uid"].encode()) % 5
        if messages.takes_all() or container.seconds < patience:
            return None
        return Problem("crash", "panic: kafka: Failed to deliver 1 messages: request timed out")

    def waits(_: Container) -> float:
        return 0.0 if messages.takes_all() else 1.5

    like = App("", asked=lambda: messages.rate, check=check, latency=waits, upstreams=((namespace, bus),))
    await lab.app(namespace, bus, like=App("", serves=False), kind="StatefulSet", replicas=3)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH_MS="200"))
    await lab.app(namespace, name, like=like, replicas=4, config=name)
    reads = App("", upstreams=((namespace, bus),), serves=False)
    await lab.app(namespace, consumer, like=reads, replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    lab.measure("capture_message_bytes_mean", lambda: messages.kib * 1024, namespace=namespace, service=name)
    taken = lab.adding_up(lambda: min(messages.rate * messages.kib, messages.most_kib) * 1024)
    lab.measure("kafka_server_bytes_in_total", taken, "counter", namespace=namespace, service=bus)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    await lab.edit("alice", "ConfigMap", namespace, name, {"data": {"BATCH_MS": "150"}})
    await lab.pause(lab.rng.uniform(6, 10))
    lab.start(messages.grow(lab.rng.uniform(14, 20)))
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll("argocd", namespace, consumer, "1.1.0")
