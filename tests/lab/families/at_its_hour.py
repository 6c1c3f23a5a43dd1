"""What comes at its hour or from elsewhere: a root that is over, a network's maintenance, a backup each night."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

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
