"""What is answered: with an error on a way that many go, and with a refusal once a month is used up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


@family(
    "A release of an app has a fault on a way that many requests go. Its probes are answered, the rollout goes through"
    " as every week, and a good part of all requests ends in a 500.",
    joined=82,
)
async def common_path(lab: Lab) -> AsyncIterator[None]:
    """As it happens to everybody, most often on a Tuesday."""
    namespace, name, called, front, done = lab.rng.choice(
        (
            ("shop", "basket-lines", "basket-store", "basket-view", "lines_added_total"),
            ("payments", "authorizations", "limit-store", "pay-view", "authorizations_total"),
            ("media", "stream-starts", "session-store", "play-view", "streams_started_total"),
            ("search", "autocompletion", "term-store", "search-view", "completions_total"),
        )
    )
    share, minor = lab.rng.uniform(0.25, 0.6), lab.rng.randrange(8, 90)
    old, new, by = f"7.{minor}.2", f"7.{minor + 1}.0", lab.rng.choice(("ci", "argocd", "flux"))

    def fails(container: Container) -> float:
        return share if container.tag == new and container.seconds >= lab.lag else 0.0

    like = App("", upstreams=((namespace, called),), asked=lambda: 32.0, failing=fails)

    def made() -> float:
        """How many a second are done as they should."""
        there = [one.container for one in lab.kubelets.running() if one.app is like and one.problem is None]
        return 20.0 * sum(1 - fails(one) for one in there) / max(1, len(there))

    await lab.app(namespace, called, replicas=2, tag="3.0.4")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="800"))
    await lab.app(namespace, name, like=like, replicas=lab.rng.choice((3, 4, 5)), tag=old, config=name)
    await rolled(lab, namespace, name, old)
    await set_before(lab, namespace, front, name)
    lab.measure(done, lab.adding_up(made), "counter", namespace=namespace, service=name)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 5))
        await change_page(lab, namespace, front)

    await lab.roll("ci", namespace, called, "3.0.5")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.edit("bob", "ConfigMap", namespace, name, {"data": {"TIMEOUT_MS": lab.rng.choice(("600", "1000"))}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


@dataclass
class _Plan:
    """What a provider lets an account ask for in a month."""

    lab: Lab
    calls: float
    """A second."""
    kept: float
    """The share of requests that the app can answer without it."""
    left: float = float("inf")

    def is_used_up(self) -> bool:
        return self.left <= 0

    def fails(self, _: Container) -> float:
        return 1 - self.kept if self.is_used_up() else 0.0

    def answered(self, *, well: bool) -> Callable[[], float]:
        """Calls a second that are answered with 200, or with 429."""
        return lambda: self.calls if well is not self.is_used_up() else 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.left = max(0.0, self.left - self.calls * self.lab.rng.uniform(0.9, 1.1))


@family(
    "No culprit. An app asks a provider outside for something with nearly each of its requests, and the company has"
    " paid for so many a month. The month was a good one: days before its end they are used up, and each further call"
    " is answered with 429.",
    culprit=False,
    joined=82,
)
async def months_quota(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose provider had written a mail to somebody who has left."""
    namespace, name, host, called, front = lab.rng.choice(
        (
            ("shop", "address-checks", "api.postcodes.example", "address-store", "address-form"),
            ("payments", "iban-checks", "v2.bankdata.example", "iban-store", "transfer-form"),
            ("search", "translations", "translate.words.example", "phrase-store", "answer-view"),
            ("media", "subtitles", "speech.captions.example", "subtitle-store", "subtitle-view"),
        )
    )
    plan, is_told = _Plan(lab, lab.rng.uniform(12, 18), lab.rng.uniform(0.1, 0.4)), lab.rng.random() < 0.5
    status = lab.rng.choice(("500", "502", "503"))
    await lab.app(namespace, called, replicas=2, tag="1.6.0")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="2500"))
    like = App(
        "",
        upstreams=((namespace, called),),
        abroad=(host,),
        asked=lambda: 20.0,
        failing=plan.fails,
        fails_with=lambda _: status,
    )
    await lab.app(namespace, name, like=like, replicas=3, tag="3.2.0", config=name)
    await rolled(lab, namespace, name, "3.2.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name, "host": host}
    for well in (True, False):
        made, code = lab.adding_up(plan.answered(well=well)), "200" if well else "429"
        lab.measure("http_client_requests_total", made, "counter", **told, code=code)
    if is_told:  # by a header of each of its answers
        lab.measure("provider_ratelimit_remaining", lambda: plan.left, **told)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    plan.left = plan.calls * lab.rng.uniform(78, 92)  # some time after it begins
    lab.start(plan.run())
    yield
    await lab.edit("bob", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll("ci", namespace, called, "1.6.1")
    await lab.pause(lab.rng.uniform(3, 7))
    await change_page(lab, namespace, front)
