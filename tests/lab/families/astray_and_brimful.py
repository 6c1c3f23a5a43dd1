"""Astray and brimful: an edit of a site's Ingress that is wrong in one place, and a queue that has become too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, Key
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.from_the_next_on import leads_to
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, backends
from tests.lab.scenario import family

# -- a site

REWRITE = "nginx.ingress.kubernetes.io/rewrite-target"


@dataclass(frozen=True)
class _Part:
    """Of a site: the path by which users come to an app, and how often a second they do."""

    app: str
    below: str
    asked: float

    @property
    def page(self) -> str:
        """One that users ask for."""
        return f"{self.below.rstrip('/')}/overview" if self.below != "/" else "/"


@dataclass
class _Site:
    """One host, and the apps behind it: each knows the paths that are its own."""

    lab: Lab
    place: Key
    host: str
    parts: tuple[_Part, ...]

    def _meets(self, asked: _Part) -> tuple[str, bool]:
        """The app that is asked for a part by the Ingress as it is, or "", and whether it knows what it is asked."""
        ingress = self.lab.world["Ingress"].get(self.place)
        if ingress is None or ingress["spec"]["rules"][0]["host"] != self.host:
            return "", False
        app = leads_to(ingress, asked.page)
        target = ingress["metadata"].get("annotations", {}).get(REWRITE, "")
        is_known = app == asked.app and (not target or asked.below == "/")
        return app, is_known

    def is_astray(self) -> bool:
        return not all(self._meets(one)[1] for one in self.parts)

    def met(self, asked: _Part, *, shows: bool) -> tuple[str, bool]:
        return self._meets(asked) if shows else (asked.app, True)

    def load(self, app: str, shows: Lately) -> float:
        return sum(one.asked for one in self.parts if self.met(one, shows=shows())[0] == app)

    def unknown(self, app: str, shows: Lately) -> float:
        """The share of what an app is asked that it knows nothing of."""
        here = [(one.asked, self.met(one, shows=shows())) for one in self.parts]
        lost = sum(asked for asked, (to, is_known) in here if to == app and not is_known)
        return lost / max(0.1, self.load(app, shows))


def _edited(slip: str, host: str, parts: tuple[_Part, ...], further: _Part) -> tuple[str, list[tuple[str, str]], Json]:
    """The host, each path with its app, and annotations as somebody writes them who adds a further part."""
    pages, first, second = parts
    paths = [(first.below, first.app), (second.below, second.app), (further.below, further.app), ("/", pages.app)]
    if slip == "copied":
        paths[1] = (second.below, first.app)
    elif slip == "typed":
        paths[0] = (first.below[:-1], first.app)
    named = f"www-{host.removeprefix('www.')}" if slip == "host" else host
    return named, paths, {REWRITE: "/"} if slip == "rewritten" else {}


@family(
    "Somebody adds a part to a site, in the Ingress that has all of its paths, and something else in it is wrong"
    " afterwards: two lines name the same app, a path lacks a letter, all paths are rewritten, or the host is one that"
    " nobody asks for. Customers of a part are told that there is no such page, or are shown that of another app.",
    joined=106,
)
async def a_further_part(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had looked only at what they had added."""
    namespace, pages, first, second, new = lab.rng.choice(
        (
            ("shop", "site-pages", ("orders-app", "/orders"), ("account-app", "/account"), "/summer"),
            ("payments", "bank-pages", ("transfers-app", "/transfers"), ("cards-app", "/cards"), "/tax"),
            ("media", "tv-pages", ("live-app", "/live"), ("library-app", "/library"), "/kids"),
            ("search", "jobs-pages", ("offers-app", "/offers"), ("alerts-app", "/alerts"), "/salaries"),
        )
    )
    by, minor = lab.rng.choice((*TEAMS, "flux", "ci")), lab.rng.randrange(2, 40)
    slip, host = lab.rng.choice(("copied", "typed", "rewritten", "host")), f"www.{namespace}.corp.example"
    place = (namespace, f"{namespace}-site")
    parts = (_Part(pages, "/", 17.0), _Part(*first, lab.rng.uniform(7, 13)), _Part(*second, lab.rng.uniform(6, 11)))
    site, further = _Site(lab, place, host, parts), _Part(pages, new, 0.0)
    shows = Lately(lab, site.is_astray)

    def rules(named: str, listed: list[tuple[str, str]]) -> Json:
        paths = [
            {"path": one, "pathType": "Prefix", "backend": {"service": {"name": app, "port": {"number": 80}}}}
            for one, app in listed
        ]
        return {"rules": [{"host": named, "http": {"paths": paths}}]}

    for one in parts:
        like = App("", asked=partial(site.load, one.app, shows), fails_with=lambda _: "404")
        like.failing = lambda _, app=one.app: site.unknown(app, shows)  # type: ignore[misc]
        await lab.apply(objects.config_map(namespace, one.app, LOG_LEVEL="info", PAGE_SIZE="50"))
        await lab.app(namespace, one.app, like=like, replicas=2, tag=f"3.{minor}.0", config=one.app)
        await rolled(lab, namespace, one.app, f"3.{minor}.0")
        lab.reserve(namespace, one.app)
    usual = [(one.below, one.app) for one in parts[1:]] + [("/", pages)]
    spec = {"ingressClassName": INGRESS_CLASS, **rules(host, usual)}
    await lab.apply({"kind": "Ingress", "metadata": {"namespace": namespace, "name": place[1]}, "spec": spec})
    await lab.until(lambda: all(backends(lab.world, namespace, one.app) for one in parts))
    named, listed, notes = _edited(slip, host, parts, further)
    if named != host:
        lab.outside.unreached.add(named)  # nobody has entered that name
    for one in parts:
        instance = f"https://{host}{one.page}"
        lost = lambda one=one: not site.met(one, shows=shows())[1]  # noqa: E731
        told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": instance}
        lab.measure("probe_success", lambda lost=lost: float(not lost()), **told)  # type: ignore[misc]
        lab.alert("ProbeFailed", lost, f"{instance} is not the page that it was", 6, job="blackbox", instance=instance)

    def many_not_found() -> bool:
        answers = lab.traffic.of_ingress(*place, 10.0).answers
        return answers["404"] > 0.12 * max(1, answers.total())

    summary = f"more than 12% of the requests to Ingress {namespace}/{place[1]} are answered with 4xx"
    lab.alert("NginxHighHttp4xxErrorRate", many_not_found, summary, namespace=namespace, ingress=place[1])
    lab.alert_ingress_errors(*place)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        body = {"data": {"PAGE_SIZE": lab.rng.choice(("40", "60"))}}
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, second[0], body)

    yield
    slower = {"metadata": {"annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "20m"}}}
    await lab.edit(lab.rng.choice(TEAMS), "Ingress", *place, slower)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, first[0], f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, pages, f"3.{minor + 1}.0")
    await lab.pause(lab.rng.uniform(3, 8))
    body = {"metadata": {"annotations": notes}, "spec": rules(named, listed)}
    await lab.culprit(by, "update", "Ingress", *place, body)
    lab.start(afterwards())


# -- a queue

LONGEST = 50000.0
"""Messages that a queue takes; what is sent beyond that is refused to who sends it."""


@dataclass
class _Queue:
    """What is sent to it is somewhat more than its workers take, and has been for weeks."""

    lab: Lab
    worker: App
    comes: float
    each: float
    """Messages a second that a worker takes."""
    waiting: float
    refused: float = 0.0
    """The share of what was sent in the last second."""
    taken: float = 0.0

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(1)
            there = sum(one.app is self.worker and one.problem is None for one in self.lab.kubelets.running())
            come = self.comes * self.lab.kubelets.rng.uniform(0.92, 1.08)
            self.taken = min(self.waiting, self.each * there)
            room = LONGEST - self.waiting + self.taken
            self.refused += 0.4 * (max(0.0, come - room) / come - self.refused)
            self.waiting += min(come, room) - self.taken

    def fails(self, _: Container) -> float:
        return self.refused


@family(
    "No culprit. Nobody has released anything here for weeks. More is sent to a queue each day than its workers get"
    " done, as the business has grown, and for as long nobody has looked at how many messages wait. Today it is as long"
    " as it may be: the broker takes no more than is taken out, and the app that sends has the rest refused.",
    culprit=False,
    joined=106,
)
async def as_long_as_it_may_be(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had no alert on a number that only ever rose."""
    namespace, name, worker, front, queue = lab.rng.choice(
        (
            ("shop", "order-intake", "order-export", "intake-page", "orders.export"),
            ("payments", "payment-intake", "ledger-writer", "payin-page", "payments.booked"),
            ("media", "upload-intake", "preview-maker", "upload-page", "uploads.previews"),
            ("search", "page-intake", "page-indexer", "crawl-page", "pages.index"),
        )
    )
    minor, broker, comes = lab.rng.randrange(2, 40), "rabbitmq", lab.rng.uniform(24, 32)
    done = App("", upstreams=((namespace, broker),), serves=False)
    each = comes * lab.rng.uniform(0.6, 0.8) / 3
    waits = LONGEST - (comes - 3 * each) * lab.rng.uniform(95, 120)
    queued = _Queue(lab, done, comes, each, waits)
    sends = App("", upstreams=((namespace, broker),), asked=lambda: comes, failing=queued.fails)
    sends.fails_with = lambda _: "503"
    await stored(lab, namespace, broker)
    for one, like, replicas in ((worker, done, 3), (name, sends, 2)):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", PREFETCH="20"))
        await lab.app(namespace, one, like=like, replicas=replicas, tag=f"1.{minor}.4", config=one)
        await rolled(lab, namespace, one, f"1.{minor}.4")
        lab.reserve(namespace, one)
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": broker, "queue": queue}
    lab.measure("rabbitmq_queue_messages_ready", lambda: round(queued.waiting), **told)
    acked = lab.adding_up(lambda: queued.taken)
    lab.measure("rabbitmq_queue_messages_acked_total", acked, "counter", **told)
    refused = lab.adding_up(lambda: comes * queued.refused)
    told = {"namespace": namespace, "service": name, "queue": queue}
    lab.measure("publisher_nacks_total", refused, "counter", **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    lab.start(queued.run())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(10, 18))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(6, 12))
    neighbour = {"shop": "catalog", "payments": "ledger", "media": "thumbnails", "search": "query"}[namespace]
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, neighbour, {"data": {"LOG_LEVEL": "warn"}})
    lab.start(afterwards())
