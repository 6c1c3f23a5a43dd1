"""Of those they call: an answer in another form, a timeout below what is usual, and a provider that is late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from math import exp

from tests.lab import objects
from tests.lab.api import Key, now
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import environment
from tests.lab.network import backends
from tests.lab.scenario import family

STEP = 0.5


def _well(lab: Lab, app: App) -> list[Container]:
    """The containers of an app that run and are well."""
    return [one.container for one in lab.kubelets.running() if one.app is app and one.problem is None]


# -- another form


@dataclass
class _Form:
    """What an app answers: its new version has a field of another name or type, which not all who call it know."""

    lab: Lab
    called: App
    place: Key
    new: str
    share: float
    """Of the requests of the one who does not know, those for which it reads that field."""

    def seen(self) -> float:
        """The part of the answers that have the new form."""
        there = _well(self.lab, self.called)
        new = [one for one in there if one.tag == self.new and one.seconds >= self.lab.lag]
        return len(new) / len(there) if there else 0.0

    def fails(self, _: Container) -> float:
        return self.share * self.seen()


@family(
    "A release changes the form in which an API answers: a number is a text from now on, or a list is in another field."
    " Its own team's page was changed along with it. An app of another team, of which nobody there thought, cannot read"
    " the answers: it fails whatever it needs them for, and the API itself answers each call well.",
    joined=104,
)
async def answered_in_another_form(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose API had five callers, and they knew of three."""
    home, name, own, (away, reader, front) = lab.rng.choice(
        (
            ("shop", "price-api", "price-page", ("payments", "invoice-maker", "invoice-page")),
            ("payments", "account-api", "account-page", ("shop", "loyalty-points", "points-page")),
            ("media", "title-api", "title-page", ("search", "title-hits", "hits-page")),
            ("search", "place-api", "place-page", ("media", "map-maker", "map-page")),
        )
    )
    by, minor = lab.rng.choice(("ci", "ci", "argocd", "flux")), lab.rng.randrange(3, 50)
    old, new = f"4.{minor}.1", f"4.{minor + 1}.0"
    called = App("", asked=lambda: 32.0)
    form = _Form(lab, called, (home, name), new, lab.rng.uniform(0.25, 0.9))
    await lab.apply(objects.config_map(home, name, LOG_LEVEL="info", PAGE_SIZE="200"))
    await lab.app(home, name, like=called, replicas=3, tag=old, config=name)
    await rolled(lab, home, name, old)
    like = App("", upstreams=((home, name),), asked=lambda: 21.0, failing=form.fails)
    await lab.apply(objects.config_map(away, reader, LOG_LEVEL="info", CACHE_SECONDS="30"))
    await lab.app(away, reader, like=like, replicas=3, tag="1.9.2", config=reader)
    await rolled(lab, away, reader, "1.9.2")
    await lab.until(lambda: len(backends(lab.world, home, name)) == 3)
    await set_before(lab, home, own, name)
    await set_before(lab, away, front, reader)
    told = {"namespace": away, "service": reader, "upstream": f"{name}.{home}"}
    unread = lab.adding_up(lambda: 21.0 * form.fails(_well(lab, like)[0]) if _well(lab, like) else 0.0)
    lab.measure("client_decode_errors_total", unread, "counter", **told)
    for place in ((home, name), (home, own), (away, reader), (away, front)):
        lab.alert_errors(*place)
    for one in (home, away):
        lab.alert_ingress_errors(one, one)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, name, {"data": {"PAGE_SIZE": "150"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), away, reader, "1.9.3")
    await lab.pause(lab.rng.uniform(8, 13))
    await change_page(lab, home, own)
    await lab.pause(lab.rng.uniform(3, 7))
    if lab.rng.random() < 0.5:
        body = {"data": {"CACHE_SECONDS": lab.rng.choice(("20", "45"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", away, reader, body)
    else:
        await change_page(lab, away, front)
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, home, name, new, culprit=True)
    lab.start(afterwards())


# -- a timeout

TIMEOUT, RETRIES = "UPSTREAM_TIMEOUT_MS", "UPSTREAM_RETRIES"


@dataclass
class _Storm:
    """An app that is called, and one who calls it: whatever is late by the caller's patience is asked for again."""

    lab: Lab
    called: App
    caller: App
    wanted: float
    others: float
    each_stands: float
    by_config: bool
    before: tuple[str, str]
    shows: Lately
    """Whether another patience is in the caller's configuration, and is read."""
    usual: float = 0.14
    """Seconds that an answer takes where there is next to nothing to do."""
    offered: float = 0.0
    mean: float = 0.14
    late: float = 0.0
    """Of the caller's tries those that take longer than it waits."""

    def _patience(self, container: Container) -> tuple[float, int]:
        """Seconds for a try, and how many more there are, as a process has read it."""
        told = container.config if self.by_config else environment(container.spec)
        found = told[TIMEOUT], told[RETRIES]
        if found != self.before and not (self.shows() if self.by_config else container.seconds >= self.lab.lag):
            found = self.before
        return float(found[0]) / 1000, int(found[1])

    def tries(self) -> float:
        """For one answer, in the mean over the processes of the caller."""
        each, lates = [], []
        for one in _well(self.lab, self.caller):
            seconds, more = self._patience(one)
            late = exp(-max(0.0, seconds - self.usual / 2) / self.mean)
            each.append(sum(late**turn for turn in range(1 + more)))
            lates.append(late ** (1 + more))
        self.late = sum(lates) / len(lates) if lates else 0.0
        return sum(each) / len(each) if each else 1.0

    async def run(self) -> None:
        """For ever. What is given up by who waits is work all the same."""
        while True:
            await asyncio.sleep(STEP)
            offered = self.wanted * self.tries() + self.others
            self.offered += 0.3 * (offered - self.offered)
            stands = self.each_stands * max(1, len(_well(self.lab, self.called)))
            free = max(0.05, 1 - self.offered / stands)
            self.mean += 0.3 * (self.usual / free - self.mean)

    def waits(self, _: Container) -> float:
        """Of the app that is called, beside the usual of all apps."""
        return self.mean

    def gives_up(self, _: Container) -> float:
        return self.late


@family(
    "So that its page is quick, an app waits a shorter time for an app that it calls, or tries more often, or both. A"
    " good part of the answers has always taken longer than that: they are asked for again while the first one is still"
    " being made. The app that is called is asked several times as often, is late with all it answers, and so is asked"
    " even more.",
    joined=104,
)
async def gives_up_sooner(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had tuned a timeout by the mean."""
    namespace, name, front, (away, called, page) = lab.rng.choice(
        (
            ("shop", "delivery-dates", "delivery-page", ("payments", "address-checks", "address-page")),
            ("payments", "instalment-plans", "plan-page", ("shop", "customer-scores", "score-page")),
            ("media", "watch-next", "next-page", ("search", "taste-model", "taste-page")),
            ("search", "spell-checks", "spell-page", ("media", "term-model", "term-page")),
        )
    )
    by, by_config, minor = lab.rng.choice((*TEAMS, "ci", "flux")), lab.rng.random() < 0.6, lab.rng.randrange(2, 40)
    before, after = lab.rng.choice(((("2000", "1"), ("200", "4")), (("1500", "2"), ("250", "5"))))

    def is_changed() -> bool:
        return bool(lab.world["ConfigMap"][namespace, name]["data"].get(TIMEOUT, before[0]) != before[0])

    below, caller = App("", capacity=400.0), App("", upstreams=((away, called),), asked=lambda: 24.0)
    others, shows = lab.rng.uniform(5, 7), Lately(lab, is_changed)
    storm = _Storm(lab, below, caller, 24.0, others, 20.0, by_config, before, shows)
    below.asked, below.latency, caller.failing = lambda: storm.offered, storm.waits, storm.gives_up
    await lab.apply(objects.config_map(away, called, LOG_LEVEL="info", WORKERS="8"))
    await lab.app(away, called, like=below, replicas=3, tag=f"2.{minor}.0", config=called)
    await rolled(lab, away, called, f"2.{minor}.0")
    patience = dict(zip((TIMEOUT, RETRIES), before, strict=True))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", **(patience if by_config else {})))
    env = [] if by_config else [{"name": key, "value": value} for key, value in patience.items()]
    await lab.app(namespace, name, like=caller, replicas=3, tag=f"3.{minor}.0", config=name, env=env)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await set_before(lab, away, page, called)
    await set_before(lab, namespace, front, name)
    lab.start(storm.run())
    told = {"namespace": namespace, "service": name, "upstream": f"{called}.{away}"}
    tried = lab.adding_up(lambda: max(0.0, storm.offered - storm.others))
    lab.measure("client_tries_total", tried, "counter", **told)
    for place in ((namespace, name), (away, called), (away, page)):
        lab.alert_slow(*place, 0.8)
        lab.alert_errors(*place)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.pause(8)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", away, called, {"data": {"WORKERS": "10"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), away, called, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 13))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    shorter = dict(zip((TIMEOUT, RETRIES), after, strict=True))
    if by_config:
        await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": shorter})
    else:
        env = [{"name": key, "value": value} for key, value in shorter.items()]
        await lab.roll(by, namespace, name, f"3.{minor}.0", culprit=True, env=env)
    lab.start(afterwards())


# -- a provider


@dataclass
class _Provider:
    """Somebody outside, who is asked by several apps and answers late from a moment on."""

    lab: Lab
    late: float
    share: float
    """Of what is asked of it, what it does not answer in the time that its callers have."""
    since: float = float("inf")

    def is_late(self) -> bool:
        return now().timestamp() - self.since >= self.lab.lag

    def waits(self, part: float) -> float:
        """Of an app, that part of whose requests needs it."""
        return part * self.late if self.is_late() else 0.0

    def fails(self, part: float) -> float:
        return part * self.share if self.is_late() else 0.0

    def seconds(self) -> float:
        """What an answer of it takes."""
        return self.late if self.is_late() else 0.18


@family(
    "No culprit. A provider outside, who takes payments, sends mail or draws maps, has trouble of its own: it answers"
    " after many seconds, and some of what it is asked not at all. The apps of two teams that call it are late and fail"
    " in part; whatever does not need it goes on as ever.",
    culprit=False,
    joined=104,
)
async def provider_late(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked at their own release until the provider's own page of its state was red."""
    (home, name, front), (away, other, page), host = lab.rng.choice(
        (
            (
                ("payments", "card-charges", "pay-page"),
                ("shop", "voucher-sales", "voucher-page"),
                "api.cardhouse.example",
            ),
            (("shop", "mail-sender", "order-page"), ("payments", "receipt-mails", "receipt-page"), "smtp.post.example"),
            (("search", "route-finder", "route-page"), ("shop", "store-finder", "store-page"), "tiles.atlas.example"),
            (("media", "speech-texts", "text-page"), ("search", "voice-query", "voice-page"), "speech.lingua.example"),
        )
    )
    provider = _Provider(lab, lab.rng.uniform(2.5, 6.0), lab.rng.uniform(0.2, 0.6))
    minor, timeout = lab.rng.randrange(2, 40), {"PROVIDER_TIMEOUT_MS": lab.rng.choice(("8000", "10000"))}
    for namespace, one, before, part in ((home, name, front, 0.8), (away, other, page, 0.5)):
        like = App("", abroad=(host,), asked=lambda: 18.0, fails_with=lambda _: "504")
        like.failing = lambda _, part=part: provider.fails(part)  # type: ignore[misc]
        like.latency = lambda _, part=part: provider.waits(part)  # type: ignore[misc]
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", **timeout))
        await lab.app(namespace, one, like=like, replicas=3, tag=f"6.{minor}.0", config=one)
        await rolled(lab, namespace, one, f"6.{minor}.0")
        await set_before(lab, namespace, before, one)
        told = {"namespace": namespace, "service": one, "host": host}
        calls = lab.adding_up(partial(float, 18.0 * part))
        lab.measure("http_client_request_duration_seconds", provider.seconds, **told, quantile="0.5")
        lab.measure("http_client_calls_total", calls, "counter", **told)
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one, 0.8)
        lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def has_trouble() -> None:
        await lab.pause(lab.rng.uniform(3, 12))
        provider.since = now().timestamp()

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(8, 16))
        await change_page(lab, away, page)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", away, other, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"6.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, home, front)
    lab.start(has_trouble())
    lab.start(afterwards())
