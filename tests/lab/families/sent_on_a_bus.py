"""What goes through queues: messages in a new form, and more of them at once than ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


def _well(lab: Lab, app: App) -> list[Container]:
    """The containers of an app that run and are well."""
    return [one.container for one in lab.kubelets.running() if one.app is app and one.problem is None]


@dataclass
class _Queue:
    """Messages that wait, some of them in the new form; its consumer takes them in their order."""

    lab: Lab
    producer: App
    consumer: App
    comes: float
    each: float
    """Messages a second that a process of the consumer takes."""
    new: str = ""
    """The version of the producer that sends the new form."""
    ends: bool = False
    """Whether a process of the consumer ends at what it cannot read; else it puts that aside."""
    waiting: float = 0.0
    unread: float = 0.0
    """Of those, in the new form."""
    aside: float = 0.0
    handled: float = 0.0
    """In the last second."""

    def share(self) -> float:
        """Of what is sent, in the new form: by the processes of the producer that send."""
        there = _well(self.lab, self.producer)
        new = sum(one.tag == self.new and one.seconds >= self.lab.lag for one in there)
        return new / max(1, len(there))

    def check(self, container: Container) -> Problem | None:
        """Of the consumer: it has taken a message soon after its start."""
        why = "panic: json: cannot unmarshal object into Go struct field Event.id of type int64"
        return Problem("crash", why, at_once=True) if self.ends and self.unread > 1 and container.seconds > 1 else None

    def rate(self) -> float:
        """Messages a second that its consumers could take."""
        is_held = self.ends and self.unread > 1
        return 0.0 if is_held else self.each * len(_well(self.lab, self.consumer))

    def sent(self) -> float:
        return self.comes if _well(self.lab, self.producer) else 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            come = self.sent() * self.lab.rng.uniform(0.85, 1.15)
            unread = come * self.share()
            self.waiting, self.unread = self.waiting + come, self.unread + unread
            taken = min(self.waiting, self.rate())
            in_vain = self.unread * taken / max(1.0, self.waiting)
            if not self.ends:
                self.aside, self.unread = self.aside + in_vain, self.unread - in_vain
            self.waiting, self.handled = self.waiting - taken, taken - in_vain


@family(
    "A release of what sends messages writes one of their fields in a new form. Who reads them is another team's app"
    " that was not told, and is as it was for weeks: it cannot read them, and puts them aside, or ends at each.",
    joined=82,
)
async def new_form(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had a schema for what their APIs answer, and none for what is in their queues."""
    namespace, producer, broker, consumer, front, queue = lab.rng.choice(
        (
            ("shop", "order-intake", "order-bus", "warehouse-sync", "order-form", "orders-placed"),
            ("payments", "refund-intake", "refund-bus", "refund-payer", "refund-form", "refunds-asked"),
            ("media", "view-intake", "view-bus", "royalty-counter", "watch-view", "views-ended"),
        )
    )
    minor, by = lab.rng.randrange(5, 60), lab.rng.choice(("ci", "argocd", "flux"))
    old, new = f"4.{minor}.1", f"4.{minor + 1}.0"
    like = App("", upstreams=((namespace, broker),), serves=False)
    sends = App("", upstreams=((namespace, broker),), asked=lambda: 24.0)
    messages = _Queue(lab, sends, like, comes=20.0, each=12.0, new=new, ends=lab.rng.random() < 0.5)
    like.check = messages.check
    await lab.apply(objects.config_map(namespace, broker, heartbeat="60", channel_max="2047"))
    store = App("", serves=False)
    await lab.app(namespace, broker, like=store, kind="StatefulSet", replicas=1, tag="4.0.5", config=broker)
    await lab.until(lambda: backends(lab.world, namespace, broker))
    await lab.apply(objects.config_map(namespace, consumer, LOG_LEVEL="info", PREFETCH="20"))
    await lab.app(namespace, consumer, like=like, replicas=3, tag="1.31.0", config=consumer)
    await lab.app(namespace, producer, like=sends, replicas=3, tag=old)
    await rolled(lab, namespace, consumer, "1.31.0")
    await rolled(lab, namespace, producer, old)
    await set_before(lab, namespace, front, producer)
    told = {"namespace": namespace, "service": broker, "queue": queue}
    lab.measure("rabbitmq_queue_messages_ready", lambda: messages.waiting, **told)
    lab.measure("rabbitmq_queue_messages_published_total", lab.adding_up(messages.sent), "counter", **told)
    counted = {"namespace": namespace, "service": consumer, "queue": queue}
    lab.measure("messages_handled_total", lab.adding_up(lambda: messages.handled), "counter", **counted)
    if messages.ends:
        summary = f"more than 150 messages wait in queue {queue}"
        lab.alert("QueueBacklog", lambda: messages.waiting > 150, summary, 5, **told)
        crashes = lambda: restarts(lab.world, namespace, consumer) > 3  # noqa: E731
        summary = f"containers of {namespace}/{consumer} are restarted again and again"
        lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=consumer)
    else:
        dead = {**told, "queue": f"{queue}-dead"}
        lab.measure("rabbitmq_queue_messages_ready", lambda: messages.aside, **dead)
        summary = f"more than 60 messages of {queue} were put aside"
        lab.alert("DeadLetters", lambda: messages.aside > 60, summary, 3, **dead)
    lab.start(messages.run())
    await lab.pause(3)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 5))
        await change_page(lab, namespace, front)

    await lab.edit("alice", "ConfigMap", namespace, consumer, {"data": {"PREFETCH": lab.rng.choice(("10", "30"))}})
    await lab.pause(lab.rng.uniform(3, 7))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, producer, new, culprit=True)
    lab.start(afterwards())


@family(
    "No culprit. A partner, who sends some items each minute as a rule, sends all that they have at once, as they have"
    " begun anew with an import. All of it is taken in; the queue behind is as long as what is done in hours.",
    culprit=False,
    joined=82,
)
async def whole_import(lab: Lab) -> AsyncIterator[None]:
    """As those tell who let partners send as much as they like."""
    namespace, inbox, broker, consumer, front, queue, partners = lab.rng.choice(
        (
            ("shop", "seller-inbox", "offer-bus", "offer-writer", "seller-desk", "offers", ("acme", "norva", "tuli")),
            ("media", "label-inbox", "track-bus", "track-importer", "label-desk", "tracks", ("blau", "kite", "mono")),
            ("payments", "bank-inbox", "entry-bus", "entry-matcher", "bank-desk", "entries", ("alba", "sund", "ried")),
        )
    )
    usual, much, rises = lab.rng.uniform(9, 12), lab.rng.uniform(70, 110), [False]
    partner = lab.rng.choice(partners)

    def comes() -> float:
        return 3 * usual + rises[0] * much

    def of(one: str) -> Callable[[], float]:
        """Items a second of a partner."""
        return lambda: usual + (much if rises[0] and one == partner else 0.0)

    sends = App("", upstreams=((namespace, broker),), asked=comes, capacity=400.0)
    like = App("", upstreams=((namespace, broker),), serves=False)
    messages = _Queue(lab, sends, like, comes=comes(), each=15.0)
    await lab.app(namespace, broker, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="4.0.5")
    await lab.until(lambda: backends(lab.world, namespace, broker))
    await lab.apply(objects.config_map(namespace, consumer, LOG_LEVEL="info", BATCH_SIZE="100"))
    await lab.app(namespace, consumer, like=like, replicas=3, tag="2.4.0", config=consumer)
    await lab.app(namespace, inbox, like=sends, replicas=2, tag="1.9.0")
    await rolled(lab, namespace, consumer, "2.4.0")
    await rolled(lab, namespace, inbox, "1.9.0")
    await set_before(lab, namespace, front, inbox)
    for one in partners:
        told = {"namespace": namespace, "service": inbox, "partner": one}
        lab.measure("items_received_total", lab.adding_up(of(one)), "counter", **told)
    told = {"namespace": namespace, "service": broker, "queue": queue}
    lab.measure("rabbitmq_queue_messages_ready", lambda: messages.waiting, **told)
    counted = {"namespace": namespace, "service": consumer, "queue": queue}
    lab.measure("messages_handled_total", lab.adding_up(lambda: messages.handled), "counter", **counted)
    summary = f"more messages wait in queue {queue} than its consumer takes in ten minutes"
    lab.alert("QueueBacklog", lambda: messages.waiting > 450, summary, 5, **told)

    async def sent() -> None:
        await lab.pause(lab.rng.uniform(5, 12))
        rises[0] = True
        messages.comes = comes()

    lab.start(messages.run())
    await lab.pause(3)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, inbox, "1.9.1")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.edit("carol", "ConfigMap", namespace, consumer, {"data": {"BATCH_SIZE": lab.rng.choice(("80", "150"))}})
    await lab.pause(lab.rng.uniform(3, 7))
    await change_page(lab, namespace, front)
    lab.start(sent())
