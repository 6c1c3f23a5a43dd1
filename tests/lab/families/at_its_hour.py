"""What comes at its hour or from elsewhere: a root that is over, a network's maintenance, a backup each night."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.api import now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


@family(
    "A root certificate of old is over at its hour. What a partner shows has another way to a newer root, which newer"
    " clients take: those with a library of old stop at the first one, and each of their calls to the partner fails.",
    culprit=False,
    joined=21,
)
async def root_expired(lab: Lab) -> AsyncIterator[None]:
    """As users of Nextcloud tell of AddTrust (30 May 2020, nextcloud/desktop 2049), whose browsers went on."""
    host = lab.rng.choice(("api.acquirer.example", "rates.carrier.example", "id.partner.example"))
    places = lab.rng.sample(
        [
            ("payments", "capture"),
            ("shop", "shipping"),
            ("media", "licensing"),
            ("search", "enrichment"),
            ("shop", "tax"),
        ],
        4,
    )
    old, over = places[: lab.rng.choice((1, 2))], asyncio.Event()
    for place in places:
        needs = lab.rng.uniform(0.5, 0.9)  # the share of what it is asked for which it asks the partner

        def failing(_: Container, *, share: float = needs if place in old else 0.0) -> float:
            return share if over.is_set() else 0.0

        like = App("", abroad=(host,), failing=failing, fails_with=lambda _: "502")
        await lab.app(*place, like=like, replicas=3, tag=f"{lab.rng.randrange(1, 9)}.{lab.rng.randrange(20)}.0")
        lab.alert_errors(*place)
    await lab.until(lambda: all(len(backends(lab.world, *place)) == 3 for place in places))
    await publish(lab, *old[0])
    lab.alert_ingress_errors(old[0][0], old[0][0])
    yield
    over.set()


STORE = "sessions.infra.example"
"""Where sessions are kept, over a network that others maintain."""
TRIES_SECONDS, WAITS_SECONDS = 3.0, 1.5
"""For how long whoever connects anew does so in vain, and how long whoever has a dead connection waits each time."""


@family(
    "Those who run a network outside of the cluster maintain it, and connections over it are gone without a word. Most"
    " connect anew. What signs users in has its connection since its start, and waits on it for answers for ever.",
    culprit=False,
    joined=21,
)
async def dead_connections(lab: Lab) -> AsyncIterator[None]:
    """As TOPdesk tells of 9 September 2020."""
    namespace, name, caller, other = lab.rng.choice(
        (
            ("platform", "sign-in", "console", "audit-trail"),
            ("shop", "login", "account", "wishlist"),
            ("media", "identity", "studio", "watchlist"),
        )
    )
    cut: list[datetime] = []

    def age() -> float:
        return (now() - cut[0]).total_seconds() if cut else 0.0

    def is_dead(container: Container) -> bool:
        """Of a process that had its connection before."""
        return bool(cut) and container.seconds > age()

    def reconnecting(_: Container) -> float:
        return 0.4 if cut and age() < TRIES_SECONDS else 0.0

    kept = App(
        "",
        abroad=(STORE,),
        failing=lambda one: 0.85 if is_dead(one) else 0.0,
        fails_with=lambda _: "504",
        latency=lambda one: WAITS_SECONDS if is_dead(one) else 0.0,
    )
    await lab.app(namespace, name, like=kept, replicas=3)
    await lab.app(namespace, other, like=App("", abroad=(STORE,), failing=reconnecting), replicas=2)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
    lab.reserve(namespace, name)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 2)
    await publish(lab, namespace, caller)
    for each in (name, caller, other):
        lab.alert_errors(namespace, each)
    lab.alert_slow(namespace, name, 1.0)
    yield
    cut.append(now())
