"""Up to a limit: of requests that a gateway takes of each client, and of those that a provider answers in a second."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.scenario import family


@dataclass
class Day:
    """How often a second an app is asked."""

    asked: float

    async def rise(self, to: float, seconds: float) -> None:
        first = self.asked
        for step in range(round(seconds * 2)):
            self.asked = first + (to - first) * (step + 1) / (seconds * 2)
            await asyncio.sleep(0.5)


# -- of requests a client

CLIENTS, BEFORE = 60, 600
"""Customers who are there at a time, and how often a minute one of them might ask until now."""


@dataclass
class _Gateway:
    """It reads its file anew as that is changed, and counts for each customer by itself."""

    lab: Lab
    namespace: str
    name: str
    clients: tuple[float, ...]
    """Requests a second of each."""
    limit: int = BEFORE
    since: float = field(default_factory=lambda: now().timestamp())

    def read(self) -> int:
        text = self.lab.world["ConfigMap"][self.namespace, self.name]["data"]["gateway.yaml"]
        found = re.search(r"per-client: (\d+)/min", text)
        return int(found[1]) if found else BEFORE

    def refused(self) -> float:
        """The share of all requests that is beyond what their client may ask."""
        told = self.read()
        if told == self.limit:
            self.since = now().timestamp()
        elif now().timestamp() - self.since >= self.lab.lag:
            self.limit = told
        return sum(max(0.0, one - self.limit / 60) for one in self.clients) / self.asked()

    def asked(self) -> float:
        return sum(self.clients)

    def too_many(self) -> float:
        """The share of its answers of late that was 429."""
        answers = self.lab.traffic.of_app(self.namespace, self.name, 10.0).answers
        return answers["429"] / max(1, answers.total())


def _rules(limit: int, *, timeout: int, routes: tuple[str, ...]) -> Json:
    lines = [f"  - path: /{one}\n    to: http://{one}\n" for one in routes]
    text = f"timeout: {timeout}s\nlimits:\n  per-client: {limit}/min\n  burst: 20\nroutes:\n{''.join(lines)}"
    return {"data": {"gateway.yaml": text}}


@family(
    "Robots ask a gateway too often, and its limit of requests for each client is lowered, to what somebody takes for"
    " much. A page of the company's own makes a dozen of them: ordinary customers are answered with 429.",
    joined=100,
)
async def fewer_for_each_client(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had tried it with one page, and clicked slowly."""
    namespace, name, routes = lab.rng.choice(
        (
            ("shop", "edge-gateway", ("listing-api", "offers-api")),
            ("payments", "open-gateway", ("balance-api", "card-api")),
            ("media", "app-gateway", ("shelf-api", "lyrics-api")),
            ("search", "query-gateway", ("lookup-api", "hints-api")),
        )
    )
    by, minor = lab.rng.choice((*TEAMS, "argocd", "flux")), lab.rng.randrange(2, 40)
    after = lab.rng.choice((10, 20, 30))
    ordinary = tuple(lab.rng.uniform(0.25, 1.3) for _ in range(CLIENTS))
    gateway = _Gateway(lab, namespace, name, (*ordinary, lab.rng.uniform(4, 7)))
    rules = _rules(BEFORE, timeout=10, routes=routes)
    await lab.apply({"kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, **rules})
    await lab.until(lambda: (namespace, name) in lab.world["ConfigMap"])
    passed = lambda: gateway.asked() * (1 - gateway.refused()) / len(routes)  # noqa: E731
    for one in routes:
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", TIMEOUT_MS="900"))
        await lab.app(namespace, one, like=App("", asked=passed), replicas=3, tag=f"2.{minor}.0", config=one)
        await rolled(lab, namespace, one, f"2.{minor}.0")
        lab.reserve(namespace, one)
    like = App("", asked=gateway.asked, failing=lambda _: gateway.refused(), fails_with=lambda _: "429")
    await lab.app(namespace, name, like=like, replicas=3, tag="3.8.1", config=name)
    await rolled(lab, namespace, name, "3.8.1")
    await publish(lab, namespace, name)
    summary = f"more than a tenth of the requests to {namespace}/{name} are answered with 429"
    holds = lambda: gateway.too_many() > 0.1  # noqa: E731
    lab.alert("GatewayTooManyRequests", holds, summary, namespace=namespace, service=name)
    for one in (name, *routes):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        timeout = {"data": {"TIMEOUT_MS": lab.rng.choice(("700", "1200"))}}
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, routes[1], timeout)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, routes[0], f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, "3.8.2")
    else:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, routes[1], f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    body = _rules(after, timeout=lab.rng.choice((10, 10, 15)), routes=routes)
    await lab.culprit(by, "update", "ConfigMap", namespace, name, body)
    lab.start(afterwards())


# -- of what a provider answers


@dataclass
class _Provider:
    """Outside: it answers so many calls a second of each of its customers, by their plan, and 429 to all others."""

    lab: Lab
    day: Day
    share: float
    """Of the app's requests, that need it."""
    plan: float
    lasting: float = 0.0
    """What is refused, once it has been so for the lag."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.lasting += (self.refused() - self.lasting) * 0.5 / max(0.5, self.lab.lag)

    def calls(self) -> float:
        """A second; some of what was refused is tried again."""
        usual = self.day.asked * self.share
        return usual + 0.5 * max(0.0, usual - self.plan)

    def refused(self) -> float:
        return max(0.0, 1 - self.plan / self.calls())

    def answered(self, *, well: bool) -> float:
        return min(self.calls(), self.plan) if well else max(0.0, self.calls() - self.plan)


@family(
    "No culprit. A provider outside answers as many calls a second as its plan says. The business has grown for a year,"
    " and at the peak of this day it is more than that for the first time: the rest is answered with 429.",
    culprit=False,
    joined=100,
)
async def grown_past_its_plan(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had signed for it when they were half as many."""
    namespace, name, front, other, host = lab.rng.choice(
        (
            ("shop", "address-lookup", "address-page", "address-cleanup", "api.geocoder.example"),
            ("payments", "card-checks", "checks-page", "checks-report", "api.fraud-score.example"),
            ("media", "speech-text", "speech-view", "speech-stats", "v1.transcribe.example"),
            ("search", "phrase-translate", "phrases-page", "phrases-sync", "api.translate.example"),
        )
    )
    minor, day, share = lab.rng.randrange(2, 40), Day(lab.rng.uniform(15, 19)), lab.rng.uniform(0.5, 0.9)
    provider = _Provider(lab, day, share, round(day.asked * share * lab.rng.uniform(1.1, 1.25), 0))
    status, is_told = lab.rng.choice(("500", "502", "503")), lab.rng.random() < 0.4
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="2000"))
    like = App("", abroad=(host,), asked=lambda: day.asked, failing=lambda _: share * provider.lasting)
    like.fails_with = lambda _: status
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.9.0", config=other)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await rolled(lab, namespace, other, "1.9.0")
    await set_before(lab, namespace, front, name)
    lab.start(provider.run())
    told = {"namespace": namespace, "service": name, "host": host}
    for well in (True, False):
        made, code = lab.adding_up(partial(provider.answered, well=well)), "200" if well else "429"
        lab.measure("http_client_requests_total", made, "counter", **told, code=code)
    if is_told:  # by a header of each of its answers
        lab.measure("provider_ratelimit_remaining", lambda: max(0.0, provider.plan - provider.calls()), **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(3, 8))
    await change_page(lab, namespace, front)
    lab.start(day.rise(day.asked * lab.rng.uniform(1.5, 1.9), lab.rng.uniform(15, 28)))
