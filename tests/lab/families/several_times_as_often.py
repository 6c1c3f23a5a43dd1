"""Several times as often: what a feature calls that had little to do before, and what is tried again at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import LATE, App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.families.stories import Flaky
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

# -- a feature

ASKED, RISES_SECONDS, PATIENCE_SECONDS = 26.0, 6.0, 2.5
"""Requests a second to the app that has the feature; until all who are there have it; and how long a call may take."""


def _flags(shown: dict[str, bool]) -> Json:
    """As the relay of GO Feature Flag reads them, and as an app does that has them in its own configuration."""
    flags = {
        flag: {"variations": {"on": True, "off": False}, "defaultRule": {"variation": "on" if is_on else "off"}}
        for flag, is_on in shown.items()
    }
    return {"data": {"flags.json": json.dumps(flags, indent=2)}}


@dataclass
class _Behind:
    """The service behind a feature: what it is asked beside it, and what each of its pods stands."""

    lab: Lab
    namespace: str
    name: str
    usual: float
    stands: float
    calls: float
    """Of it, for each request to the app that has the feature."""
    is_on: Lately

    def asked(self) -> float:
        if not self.is_on():
            return self.usual
        seconds = now().timestamp() - self.is_on.since - self.lab.lag
        return self.usual + ASKED * self.calls * min(1.0, seconds / RISES_SECONDS)

    def over(self) -> float:
        there = len(backends(self.lab.world, self.namespace, self.name))
        return self.asked() / (self.stands * max(1, there))

    def fails(self, _: Container) -> float:
        return min(0.9, max(0.0, 1 - 1 / max(self.over(), 0.01)))

    def waits(self, _: Container) -> float:
        return min(PATIENCE_SECONDS, 0.9 * max(0.0, self.over() - 1))


@family(
    "A feature is switched on by its flag. For each request the app that has it asks a service that had next to nothing"
    " to do before, and that was never given more pods for it: it answers late, and much of it not at all.",
    joined=98,
)
async def switched_on_at_noon(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had tried it with ten colleagues."""
    namespace, name, front, service, flag, others = lab.rng.choice(
        (
            ("shop", "product-details", "details-page", "size-advisor", "size-advice", ("gift-notes", "store-stock")),
            ("payments", "checkout-options", "options-page", "credit-score", "pay-later", ("saved-cards", "tip-jar")),
            ("media", "home-feed", "feed-page", "taste-model", "for-you-row", ("chapters", "cast-list")),
            ("search", "results-api", "results-page", "answer-model", "instant-answers", ("map-view", "recent-terms")),
        )
    )
    by, minor, is_central = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    held, relay = (f"{namespace}-flags" if is_central else f"{name}-flags"), "flag-relay"
    shown, db, is_probed = {flag: False, others[0]: True, others[1]: False}, f"{service}-db", lab.rng.random() < 0.4

    def is_shown() -> bool:
        told = json.loads(lab.world["ConfigMap"][namespace, held]["data"]["flags.json"])
        return bool(told[flag]["defaultRule"]["variation"] == "on")

    usual, stands, flaky = lab.rng.uniform(4, 8), lab.rng.uniform(6, 9), Flaky(lab.kubelets.rng)
    behind = _Behind(lab, namespace, service, usual, stands, lab.rng.uniform(1.2, 2.2), Lately(lab, is_shown))

    def check(container: Container) -> Problem | None:
        """Its probe waits in the same queue, where it does."""
        share = min(0.7, 0.25 * max(0.0, behind.over() - 1)) if is_probed else 0.0
        found = flaky.probe(container, share, LATE)
        return replace(found, at_once=True) if found else None

    await lab.apply({"kind": "ConfigMap", "metadata": {"namespace": namespace, "name": held}, **_flags(shown)})
    if is_central:
        await lab.app(namespace, relay, like=App("", serves=False), replicas=2, tag="v1.45.2", config=held)
        await rolled(lab, namespace, relay, "v1.45.2")
        lab.reserve(namespace, relay)
    await stored(lab, namespace, db)
    like = App("", upstreams=((namespace, db),), asked=behind.asked, failing=behind.fails, latency=behind.waits)
    like.fails_with, like.check = lambda _: "503", check
    await lab.apply(objects.config_map(namespace, service, LOG_LEVEL="info", BATCH="20"))
    await lab.app(namespace, service, like=like, replicas=2, tag="0.9.4", config=service)
    await rolled(lab, namespace, service, "0.9.4")
    to = ((namespace, service), *(((namespace, relay),) if is_central else ()))
    caller, config = App("", upstreams=to, asked=lambda: ASKED), {} if is_central else {"config": held}
    await lab.app(namespace, name, like=caller, replicas=3, tag=f"12.{minor}.0", **config)
    await rolled(lab, namespace, name, f"12.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, service)
    for one in (service, name, front):
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one)
    lab.alert_lacking(namespace, service, seconds=10)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, service, {"data": {"BATCH": "25"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"12.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 12))
    if lab.rng.random() < 0.5:
        shown[others[1]] = True
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, held, _flags(shown))
        await lab.pause(lab.rng.uniform(4, 9))
    shown[flag] = True
    await lab.culprit(by, "update", "ConfigMap", namespace, held, _flags(shown))
    lab.start(afterwards())


# -- again

LASTING = 0.015
"""The share of all calls that fail whenever they are tried: of what is not as it should be."""


@dataclass
class _Called:
    """Who is called by an app, and by another one, and gets again what has failed."""

    lab: Lab
    new: str
    calls: float
    beside: float
    stands: float
    most: int
    """How often the new version tries again."""
    asked: float = 0.0
    caller: App | None = None

    async def run(self) -> None:
        """By and by it gets what follows from what it fails now."""
        while True:
            lost, part = self.lost(), self.part()
            again = sum(lost**times for times in range(self.most + 1)) + LASTING * self.most
            wanted = self.beside * (1 + lost) + self.calls * (part * again + (1 - part) * (1 + LASTING + lost))
            self.asked += 0.25 * (wanted - self.asked)
            await asyncio.sleep(0.5)

    def part(self) -> float:
        """Of the caller's processes, those of the new version that have been there for long enough."""
        there = [one.container for one in self.lab.kubelets.running() if one.app is self.caller]
        return sum(one.tag == self.new and one.seconds >= self.lab.lag for one in there) / max(1, len(there))

    def over(self) -> float:
        return self.asked / self.stands

    def lost(self) -> float:
        """The share of its answers that it cannot give, as it is asked too much."""
        return min(0.9, max(0.0, 1 - 1 / max(self.over(), 0.01)))

    def fails(self, _: Container) -> float:
        """Also what fails whenever it is tried, and is tried again as often as anybody does."""
        lasting = LASTING * (self.calls * (1 + self.part() * self.most) + self.beside) / max(1.0, self.asked)
        return min(0.95, self.lost() + (1 - self.lost()) * min(0.9, lasting))

    def waits(self, _: Container) -> float:
        return min(PATIENCE_SECONDS, 0.8 * max(0.0, self.over() - 1))

    def waits_of_caller(self, container: Container) -> float:
        """One call after the other, until one is answered or its own caller has had enough."""
        times = 1 / (1 - self.lost()) if container.tag == self.new else 1 + self.lost()
        return min(PATIENCE_SECONDS, self.waits(container) * times)

    def fails_of_caller(self, container: Container) -> float:
        """What it is not answered in time."""
        return LASTING + self.lost() * (0.35 if container.tag == self.new else 0.6)


@family(
    "A new version of an app tries again at once what has failed, many times over and without a pause. A few calls fail"
    " whenever they are tried: the app below gets several times the requests, and then fails others, which come again.",
    joined=98,
)
async def again_without_a_pause(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had been told to make it more robust."""
    namespace, name, front, below, other = lab.rng.choice(
        (
            ("shop", "delivery-quotes", "delivery-form", "carrier-rates", "carrier-sync"),
            ("payments", "mandate-api", "mandate-page", "account-check", "account-audit"),
            ("media", "subtitle-api", "subtitle-view", "translations", "translation-feed"),
            ("search", "enrich-api", "enrich-page", "entity-store", "entity-loader"),
        )
    )
    by, minor, most = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.choice((60, 100, 150))
    old, new, calls = f"4.{minor}.1", f"4.{minor + 1}.0", lab.rng.uniform(15, 19)
    called = _Called(lab, new, calls, 6.0, (calls + 6) * lab.rng.uniform(1.35, 1.7), most, calls + 6)
    await lab.apply(objects.config_map(namespace, below, LOG_LEVEL="info", BATCH="20"))
    like = App("", asked=lambda: called.asked, failing=called.fails, latency=called.waits, fails_with=lambda _: "503")
    await lab.app(namespace, below, like=like, replicas=3, tag="2.8.0", config=below)
    await rolled(lab, namespace, below, "2.8.0")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="800"))
    caller = App("", upstreams=((namespace, below),), asked=lambda: calls)
    await lab.app(namespace, name, like=caller, replicas=3, tag=old, config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    beside = App("", upstreams=((namespace, below),), asked=lambda: 6.0)
    await lab.app(namespace, other, like=beside, replicas=2, tag="1.2.5", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.2.5")
    # What of their calls fails is not what of their own answers does, as they try again.
    caller.upstreams = beside.upstreams = ()
    caller.failing, caller.latency = called.fails_of_caller, called.waits_of_caller
    beside.failing, beside.latency = (lambda _: 0.6 * called.lost()), called.waits
    called.caller = caller
    lab.start(called.run())
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, below)
    for one in (below, name, front, other):
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, below, {"data": {"BATCH": "25"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.2.6")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())
