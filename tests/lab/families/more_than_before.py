"""Incidents without a culprit among the changes: customers who grow past a limit of old, a partner who is early."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from zlib import crc32

from tests.lab.alerts import restarts
from tests.lab.api import now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

FORENOON, AFTERNOON = 24.0, (72.0, 84.0)
"""Orders a second, as on any day and on this one's peak, at least and at most."""
OWN_MIB, EACH_MIB, LIMIT = 132.0, 4.0, "256Mi"
"""Of a process: what it needs for itself, for each order a second that it has, and what it may have."""
SWELLS, SWELLS_SECONDS = 0.3, 9.0
"""How much more than in the mean it has at a time, and how often: some orders have many pages."""


@family(
    "An app that takes orders has the memory limit of its first day. Since then each order has got an invoice, which is"
    " made in the app's own process, and customers have become more from month to month: at the peak of an afternoon"
    " its processes need more than they may have, and are killed in turn. A library was replaced just before.",
    culprit=False,
    joined=48,
)
async def limit_copied(lab: Lab) -> AsyncIterator[None]:
    """As a consultant tells whose client took it for a leak of what had been deployed (lukretium.com)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "order-api", "checkout-page"),
            ("payments", "invoice-api", "billing-page"),
            ("media", "booking-api", "booking-page"),
        )
    )
    number, team = lab.rng.randrange(3, 40), lab.rng.choice(("alice", "bob", "ci"))
    orders, limit = [FORENOON], float(LIMIT.removesuffix("Mi"))
    most: dict[str, tuple[float, float]] = {}  # of a pod's process, at which age it was looked at, and what it took

    def needed(container: Container) -> float:
        """Who is ready shares the orders; a process gives nothing of its heap back."""
        uid, ready = uid_of(container.pod), {uid_of(pod) for pod in backends(lab.world, namespace, name)}
        each = orders[0] / len(ready) if uid in ready else 0.0
        turn = (now().timestamp() + crc32(uid.encode()) % 97) * 2 * math.pi / SWELLS_SECONDS
        age, taken = most.get(uid, (0.0, 0.0))
        much = OWN_MIB + EACH_MIB * each * (1 + SWELLS * math.sin(turn))
        most[uid] = container.seconds, max(much, taken if container.seconds >= age else 0.0)
        return most[uid][1]

    def check(container: Container) -> Problem | None:
        much = needed(container)
        is_too_much = container.seconds > 3 and much > limit
        return Problem("oom", f"needs {much:.0f}Mi, may have {LIMIT}") if is_too_much else None

    def heap() -> float:
        """In the mean of all that run."""
        image = f"registry.corp.example/{namespace}/{name}"
        there = [one.container for one in lab.kubelets.running() if one.app.image == image]
        return sum(map(needed, there)) / max(1, len(there)) * 2**20

    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    upstreams = ((namespace, f"{name}-db"),)
    like = App("", upstreams=upstreams, check=check, asked=lambda: orders[0])
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{number}.0", memory=LIMIT)
    like = App("", upstreams=((namespace, name),), asked=lambda: orders[0] * 1.5)
    await lab.app(namespace, front, like=like, replicas=3, tag="2.18.1")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in (name, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.measure("nodejs_heap_size_used_bytes", heap, namespace=namespace, service=name)
    restarted = lab.rate(lambda: restarts(lab.world, namespace, name), 0.06, seconds=30)
    summary = f"containers of {namespace}/{name} are restarting"
    lab.alert("KubePodCrashLooping", restarted, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, namespace, name, f"4.{number}.1")
    await rolled(lab, namespace, name, f"4.{number}.1")
    peak = lab.rng.uniform(*AFTERNOON)
    await lab.pause(lab.rng.uniform(4, 9))
    while orders[0] < peak:
        orders[0] += lab.rng.uniform(1.0, 5.0)
        await lab.pause(1)


NIGHTLY, DAILY, FEED = 1, 6, 330.0
"""Pods of an app at night and for its partner's hour, and requests a second of that one's run."""
EACH_STANDS, FEW = 70.0, 6.0
"""Requests a second that a pod stands, and that come all night."""


@family(
    "By night an app has one pod, as next to nothing comes, and before its partner's hour it gets more by its schedule,"
    " as every night. Tonight the partner begins its run long before that hour: one pod does not stand it, and nothing"
    " looks at what comes.",
    culprit=False,
    joined=48,
)
async def sync_early(lab: Lab) -> AsyncIterator[None]:
    """As one tells who audited a cluster that slept to save money (pawanpatra.com)."""
    namespace, name, partner = lab.rng.choice(
        (
            ("shop", "catalog-intake", "suppliers"),
            ("media", "metadata-intake", "studios"),
            ("payments", "settlement-intake", "acquirer"),
        )
    )
    comes, wanted, store = [FEW], [NIGHTLY], f"{name}-store"

    def beyond(_: Container) -> float:
        """What waits longer than who asks does."""
        stood = EACH_STANDS * max(1, len(backends(lab.world, namespace, name)))
        return max(0.0, 1 - stood / comes[0])

    async def scale(process: Process) -> None:
        """As its schedule says."""
        where = path("Deployment", namespace, name)
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["replicas"] != wanted[0]:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted[0]}})

    async def run(seconds: float) -> None:
        """The partner's, which begins with a few requests and has all of its connections soon."""
        for share in (0.3, 0.7, 1.0):
            comes[0] = FEED * share
            await asyncio.sleep(1)
        await asyncio.sleep(seconds)

    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="8.0.39")
    late = lambda container: 1.5 if beyond(container) else 0.0  # noqa: E731
    like = App(
        "",
        upstreams=((namespace, store),),
        capacity=EACH_STANDS,
        asked=lambda: comes[0],
        failing=beyond,
        fails_with=lambda _: "503",
        latency=late,
    )
    env = [{"name": "PARTNER", "value": partner}]
    await lab.app(namespace, name, like=like, replicas=NIGHTLY, tag="3.7.0", env=env)
    rule = ("apps", "deployments", "get,patch")
    await lab.controller("platform", "schedule-scaler", every(2, scale), rule, replicas=1, tag="1.4.2")
    await lab.until(lambda: backends(lab.world, namespace, name))
    await publish(lab, namespace, name)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=1):
        await lab.pause(3)
        wanted[0] = DAILY
        await lab.until(lambda: len(backends(lab.world, namespace, name)) == DAILY)
        await lab.pause(2)
        await run(8)
        comes[0] = FEW
        await lab.pause(3)
        wanted[0] = NIGHTLY
        await lab.until(lambda: len(backends(lab.world, namespace, name)) == NIGHTLY)
        await lab.pause(4)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    await run(0)
