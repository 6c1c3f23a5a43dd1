"""Incidents without a culprit among the changes: what visitors of one page cost another, a machine that errs."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from tests.lab.alerts import pods, restarts
from tests.lab.api import now, path
from tests.lab.apps import App, Container, Problem, Process
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


@family(
    "A module of a machine's memory begins to fail: its node is ready all the while, and one process there after"
    " another meets what it never wrote and ends, whichever app it is of.",
    culprit=False,
    joined=19,
)
async def failing_memory(lab: Lab) -> AsyncIterator[None]:
    """As those who measure .NET tell of a machine (November 2022, arcade 11701)."""
    bad, ends = set[str](), dict[str, datetime]()

    def check(container: Container) -> Problem | None:
        pod = container.pod
        if pod["spec"].get("nodeName") not in bad:
            return None
        told = pod["status"].get("containerStatuses", ())
        process = f"{pod['metadata']['uid']} {sum(one['restartCount'] for one in told)}"
        lasts = timedelta(seconds=lab.kubelets.rng.expovariate(1 / LASTS_SECONDS))
        if now() < ends.setdefault(process, now() + lasts):
            return None
        return Problem("crash", lab.kubelets.rng.choice(SIGNS))

    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    places = lab.rng.sample((("shop", "reviews"), ("payments", "receipts"), ("search", "tags"), ("media", "covers")), 3)
    for namespace, name in places:
        selector = {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}
        await lab.app(namespace, name, replicas=6, topologySpreadConstraints=[{**spread, **selector}])
        holds = lambda place=(namespace, name): restarts(lab.world, *place) >= 3  # noqa: E731
        summary = f"a pod of {namespace}/{name} restarts again and again"
        lab.alert("KubePodCrashLooping", holds, summary, 4, namespace=namespace, deployment=name)
    for app in lab.apps.values():
        app.check = check
    yield
    there = Counter(pod["spec"]["nodeName"] for place in places for pod in pods(lab.world, *place))
    bad.add(lab.rng.choice(sorted(node for node, number in there.items() if number >= 2)))
