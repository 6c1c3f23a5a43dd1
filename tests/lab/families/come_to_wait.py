"""Come to wait: messages that one of those who read them cannot read, and all at once what a partner had not sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.scenario import family


def _well(lab: Lab, app: App) -> list[Container]:
    """The containers of an app that run and are well."""
    return [one.container for one in lab.kubelets.running() if one.app is app and one.problem is None]


@dataclass
class _Reader:
    """Of a topic: one app, whose processes take so many messages a second."""

    lab: Lab
    each: float
    reads_all: bool = True
    ends: bool = False
    """Whether a process ends at what it cannot read; else it tries again and again."""
    app: App = field(default_factory=lambda: App("", serves=False))
    waiting: float = 0.0
    has_unread: bool = False
    """Whether the next one is such that it cannot read it."""
    handled: float = 0.0
    """In the last second."""

    def check(self, container: Container) -> Problem | None:
        why = "SerializationException: Error deserializing Avro message: Unknown magic byte!"
        is_met = self.has_unread and container.seconds > 1
        return Problem("crash", f"org.apache.kafka.common.errors.{why}", at_once=True) if self.ends and is_met else None

    def take(self, come: float, *, readable: bool) -> None:
        """What has come in a second is behind what waits: nothing behind one that cannot be read is taken."""
        self.has_unread = self.has_unread or not (readable or self.reads_all)
        self.waiting += come
        able = 0.0 if self.has_unread else self.each * len(_well(self.lab, self.app))
        self.handled = min(self.waiting, able)
        self.waiting -= self.handled


@dataclass
class _Topic:
    """What is sent to it, and who reads it."""

    lab: Lab
    sender: App
    comes: Callable[[], float]
    readers: dict[str, _Reader]
    new: str = ""
    """The version of the sender that writes in another form."""

    def sent(self) -> float:
        return self.comes() if _well(self.lab, self.sender) else 0.0

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(1)
            come = self.sent() * self.lab.kubelets.rng.uniform(0.85, 1.15)
            senders = _well(self.lab, self.sender)
            is_new = any(one.tag == self.new and one.seconds >= self.lab.lag for one in senders)
            for one in self.readers.values():
                one.take(come, readable=not is_new)

    def tell(self, namespace: str, broker: str, topic: str) -> None:
        """The broker's exporter of it."""
        told = {"namespace": namespace, "service": broker, "topic": topic}
        self.lab.measure("kafka_topic_messages_in_total", self.lab.adding_up(self.sent), "counter", **told)
        for group, one in self.readers.items():
            waiting = lambda one=one: round(one.waiting)  # noqa: E731
            self.lab.measure("kafka_consumergroup_lag", waiting, **told, consumergroup=group)


@family(
    "A new version of an app writes its messages in another form. One of the two apps that read them has been made"
    " ready for it. The other one, of another team, cannot read them and gets no further than the first of them: what"
    " it has to read grows from minute to minute.",
    joined=103,
)
async def read_by_nobody(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had asked everybody whom they knew."""
    namespace, name, own, (home, reader), front, topic = lab.rng.choice(
        (
            ("shop", "order-events", "order-mailer", ("payments", "invoice-writer"), "order-view", "orders"),
            ("payments", "payment-events", "receipt-writer", ("shop", "parcel-release"), "pay-view", "payments"),
            ("media", "play-events", "play-counter", ("search", "trend-index"), "play-view", "plays"),
            ("search", "click-events", "click-counter", ("media", "advice-maker"), "click-view", "clicks"),
        )
    )
    by, minor, broker = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 60), "events-kafka"
    old, new, comes = f"5.{minor}.2", f"5.{minor + 1}.0", lab.rng.uniform(16, 24)
    to = ((namespace, broker),)
    first = _Reader(lab, 15.0, app=App("", upstreams=to, serves=False))
    other = _Reader(lab, 15.0, False, lab.rng.random() < 0.5, App("", upstreams=to, serves=False))
    other.app.check = other.check
    sender = App("", upstreams=to, asked=lambda: 22.0)
    messages = _Topic(lab, sender, lambda: comes, {own: first, reader: other}, new)
    brokers = [{"name": "KAFKA_BROKERS", "value": f"{broker}.{namespace}:9092"}]
    await stored(lab, namespace, broker)
    for place, one in (((namespace, own), first), ((home, reader), other)):
        await lab.apply(objects.config_map(*place, LOG_LEVEL="info", MAX_POLL_RECORDS="200"))
        await lab.app(*place, like=one.app, replicas=3, tag="2.8.0", config=place[1], env=brokers)
    await lab.app(namespace, name, like=sender, replicas=3, tag=old, env=brokers)
    for place, tag in (((namespace, own), "2.8.0"), ((home, reader), "2.8.0"), ((namespace, name), old)):
        await rolled(lab, *place, tag)
        lab.reserve(*place)
    await set_before(lab, namespace, front, name)
    messages.tell(namespace, broker, topic)
    for place, one in (((namespace, own), first), ((home, reader), other)):
        counted = {"namespace": place[0], "service": place[1], "topic": topic}
        handled = lab.adding_up(lambda one=one: one.handled)  # type: ignore[misc]
        lab.measure("messages_handled_total", handled, "counter", **counted)
        told = {"namespace": namespace, "topic": topic, "consumergroup": place[1]}
        summary = f"{place[1]} is more than 250 messages of {topic} behind"
        lab.alert("KafkaConsumerLagHigh", lambda one=one: one.waiting > 250, summary, 5, **told)  # type: ignore[misc]
    many = partial(restarts, lab.world, home, reader)
    summary = f"containers of {home}/{reader} restart again and again"
    lab.alert("KubePodCrashLooping", lambda: many() > 3, summary, 4, namespace=home, container=reader)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(messages.run())
    await lab.pause(3)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, own, "2.9.0")
    await lab.pause(lab.rng.uniform(6, 11))
    polls = {"data": {"MAX_POLL_RECORDS": lab.rng.choice(("100", "500"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, reader, polls)
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


@family(
    "No culprit. A partner's system has been down since the night, and what it would have sent has waited there. It is"
    " up again and sends all of it at once. Everything is taken in and stands in the queue, which is hours long, and"
    " what others send from now on waits behind it.",
    culprit=False,
    joined=103,
)
async def all_that_had_waited(lab: Lab) -> AsyncIterator[None]:
    """As those tell who were asked what they had changed, and it was somebody else's night."""
    namespace, inbox, worker, front, topic, partners = lab.rng.choice(
        (
            ("shop", "parcel-inbox", "parcel-tracker", "track-page", "parcel-states", ("norpost", "kurier", "tollo")),
            ("payments", "bank-files", "booking-matcher", "account-view", "bookings", ("alba", "fjord", "savio")),
            ("media", "rights-inbox", "rights-writer", "rights-page", "rights", ("sona", "gamma", "lirik")),
            ("search", "offer-inbox", "offer-indexer", "offers-page", "offers", ("mercato", "vendo", "laden")),
        )
    )
    late, broker, minor = lab.rng.choice(partners), "events-kafka", lab.rng.randrange(2, 40)
    usual, much, sends = lab.rng.uniform(9, 13), lab.rng.uniform(60, 110), [0.0]

    def of(one: str) -> float:
        """Messages a second of a partner; of the one that is down none until it is up."""
        return sends[0] if one == late else usual

    to = ((namespace, broker),)
    taken = App("", upstreams=to, asked=lambda: sum(map(of, partners)), capacity=400.0)
    reader = _Reader(lab, 13.0, app=App("", upstreams=to, serves=False))
    messages = _Topic(lab, taken, lambda: sum(map(of, partners)), {worker: reader})
    brokers = [{"name": "KAFKA_BROKERS", "value": f"{broker}.{namespace}:9092"}]
    await stored(lab, namespace, broker)
    await lab.apply(objects.config_map(namespace, worker, LOG_LEVEL="info", BATCH_SIZE="100"))
    await lab.app(namespace, worker, like=reader.app, replicas=3, tag=f"1.{minor}.0", config=worker, env=brokers)
    await lab.apply(objects.config_map(namespace, inbox, LOG_LEVEL="info", MAX_ITEMS="500"))
    await lab.app(namespace, inbox, like=taken, replicas=2, tag="3.1.4", config=inbox, env=brokers)
    await rolled(lab, namespace, worker, f"1.{minor}.0")
    await rolled(lab, namespace, inbox, "3.1.4")
    await set_before(lab, namespace, front, inbox)
    lab.reserve(namespace, worker)
    messages.tell(namespace, broker, topic)
    for one in partners:
        told = {"namespace": namespace, "service": inbox, "partner": one}
        lab.measure("items_received_total", lab.adding_up(partial(of, one)), "counter", **told)
    counted = {"namespace": namespace, "service": worker, "topic": topic}
    lab.measure("messages_handled_total", lab.adding_up(lambda: reader.handled), "counter", **counted)
    summary = f"{worker} is more than 500 messages of {topic} behind"
    told = {"namespace": namespace, "topic": topic, "consumergroup": worker}
    lab.alert("KafkaConsumerLagHigh", lambda: reader.waiting > 500, summary, 5, **told)
    lab.alert_errors(namespace, inbox)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(messages.run())
    await lab.pause(3)
    await lab.until(lab.is_well)

    async def is_up_again() -> None:
        await lab.pause(lab.rng.uniform(4, 11))
        sends[0] = much

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, worker, {"data": {"BATCH_SIZE": "150"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, worker, f"1.{minor}.1")
    else:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, inbox, "3.1.5")
    lab.start(is_up_again())
