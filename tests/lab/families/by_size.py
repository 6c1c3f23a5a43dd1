"""What depends on how large a thing is that is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

GIVEN_UP = 6.0
"""Seconds after which a client gives a call up that nobody has answered."""


@dataclass
class _Route:
    """The way to somebody outside: by some of its paths no whole packet gets there, and nobody is told so."""

    lab: Lab
    narrow: float = 0.0
    """The share of connections that go by these."""

    async def move(self) -> None:
        """A carrier takes one link after another out, whose connections go by a tunnel then."""
        while self.narrow < 1:
            await asyncio.sleep(1)
            self.narrow = min(1.0, self.narrow + self.lab.rng.uniform(0.04, 0.16))


@dataclass(frozen=True)
class _Sender:
    """An app that sends something out with a share of what it is asked, of which a share, ``large``, fills packets."""

    route: _Route
    sends: float
    large: float

    def lost(self, _: Container) -> float:
        """The connection is there and takes what is small: a large thing is sent again and again in vain."""
        return self.sends * self.large * self.route.narrow

    def waits(self, container: Container) -> float:
        return GIVEN_UP * self.lost(container)


@family(
    "A carrier on the way to a partner maintains its links, and what goes there goes by a tunnel whose packets have"
    " less room; what would tell the senders is filtered. Connections come about, small requests are answered, and"
    " whatever fills a packet never arrives: the app that sends documents fails, the one that asks for their state is"
    " well.",
    culprit=False,
    joined=47,
)
async def large_letters(lab: Lab) -> AsyncIterator[None]:
    """As networks have known it since path MTU discovery (RFC 2923): a black hole for large packets."""
    namespace, name, other, page, host = lab.rng.choice(
        (
            ("payments", "statement-dispatch", "statement-state", "statement-page", "api.letters.example"),
            ("shop", "photo-prints", "print-state", "print-page", "api.prints.example"),
            ("media", "subtitle-orders", "subtitle-state", "subtitle-page", "api.subtitles.example"),
        )
    )
    route = _Route(lab)
    sender, asker = _Sender(route, 0.6, lab.rng.uniform(0.5, 0.7)), _Sender(route, 1.0, 0.0)
    for one, work in ((name, sender), (other, asker)):
        like = App("", abroad=(host,), failing=work.lost, latency=work.waits, fails_with=lambda _: "504")
        await lab.app(namespace, one, like=like, replicas=2, tag="5.1.0")
    upstreams = (namespace, name), (namespace, other)
    await lab.app(namespace, page, like=App("", upstreams=upstreams), replicas=2, tag="2.0.7")
    await rolled(lab, namespace, page, "2.0.7")
    await lab.until(lambda: all(backends(lab.world, *place) for place in upstreams))
    await publish(lab, namespace, page)
    for one in (name, other, page):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name, 0.8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(5, 15))
    lab.start(route.move())
