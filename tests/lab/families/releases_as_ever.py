"""Releases as they go wrong everywhere: for some of what is asked, for memory, for time; and a provider's bad day."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


def _containers(lab: Lab, app: App) -> list[Container]:
    """Those of an app that run and are well."""
    return [one.container for one in lab.kubelets.running() if one.app is app and one.problem is None]


@family(
    "A release of an app handles one kind of what it is asked for wrongly: whoever comes with that gets an error each"
    " time, which is some per cent of the requests, and all others are served as ever.",
    joined=76,
)
async def throws_for_some(lab: Lab) -> AsyncIterator[None]:
    """As releases do whose tests had an example of each kind but one."""
    namespace, name, called, front, done, label, kinds = lab.rng.choice(
        (
            ("shop", "orders", "stock", "order-page", "orders_placed_total", "paid_by", ("card", "invoice", "voucher")),
            ("media", "plans", "invoices", "plan-page", "plans_changed_total", "plan", ("monthly", "yearly", "family")),
            ("payments", "payouts", "holders", "payout-page", "payouts_made_total", "currency", ("eur", "usd", "chf")),
        )
    )
    share, minor = lab.rng.uniform(0.08, 0.15), lab.rng.randrange(12, 70)
    old, new, by = f"3.{minor}.1", f"3.{minor + 1}.0", lab.rng.choice(("ci", "argocd", "flux"))
    shares = dict(zip(kinds, (0.7 - share, 0.3, share), strict=True))

    def fails(container: Container) -> float:
        return share if container.tag == new and container.seconds >= lab.lag else 0.0

    like = App("", upstreams=((namespace, called),), asked=lambda: 36.0, failing=fails)

    def made(kind: str) -> Callable[[], float]:
        """How often a second one of a kind is done: the last kind, by those of its processes that still can."""

        def rate() -> float:
            there = _containers(lab, like)
            well = sum(not fails(one) for one in there) / max(1, len(there)) if kind == kinds[-1] else 1.0
            return 36 * shares[kind] * well

        return rate

    await lab.app(namespace, called, replicas=2, tag="1.9.0")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="900"))
    await lab.app(namespace, name, like=like, replicas=4, tag=old, config=name)
    await rolled(lab, namespace, name, old)
    await lab.until(lambda: backends(lab.world, namespace, name))
    shown = App("", upstreams=((namespace, name),), asked=lambda: 30.0)
    await lab.app(namespace, front, like=shown, replicas=2, tag="4.4.2")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    for kind in kinds:
        told = {"namespace": namespace, "service": name, label: kind}
        lab.measure(done, lab.adding_up(made(kind)), "counter", **told)
    lab.alert_errors(namespace, name, 0.03)
    lab.alert_errors(namespace, front, 0.03)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.edit("ci", "Deployment", namespace, called, {"spec": {"replicas": 3}})

    await lab.edit("bob", "ConfigMap", namespace, name, {"data": {"TIMEOUT_MS": lab.rng.choice(("700", "1200"))}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll("ci", namespace, called, "1.9.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


BASE_MIB, LIMIT_MIB = 150.0, 512.0
"""What a process has after its start, and may have."""


@family(
    "A release of an app keeps a little of each request for ever. All is well for a while after it is rolled out; then"
    " one container after the other is ended for want of memory, starts anew, and is ended again.",
    joined=76,
)
async def leaks_until_killed(lab: Lab) -> AsyncIterator[None]:
    """The most usual of leaks: a map that only ever gets entries."""
    namespace, name, called, front = lab.rng.choice(
        (
            ("media", "avatar-resizer", "profile-store", "profile-page"),
            ("search", "facets", "facet-store", "results-page"),
            ("shop", "recommender", "taste-store", "landing-page"),
        )
    )
    lasts, minor = lab.rng.uniform(17, 23), lab.rng.randrange(10, 60)
    old, new, by = f"1.{minor}.3", f"1.{minor + 1}.0", lab.rng.choice(("ci", "argocd", "flux"))

    def memory(container: Container) -> float:
        """In MiB: some get more of the requests than others."""
        uneven = 0.85 + (crc32(container.pod["metadata"]["uid"].encode()) % 30) / 100
        grown = container.seconds / (lasts * uneven) if container.tag == new else 0.0
        return BASE_MIB + grown * (LIMIT_MIB - BASE_MIB)

    def ended(container: Container) -> Problem | None:
        had = memory(container)
        return Problem("oom", f"has {had:.0f}Mi, may have {LIMIT_MIB:.0f}Mi") if had > LIMIT_MIB else None

    like = App("", upstreams=((namespace, called),), asked=lambda: 30.0, check=ended)

    def most() -> float | None:
        return max((memory(one) * 2**20 for one in _containers(lab, like)), default=None)

    await lab.app(namespace, called, replicas=2, tag="2.2.0")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", WORKERS="4"))
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name, memory=f"{LIMIT_MIB:.0f}Mi")
    await rolled(lab, namespace, name, old)
    await lab.until(lambda: backends(lab.world, namespace, name))
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="9.0.3")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    told = {"namespace": namespace, "service": name, "container": name}
    lab.measure("container_memory_working_set_bytes", most, **told)
    summary = f"containers of {namespace}/{name} were OOM killed several times within an hour"
    killed = lambda: restarts(lab.world, namespace, name) >= 4  # noqa: E731
    lab.alert("KubeContainerOOMKilled", killed, summary, namespace=namespace, container=name)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        """Others go on with their work, as nothing is to be seen."""
        await lab.pause(lab.rng.uniform(8, 12))
        await lab.roll("ci", namespace, called, "2.2.1")
        await lab.pause(lab.rng.uniform(6, 10))
        await lab.edit("carol", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "debug"}})
        await lab.pause(lab.rng.uniform(6, 10))
        await lab.roll("ci", namespace, front, "9.0.4")

    await lab.edit("ci", "ConfigMap", namespace, name, {"data": {"WORKERS": lab.rng.choice(("3", "6"))}})
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


@dataclass
class _Queue:
    """Messages that wait: some come each second, and each process of the consumer takes one after the other."""

    lab: Lab
    consumer: App
    comes: float
    takes: Callable[[Container], float]
    """Seconds for each message."""
    waiting: float = 0.0

    def rate(self) -> float:
        """Messages a second that all its processes could take."""
        return sum(1 / self.takes(one) for one in _containers(self.lab, self.consumer))

    def handled(self) -> float:
        return self.rate() if self.waiting > self.comes else min(self.comes, self.rate())

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.waiting = max(0.0, self.waiting + self.comes * self.lab.rng.uniform(0.85, 1.15) - self.rate())


@family(
    "A release of a consumer asks somebody else once more for each message, and takes a good deal longer for it than"
    " messages come in. Nothing fails; its queue grows, and what is in there comes later and later.",
    joined=76,
)
async def slower_consumer(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found the queue first, and looked for a producer that had gone wild."""
    namespace, producer, broker, consumer, asked, queue = lab.rng.choice(
        (
            ("shop", "order-api", "order-bus", "receipt-sender", "address-book", "receipts"),
            ("media", "upload-api", "media-bus", "transcript-maker", "speech-terms", "transcripts"),
            ("payments", "transfer-api", "transfer-bus", "booking-writer", "sanction-lists", "bookings"),
        )
    )
    slow, minor, by = lab.rng.uniform(0.24, 0.32), lab.rng.randrange(5, 40), lab.rng.choice(("ci", "argocd", "flux"))
    old, new = f"2.{minor}.4", f"2.{minor + 1}.0"

    def takes(container: Container) -> float:
        return slow if container.tag == new and container.seconds >= lab.lag else 0.08

    await lab.apply(objects.config_map(namespace, broker, heartbeat="60", channel_max="2047"))
    await lab.app(namespace, broker, like=App("", serves=False), kind="StatefulSet", tag="4.0.5", config=broker)
    await lab.app(namespace, asked, replicas=2, tag="1.1.7")
    await lab.until(lambda: backends(lab.world, namespace, broker) and backends(lab.world, namespace, asked))
    like = App("", upstreams=((namespace, broker), (namespace, asked)), serves=False)
    await lab.app(namespace, consumer, like=like, replicas=3, tag=old)
    sent = App("", upstreams=((namespace, broker),), asked=lambda: 24.0)
    await lab.app(namespace, producer, like=sent, replicas=2, tag="6.3.0")
    await rolled(lab, namespace, consumer, old)
    await lab.until(lambda: backends(lab.world, namespace, producer))
    await publish(lab, namespace, producer)
    messages = _Queue(lab, like, 22.0, takes)
    told = {"namespace": namespace, "service": broker, "queue": queue}
    lab.measure("rabbitmq_queue_messages_ready", lambda: messages.waiting, **told)
    lab.measure("rabbitmq_queue_consumers", lambda: float(len(_containers(lab, like))), **told)
    lab.measure("rabbitmq_queue_messages_published_total", lab.adding_up(lambda: messages.comes), "counter", **told)
    counted = {"namespace": namespace, "service": consumer, "queue": queue}
    lab.measure("messages_handled_total", lab.adding_up(messages.handled), "counter", **counted)
    summary = f"more than 150 messages wait in queue {queue}"
    lab.alert("QueueBacklog", lambda: messages.waiting > 150, summary, 5, **told)
    lab.start(messages.run())
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.edit("ci", "Deployment", namespace, producer, {"spec": {"replicas": 3}})

    await lab.edit("flux", "ConfigMap", namespace, broker, {"data": {"channel_max": "4095"}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll("ci", namespace, producer, "6.3.1")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, consumer, new, culprit=True)
    lab.start(afterwards())


@family(
    "No culprit. The provider by whom an app has its customers' cards charged has an outage: it answers most calls with"
    " an error or not at all, and checkouts fail until it is well again.",
    culprit=False,
    joined=76,
)
async def provider_outage(lab: Lab) -> AsyncIterator[None]:
    """As each of them has it some afternoon."""
    namespace, name, host, called, front = lab.rng.choice(
        (
            ("payments", "card-gateway", "api.cardhouse.example", "card-vault", "pay-page"),
            ("shop", "order-payments", "pay.acquirer.example", "order-ledger", "basket-page"),
            ("media", "subscription-billing", "charge.billco.example", "plan-ledger", "plan-page"),
        )
    )
    share, hangs, is_down = lab.rng.uniform(0.6, 0.9), lab.rng.random() < 0.5, [False]

    def fails(_: Container) -> float:
        return share if is_down[0] else 0.0

    def waits(_: Container) -> float:
        return share * 3.0 if is_down[0] and hangs else 0.0

    def answered(*, well: bool) -> Callable[[], float]:
        """Calls a second that the provider answers well, or not."""
        return lambda: 16 * (1 - share if well else share) if is_down[0] else 16.0 * well

    await lab.app(namespace, called, replicas=2, tag="3.1.4")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="3000"))
    like = App(
        "",
        upstreams=((namespace, called),),
        abroad=(host,),
        asked=lambda: 20.0,
        failing=fails,
        fails_with=lambda _: "504" if hangs else "502",
        latency=waits,
    )
    await lab.app(namespace, name, like=like, replicas=3, tag="5.8.0", config=name)
    await rolled(lab, namespace, name, "5.8.0")
    await lab.until(lambda: backends(lab.world, namespace, name))
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.6.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    told = {"namespace": namespace, "service": name, "host": host}
    calls = "http_client_requests_total"
    lab.measure(calls, lab.adding_up(answered(well=True)), "counter", **told, code="200")
    lab.measure(calls, lab.adding_up(answered(well=False)), "counter", **told, code="timeout" if hangs else "503")
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, called, "3.1.5")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.edit("alice", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "2.6.2")
    await lab.pause(lab.rng.uniform(4, 12))
    is_down[0] = True
