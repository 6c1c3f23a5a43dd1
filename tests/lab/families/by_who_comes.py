"""By who comes from outside: a partner's message that nobody can read, and machines in the place of customers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

# -- a message

HANDLES, COMES = 9.0, 21.0
"""Messages a second that a consumer handles, and that come."""
TAKES_SECONDS = 1.0
"""After which a consumer that has just started is given messages."""
WORDS = (
    "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 41 [running]:\nmain.(*Consumer).handle",
    'Exception in thread "main" com.fasterxml.jackson.core.JsonParseException: Unexpected end-of-input in field name',
    "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column 4182 (char 4181)",
    "UnhandledPromiseRejection: TypeError: Cannot read properties of undefined (reading 'amount')",
)
LATE_SECONDS = 6.0


@dataclass
class _Queue:
    """Of a broker that gives a message to the next consumer where the one that has it goes without an answer."""

    lab: Lab
    like: App
    words: str
    waiting: float = 0.0
    is_sent: bool = False
    holder: tuple[str, datetime] | None = None
    """The process that has the bad one: the uid of its pod, and when it started."""
    delivered: int = 0

    def _processes(self) -> dict[str, datetime]:
        there = [one for one in self.lab.kubelets.running() if one.app is self.like]
        return {uid_of(one.container.pod): one.started for one in there}

    def check(self, container: Container) -> Problem | None:
        uid, there = uid_of(container.pod), self._processes()
        if self.holder and there.get(self.holder[0]) != self.holder[1]:
            self.holder = None
        if self.is_sent and not self.holder and uid in there and container.seconds >= TAKES_SECONDS:
            self.holder = uid, there[uid]
            self.delivered += 1
        return Problem("crash", self.words, at_once=True) if self.holder and self.holder[0] == uid else None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            working = len(self._processes()) - bool(self.holder)
            self.waiting = max(0.0, self.waiting + (COMES - HANDLES * max(0, working)) / 2)

    def age(self) -> float:
        """Seconds that the oldest message has waited, about."""
        return self.waiting / COMES


@family(
    "No culprit. A partner sends a message that nobody can read. The consumer that takes it ends on it without an"
    " answer, so that the broker gives it to the next one, and to the first again as it is back.",
    culprit=False,
    joined=94,
)
async def delivered_again(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found the same stack in all of their pods, and no release of the week."""
    namespace, name, front, other, key = lab.rng.choice(
        (
            ("shop", "supplier-orders", "suppliers-page", "supplier-mails", "suppliers.orders"),
            ("payments", "bank-notices", "notices-page", "notices-export", "bank.notices"),
            ("media", "label-feed", "releases-page", "label-reports", "labels.releases"),
            ("search", "partner-items", "partners-page", "partner-reports", "partners.items"),
        )
    )
    minor, bus = lab.rng.randrange(2, 40), f"{name}-mq"
    like = App("", upstreams=((namespace, bus),), serves=False)
    queue = _Queue(lab, like, lab.rng.choice(WORDS))
    like.check = queue.check
    await lab.app(namespace, bus, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="4.1.2")
    await lab.until(lambda: backends(lab.world, namespace, bus))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PREFETCH="10"))
    await lab.app(namespace, name, like=like, replicas=lab.rng.choice((3, 4)), tag=f"3.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.5.1", config=other)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await rolled(lab, namespace, other, "1.5.1")
    await set_before(lab, namespace, front, other)
    lab.reserve(namespace, name, bus)
    told = {"namespace": namespace, "service": bus, "queue": key}
    lab.measure("rabbitmq_queue_messages_ready", lambda: round(queue.waiting), **told)
    lab.measure("rabbitmq_queue_messages_redelivered_total", lambda: queue.delivered, "counter", **told)
    is_late = lambda: queue.age() > LATE_SECONDS  # noqa: E731
    summary = f"what waits in the queue {key} has waited for too long"
    lab.alert("RabbitmqMessagesLate", is_late, summary, 4, namespace=namespace, service=name, queue=key)
    many = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    summary = f"a pod of {namespace}/{name} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.start(queue.run())
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.5.2")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"PREFETCH": "20"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 10))
    queue.is_sent = True


# -- machines

USERS, EACH_STANDS = 22.0, 17.0


@dataclass
class _Door:
    """An app that customers ask, and machines that ask it many times as often from one minute to the next."""

    lab: Lab
    namespace: str
    name: str
    refused: str
    """What the machines are answered as a rule; "" where that is like everybody."""
    machines: float = 0.0
    _felt: Lately = field(init=False)

    def __post_init__(self) -> None:
        self._felt = Lately(self.lab, lambda: self.machines > 0)

    def asked(self) -> float:
        return USERS + self.machines

    def over(self) -> float:
        return self.asked() / (EACH_STANDS * max(1, len(backends(self.lab.world, self.namespace, self.name))))

    def lost(self) -> float:
        return min(0.85, max(0.0, 1 - 1 / self.over())) if self._felt() else 0.0

    def fails(self, _: Container) -> float:
        """Those that are not served, and those of the others whose password is wrong."""
        guessed = self.machines / self.asked() if self.refused else 0.0
        return self.lost() + (1 - self.lost()) * guessed

    def status(self, container: Container) -> str:
        share = self.lost() / max(1e-9, self.fails(container))
        return "503" if not self.refused or self.lab.kubelets.rng.random() < share else self.refused

    def waits(self, _: Container) -> float:
        return min(2.5, max(0.0, 1.2 * (self.over() - 0.9))) if self._felt() else 0.0

    async def come(self, most: float) -> None:
        """From more and more addresses."""
        rng = self.lab.kubelets.rng
        while True:
            self.machines = min(most * rng.uniform(0.9, 1.1), self.machines + most * rng.uniform(0.06, 0.14))
            await asyncio.sleep(0.5)


@family(
    "No culprit. Somebody tries passwords at the login with a list of stolen ones, or a crawler has found the page of"
    " results: an app is asked many times as often as on any day, and customers wait or are not served.",
    culprit=False,
    joined=94,
)
async def asked_by_no_customer(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found one user agent in nine of ten lines."""
    namespace, name, other, guesses = lab.rng.choice(
        (
            ("shop", "customer-login", "login-mails", True),
            ("payments", "card-login", "card-alerts", True),
            ("media", "photo-search", "photo-tags", False),
            ("search", "listing-pages", "listing-feeds", False),
        )
    )
    minor, db, door = lab.rng.randrange(2, 40), f"{name}-db", _Door(lab, namespace, name, "401" if guesses else "")
    await stored(lab, namespace, db)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    like = App("", upstreams=((namespace, db),), asked=door.asked, failing=door.fails, fails_with=door.status)
    like.latency, like.capacity = door.waits, 400
    await lab.app(namespace, name, like=like, replicas=3, tag=f"8.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.0.4", config=other)
    await rolled(lab, namespace, name, f"8.{minor}.0")
    await rolled(lab, namespace, other, "1.0.4")
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"PAGE_SIZE": "40"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.0.5")
    await lab.pause(lab.rng.uniform(4, 9))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"8.{minor}.1")
        await rolled(lab, namespace, name, f"8.{minor}.1")
        await lab.pause(lab.rng.uniform(4, 9))
    lab.start(door.come(lab.rng.uniform(90, 220)))
