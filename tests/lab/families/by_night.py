"""What is enough until more is asked for: limits that were cut by day, and a limit that customers reach."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from zlib import crc32

from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem, mebibytes, millicores
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

WORK_MS, QUERY_MS = 10.0, 36.0
"""Of a processor's time that a request takes."""
OWN_MIB, WAITING_MIB = 150.0, 0.9
"""What a process needs for itself, and for each request that waits in it."""
BY_DAY, BY_NIGHT = 60.0, 150.0
"""Requests a second of users, and with the partner's batch."""
PERIOD_MS = 100.0
"""After each of which a container may use its share of the processor again."""


def sized(cpu: str, memory: str) -> Json:
    """Requests and limits that are the same."""
    return {one: {"cpu": cpu, "memory": memory} for one in ("requests", "limits")}


@dataclass
class _Queues:
    """Requests that wait in each process for a processor that its limit does not let it have."""

    lab: Lab
    namespace: str
    name: str
    asked: float = BY_DAY
    waiting: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)

    def fill(self, container: Container) -> Problem | None:
        """From nothing with each start; whoever needs more than the limit on its memory is ended."""
        uid, limits = container.pod["metadata"]["uid"], container.spec["resources"]["limits"]
        since = self.seen.get(uid, 0.0)
        if container.seconds < since:
            self.waiting[uid] = since = 0.0
        each = self.asked / max(1, len(backends(self.lab.world, self.namespace, self.name)))
        each *= 0.85 + crc32(uid.encode()) % 31 / 100  # no two get the same
        more = (each - millicores(limits["cpu"]) / WORK_MS) * (container.seconds - since)
        self.waiting[uid], self.seen[uid] = max(0.0, self.waiting.get(uid, 0.0) + more), container.seconds
        needed = OWN_MIB + self.waiting[uid] * WAITING_MIB
        is_over = needed > mebibytes(limits["memory"])
        return Problem("oom", f"needs {needed:.0f}Mi, may have {limits['memory']}") if is_over else None

    def wait(self, container: Container) -> float:
        stands = millicores(container.spec["resources"]["limits"]["cpu"]) / WORK_MS
        return self.waiting.get(container.pod["metadata"]["uid"], 0.0) / stands


@family(
    "Somebody cuts what an app may use of processor and memory to what it needs by day. At night a new partner's batch"
    " asks it several times as much: requests wait in its memory, and one process after another is killed for it.",
    joined=28,
)
async def limits_trimmed(lab: Lab) -> AsyncIterator[None]:
    """As told of a change at two in the morning that cost 47000 dollars (besthub.dev)."""
    namespace, name, called = lab.rng.choice(
        (("payments", "partner-api", "accounts"), ("shop", "listing-api", "stock"), ("media", "export-api", "metadata"))
    )
    queues = _Queues(lab, namespace, name)
    await lab.app(namespace, called, replicas=2)
    like = App("", upstreams=((namespace, called),), asked=lambda: queues.asked, capacity=500)
    await lab.app(namespace, name, like=like, replicas=4, tag="2.2.0")
    await lab.roll("admin", namespace, name, "2.3.0", resources=sized("500m", "512Mi"))
    await rolled(lab, namespace, name, "2.3.0")
    like.check, like.latency = queues.fill, queues.wait
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_errors(namespace, name)
    lab.alert_lacking(namespace, name)

    yield
    by = lab.rng.choice(("alice", "bob", "argocd"))
    await lab.roll(by, namespace, name, "2.3.0", culprit=True, resources=sized("250m", "384Mi"))
    await lab.pause(lab.rng.uniform(18, 26))
    queues.asked = BY_NIGHT * lab.rng.uniform(0.9, 1.1)


def beyond(mean: float, most: int) -> float:
    """How likely more than ``most`` come within a period in which ``mean`` come on average."""
    return 1 - sum(math.exp(-mean) * mean**number / math.factorial(number) for number in range(most + 1))


@family(
    "An app was for the company's own people, and its customers come in by and by. On average it uses less of the"
    " processor than its limit lets it have, but within one period after another it has used that up and stands"
    " still: calls of its database time out.",
    culprit=False,
    joined=28,
)
async def throttled_bursts(lab: Lab) -> AsyncIterator[None]:
    """As a developer tells whom the processor humbled (dev.to, blackzu)."""
    namespace, name = lab.rng.choice((("shop", "order-status"), ("payments", "statements"), ("media", "reports")))
    database, each, most = f"{name}-db", [4.0], lab.rng.uniform(19, 22)

    def late(container: Container) -> float:
        """The share of calls whose answer it does not read in time, as its period was used up before."""
        limit = container.spec["resources"].get("limits", {}).get("cpu")
        if not limit:
            return 0.0
        within = int(millicores(limit) / 1000 * PERIOD_MS / QUERY_MS)
        return 0.5 * beyond(each[0] * PERIOD_MS / 1000, within)

    async def grow() -> None:
        while each[0] < most:
            each[0] *= lab.rng.uniform(1.03, 1.09)
            await asyncio.sleep(1)

    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    like = App("", asked=lambda: 3 * each[0], failing=late, upstreams=((namespace, database),), capacity=100)
    await lab.app(namespace, name, like=like, replicas=3, tag="1.12.0")
    limits = {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"cpu": "800m", "memory": "1536Mi"}}
    await lab.roll("admin", namespace, name, "1.12.1", resources=limits)
    await rolled(lab, namespace, name, "1.12.1")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    timeouts = lab.adding_up(lambda: 3 * each[0] * 0.5 * beyond(each[0] / 10, 2))
    lab.measure("hikaricp_connections_timeout_total", timeouts, "counter", namespace=namespace, service=name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    lab.start(grow())
