"""More than somebody else has room for: spans of all requests, what a disk of the cloud saves up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import now
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.before import before
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

COLLECTOR, STRATEGIES, SHARE = ("monitoring", "jaeger-collector"), "jaeger-sampling", "default-probability"
FEW, HALF = "0.01", "0.5"
SPANS, ASKS_SECONDS = 12, 2.0
"""Spans of a request, and how often a client asks which share of requests to trace."""
STORED, OWN_MIB, SPAN_MIB, COLLECTOR_LIMIT = 160.0, 96.0, 0.08, "512Mi"
"""Spans a second that one collector gets stored, and what it has in memory: a second of here is a minute of spans."""
QUIET_SHARE = 0.2
"""Of the requests of this cluster come to a sibling."""


@dataclass
class _Collectors:
    """What gets the spans of all apps: it keeps in memory what is not stored yet."""

    lab: Lab
    come: float = 1.0
    """The share of the usual requests that users make."""
    spans: float = 0.0
    """Each second, of all apps."""
    waiting: dict[tuple[str, float], float] = field(default_factory=dict)
    """Spans in the memory of each process, by its pod and its start."""
    told: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, float(FEW))])
    """Since when clients could know of each share."""

    async def run(self) -> None:
        image, last = f"registry.corp.example/{'/'.join(COLLECTOR)}", now()
        while True:
            await asyncio.sleep(0.5)
            seconds, last = (now() - last).total_seconds(), now()
            self._ask()
            there = [one for one in self.lab.kubelets.running() if one.app.image == image and one.problem is None]
            was, self.waiting = self.waiting, {}
            for one in there:
                key = (uid_of(one.container.pod), one.started.timestamp())
                more = (self.spans / len(there) - STORED) * seconds
                self.waiting[key] = max(0.0, was.get(key, 0.0) + more)

    def _ask(self) -> None:
        """How many spans there are, by what clients were told a while ago."""
        at, found = now().timestamp(), self.lab.world["ConfigMap"][COLLECTOR[0], STRATEGIES]["data"]
        if float(found[SHARE]) != self.told[-1][1]:
            self.told.append((at, float(found[SHARE])))
        share = next(one for since, one in reversed(self.told) if at - since >= ASKS_SECONDS + self.lab.lag)
        places = [(namespace, name) for namespace, names in APPS.items() for name in names]
        requests = sum(self.lab.traffic.of_app(*place, 5.0).answers.total() for place in places) / 5.0
        self.spans = requests * self.come * SPANS * share

    def memory(self, container: Container) -> float:
        """Of a process, in MiB."""
        uid, started = uid_of(container.pod), now().timestamp() - container.seconds
        found = (many for (one, since), many in self.waiting.items() if one == uid and abs(since - started) < 0.3)
        return OWN_MIB + next(found, 0.0) * SPAN_MIB

    def check(self, container: Container) -> Problem | None:
        much = self.memory(container)
        is_too_much = much > mebibytes(COLLECTOR_LIMIT)
        return Problem("oom", f"needs {much:.0f}Mi, may have {COLLECTOR_LIMIT}") if is_too_much else None


@family(
    "All apps ask the collectors of traces which share of their requests to trace. It is raised from one in a hundred"
    " to one in two, as was done in a sibling with far fewer users: the collectors get more than can be stored, keep"
    " it in memory, and are killed, again and again.",
    joined=49,
)
async def traces_of_half(lab: Lab) -> AsyncIterator[None]:
    """As users of collectors of traces tell of a share that was raised to find one fault."""
    by, sibling = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice(("eu-2", "staging"))
    raised, lowered = ({"data": {SHARE: one}} for one in (HALF, FEW))
    collectors = _Collectors(lab)
    await lab.app("monitoring", "trace-store", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="8.17.0")
    await lab.apply(objects.config_map("monitoring", STRATEGIES, **{SHARE: FEW}))
    upstreams = (("monitoring", "trace-store"),)
    like = App("", serves=False, upstreams=upstreams, check=collectors.check, memory_mi=int(OWN_MIB))
    limit = {"config": STRATEGIES, "memory": COLLECTOR_LIMIT}
    await lab.app(*COLLECTOR, like=like, replicas=2, tag="1.62.0", **limit)
    await rolled(lab, *COLLECTOR, "1.62.0")
    namespace, service = COLLECTOR
    count = lab.adding_up(lambda: collectors.spans)
    lab.measure("jaeger_collector_spans_received_total", count, "counter", namespace=namespace, service=service)
    length = lambda: sum(collectors.waiting.values())  # noqa: E731
    lab.measure("jaeger_collector_queue_length", length, namespace=namespace, service=service)
    restarted = lab.rate(lambda: restarts(lab.world, *COLLECTOR), 0.06, seconds=30)
    summary = f"containers of {'/'.join(COLLECTOR)} are restarting"
    lab.alert("KubePodCrashLooping", restarted, summary, 3, namespace=namespace, deployment=service)
    lab.alert_lacking(*COLLECTOR, seconds=8)
    lab.start(collectors.run())
    await lab.pause(6)
    await lab.until(lab.is_well)
    collectors.come = QUIET_SHARE
    async with before(lab, days=lab.rng.randrange(2, 9), cluster=sibling):
        await lab.pause(4)
        await lab.edit(by, "ConfigMap", "monitoring", STRATEGIES, raised)
        await lab.pause(16)
    await lab.edit("admin", "ConfigMap", "monitoring", STRATEGIES, lowered)
    await lab.pause(4)
    collectors.come = 1.0
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    await lab.culprit(by, "update", "ConfigMap", "monitoring", STRATEGIES, raised)


BASELINE, MOST, EACH = 300.0, 900.0, 9.0
"""Reads and writes a second that a disk always does and does while it has credits, and how many a request takes."""
SAVED = 4200.0
"""Credits: reads and writes beyond what it always does, all of which it has after a quiet night."""
GIVEN_UP_SECONDS = 1.5
BY_DAY, EVENING = 26.0, (58.0, 68.0)
"""Requests a second to the app that grows."""


@dataclass
class _Disk:
    """Of a database, of a kind that saves up what it does not do: once that is spent it is slow."""

    lab: Lab
    others: float
    comes: float = BY_DAY
    credits: float = SAVED
    waiting: float = 0.0
    """Reads and writes that wait."""

    @property
    def wanted(self) -> float:
        """Each second."""
        return (self.comes + self.others) * EACH

    @property
    def does(self) -> float:
        return MOST if self.credits > 0 else BASELINE

    async def run(self) -> None:
        last = now()
        while True:
            await asyncio.sleep(0.5)
            seconds, last = (now() - last).total_seconds(), now()
            done = min(self.does, self.wanted + self.waiting / seconds)
            self.waiting = min(3 * self.does, max(0.0, self.waiting + (self.wanted - done) * seconds))
            self.credits = min(SAVED, max(0.0, self.credits + (BASELINE - done) * seconds))

    @property
    def wait(self) -> float:
        """Seconds that a request waits for its reads; who asks gives up after a while."""
        return min(2.0, self.waiting / self.does)

    @property
    def given_up(self) -> float:
        """The share of requests whose reads come too late."""
        return max(0.0, 1 - self.does / self.wanted) if self.wait >= GIVEN_UP_SECONDS else 0.0


@family(
    "A database is on a disk of the cloud that does only so much for ever, and more for as long as it has saved up what"
    " it did not do. Users have become more from week to week, and this evening they are more for longer than what was"
    " saved is enough for: each query waits, of both apps that share it. One of them was released just before.",
    culprit=False,
    joined=49,
)
async def saved_up(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a database on a volume with burst credits, whose graph falls to nothing in one evening."""
    namespace, name, other = lab.rng.choice(
        (("shop", "order-history", "loyalty"), ("media", "watchlist", "profiles"), ("payments", "statements", "cards"))
    )
    team, database, number = lab.rng.choice(("ci", "argocd")), f"{namespace}-db", lab.rng.randrange(2, 30)
    disk = _Disk(lab, others=lab.rng.uniform(5, 7))
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.6")
    await lab.until(lambda: backends(lab.world, namespace, database))
    asked = {name: lambda: disk.comes, other: lambda: disk.others}
    for one, tag in ((name, f"3.{number}.0"), (other, f"2.{number}.4")):
        upstreams = ((namespace, database),)
        like = App(
            "",
            upstreams=upstreams,
            asked=asked[one],
            latency=lambda _: disk.wait,
            failing=lambda _: disk.given_up,
            fails_with=lambda _: "503",
        )
        await lab.app(namespace, one, like=like, replicas=3, tag=tag)
        await rolled(lab, namespace, one, tag)
        lab.alert_errors(namespace, one, 0.1)
        lab.alert_slow(namespace, one)
    await publish(lab, namespace, name)
    lab.reserve(namespace, other)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    active = lambda: 2.0 + disk.waiting / EACH  # noqa: E731
    lab.measure("pg_stat_activity_count", active, namespace=namespace, service=database, state="active")
    lab.start(disk.run())
    await lab.until(lab.is_well)
    yield
    evening = lab.rng.uniform(*EVENING)
    await lab.pause(lab.rng.uniform(1, 5))
    while disk.comes < evening:
        disk.comes += lab.rng.uniform(1.0, 4.0)
        await lab.pause(1)
    await lab.roll(team, namespace, other, f"2.{number}.5")
