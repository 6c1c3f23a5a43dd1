"""Incidents without a culprit among the changes: what visitors of one page cost another, a machine that errs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from tests.lab.api import path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

USUAL, EACH, LEAST, MOST = 40.0, 20.0, 3, 10
"""Visits a second of a page, how many one of its pods is to get, and how few and many of those there may be."""
STANDS, OTHERS, PER_VISIT = 80.0, 50.0, 1.5
"""Calls a second that one pod of the called app stands, those of others, and how many a visit makes."""
LASTS_SECONDS = 6.0
"""How long a process lasts in the mean before it meets what memory has changed."""
SIGNS = (
    "fatal error: unexpected signal during runtime execution: SIGSEGV",
    "panic: runtime error: invalid memory address or nil pointer dereference",
    "double free or corruption (out)",
)


@family(
    "A page is shown on television: an autoscaler gives it the pods that its visitors need, and all of those ask an app"
    " of a fixed size for prices, which does not stand it, and another page, which asks it too, fails with it.",
    culprit=False,
    joined=19,
)
async def surge_passed_on(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, page, called, other = lab.rng.choice(
        (
            ("shop", "offers", "prices", "basket"),
            ("media", "premieres", "rights", "player"),
            ("search", "trends", "profiles", "saved"),
        )
    )
    visits, most = [USUAL], lab.rng.uniform(180, 240)

    def calls() -> float:
        return OTHERS + PER_VISIT * visits[0]

    def unanswered(_: Container) -> float:
        """What waits longer than those who ask do."""
        return max(0.0, 1 - STANDS * max(1, len(backends(lab.world, namespace, called))) / calls())

    def waits(container: Container) -> float:
        return 1.5 if unanswered(container) else 0.0

    async def scale(process: Process) -> None:
        """As one that goes by the requests of each pod."""
        where = path("Deployment", namespace, page)
        found = await process.api.call("GET", where)
        wanted = min(MOST, max(LEAST, math.ceil(visits[0] / EACH)))
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def grow() -> None:
        """All within a few minutes."""
        for _ in range(10):
            visits[0] += (most - USUAL) / 10
            await asyncio.sleep(1)

    like = App("", capacity=STANDS, asked=calls, failing=unanswered, fails_with=lambda _: "503", latency=waits)
    await lab.app(namespace, called, like=like, replicas=3)
    upstreams = ((namespace, called),)
    await lab.app(namespace, page, like=App("", asked=lambda: visits[0], upstreams=upstreams), replicas=LEAST)
    await lab.app(namespace, other, like=App("", upstreams=upstreams), replicas=3)
    rule = ("apps", "deployments", "get,patch")
    await lab.controller("platform", "request-scaler", every(3, scale), rule, replicas=1)
    await lab.until(lambda: len(backends(lab.world, namespace, page)) == LEAST)
    await publish(lab, namespace, page)
    for one in (page, called, other):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, called)
    yield
    lab.start(grow())
