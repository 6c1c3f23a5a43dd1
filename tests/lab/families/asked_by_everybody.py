"""What everybody asks from one moment to the next: a new way that only staff went, and a database of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.api import now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

FLAGS, STAFF, EVERYBODY = "feature-flags", "staff", "everyone"
OF_STAFF = 0.002
"""The share of requests that are the company's own people's."""


@family(
    "Two features of a site are turned on for everybody by their flags, as the company's own people have had"
    " them for a week. One of the two ways fails for customers of a kind that nobody of the staff is: a good part of"
    " the requests ends in a 500, in pods that are ready and that nobody has rolled out.",
    joined=85,
)
async def flag_for_everybody(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found that staff had no second address, no voucher and no old account."""
    namespace, name, called, front, flag, other, beside = lab.rng.choice(
        (
            ("shop", "order-form", "address-book", "order-page", "address-completion", "gift-wrapping", "gift-desk"),
            ("payments", "instalments", "score-store", "pay-later", "new-plan-picker", "iban-scan", "bank-picker"),
            ("media", "resume-points", "history-book", "watch-page", "profiles-v2", "skip-intro", "intro-marks"),
            ("search", "result-list", "click-store", "result-page", "grouped-results", "voice-search", "dictation"),
        )
    )
    by, deploys = lab.rng.choice((*TEAMS, "flux")), lab.rng.choice(("ci", "argocd"))
    share, minor, turned = lab.rng.uniform(0.2, 0.55), lab.rng.randrange(4, 60), list[float]()

    def fails(container: Container) -> float:
        """Of those who go the new way; each process reads the flags now and then."""
        if container.config.get(flag) != EVERYBODY:
            return share * OF_STAFF
        if not turned:
            turned.append(now().timestamp())
        return share if now().timestamp() - turned[0] >= 2 + lab.lag else share * OF_STAFF

    await lab.app(namespace, called, replicas=2, tag="2.2.0")
    await lab.until(lambda: backends(lab.world, namespace, called))
    flags = {flag: STAFF, other: STAFF, lab.rng.choice(("dark-mode", "new-footer")): EVERYBODY}
    await lab.apply(objects.config_map(namespace, FLAGS, **flags))
    like = App("", upstreams=((namespace, called),), asked=lambda: 28.0, failing=fails)
    told = [{"name": f"{called.upper().replace('-', '_')}_URL", "value": f"http://{called}"}]
    await lab.app(
        namespace, name, like=like, replicas=lab.rng.choice((3, 4)), tag=f"8.{minor}.0", config=FLAGS, env=told
    )
    await lab.app(namespace, beside, replicas=2, tag="1.9.0", config=FLAGS)
    await rolled(lab, namespace, name, f"8.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, beside)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)

    await lab.roll(deploys, namespace, name, f"8.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    turns = [(other, False), (flag, True)]
    lab.rng.shuffle(turns)
    for one, is_culprit in turns:
        body = {"data": {one: EVERYBODY}}
        if is_culprit:
            await lab.culprit(by, "update", "ConfigMap", namespace, FLAGS, body)
        else:
            await lab.edit(by, "ConfigMap", namespace, FLAGS, body)
        await lab.pause(lab.rng.uniform(1, 3))
    lab.start(afterwards())


CALM, STEP = 0.15, 0.3
"""How busy the database is on any day, and how far it comes each second towards what it is to be."""
QUERY_SECONDS, SCAN_SECONDS = 0.03, 1.6
"""What a query takes, and what one takes that reads a whole table."""


@dataclass
class _Database:
    """One server for several apps. What reads whole tables takes its processors and its disk, and all others wait."""

    scans: Callable[[], float]
    """Which share of what asks for it has the new query."""
    busy: float = CALM

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.busy += (CALM + (0.975 - CALM) * min(1.0, 1.5 * self.scans()) - self.busy) * STEP

    @property
    def wait(self) -> float:
        """Seconds that a query takes longer than on any day."""
        return QUERY_SECONDS * (1 / (1 - self.busy) - 1 / (1 - CALM))

    def active(self) -> float:
        """Sessions that have a query under way."""
        return round(3 + 90 * (self.busy - CALM) ** 2)


@family(
    "The apps of several teams share one database. A release of one of them looks for something by a column that has no"
    " index: on a developer's machine the table has a hundred rows, and here it has forty million. The database reads"
    " it from end to end again and again, and is slow for all of the apps.",
    joined=85,
)
async def unindexed_column(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked at the app that was called about before they looked at pg_stat_activity."""
    places = lab.rng.sample(
        (
            ("shop", "loyalty-points"),
            ("payments", "refund-list"),
            ("search", "saved-searches"),
            ("media", "comment-threads"),
        ),
        3,
    )
    (namespace, name), first, second = places
    base = ("platform", lab.rng.choice(("core-db", "main-postgres", "shared-db")))
    by, minor = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(5, 70)
    old, new, scanning = f"4.{minor}.2", f"4.{minor + 1}.0", lab.rng.uniform(0.04, 0.2)

    def scans() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is apps[namespace, name]]
        return sum(one.tag == new and one.seconds >= lab.lag for one in there) / max(1, len(there))

    database, apps = _Database(scans), dict[tuple[str, str], App]()
    queries = {place: lab.rng.uniform(0.9, 2.2) for place in places}

    def slow(container: Container, place: tuple[str, str]) -> float:
        """All that it asks waits, and one of its own reads the table."""
        own = scanning * SCAN_SECONDS if container.tag == new and place == places[0] else 0.0
        return queries[place] * database.wait + (own if container.seconds >= lab.lag else 0.0)

    await lab.app(*base, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.9")
    await rolled(lab, *base, "16.9")
    for place in places:
        like = App("", upstreams=(base,), asked=lambda: 22.0, latency=partial(slow, place=place))
        await lab.apply(objects.config_map(*place, LOG_LEVEL="info", POOL_SIZE="20"))
        apps[place] = await lab.app(*place, like=like, replicas=3, tag=old, config=place[1])
        await rolled(lab, *place, old)
        await publish(lab, *place)
        lab.alert_slow(*place)
    told = {"namespace": base[0], "service": base[1]}
    lab.measure("pg_stat_activity_count", database.active, **told, state="active")
    lab.start(database.run())
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", *second, {"data": {"LOG_LEVEL": "warn"}})

    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", *first, {"data": {"POOL_SIZE": lab.rng.choice(("15", "25"))}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll(by, namespace, name, new, culprit=True)
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(lab.rng.choice(("ci", "argocd")), *first, f"4.{minor}.3")
    lab.start(afterwards())
