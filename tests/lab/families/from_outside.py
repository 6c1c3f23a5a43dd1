"""Incidents without a culprit among the changes: who asks for what nobody asks for, and a room that is too warm."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from functools import partial

from tests.lab.alerts import is_lost
from tests.lab.api import path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

HIT, DATABASE_STANDS, EACH_GETS = 0.92, 60.0, 55.0
"""The share of users' pages that are in a cache, queries a second that a database answers, and what one pod is for."""
GIVES_UP_SECONDS = 2.5
"""After which whoever waits for a database answers with an error."""
COOL, SLOWED, OFF = 24.0, 36.0, 45.0
"""Degrees of the air that a machine draws: as ever, where its processors slow down, and where it stops by itself."""
SLOWER = 0.15
"""Seconds that each degree above costs an answer."""


@family(
    "A crawler begins to ask for every combination of the filters of a list, none of which is in the cache: users ask"
    " as ever, and the database behind gets many times the queries, however many pods there are.",
    culprit=False,
    joined=20,
)
async def crawler_misses(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, name = lab.rng.choice((("shop", "listing"), ("media", "archive"), ("search", "facets")))
    database = f"{name}-db"
    users, most, crawled = lab.rng.uniform(180, 240), lab.rng.uniform(110, 150), [0.0]

    def asked() -> float:
        return users + crawled[0]

    def missed() -> float:
        return users * (1 - HIT) + crawled[0]

    def refused(_: Container) -> float:
        """Of all pages those that are not in the cache, and of these what the database is too late for."""
        return missed() / asked() * max(0.0, 1 - DATABASE_STANDS / missed())

    def waits(_: Container) -> float:
        free = max(0.0, 1 - missed() / DATABASE_STANDS)
        return missed() / asked() * min(GIVES_UP_SECONDS, 0.03 / max(free, 0.01))

    async def scale(process: Process) -> None:
        """By requests, as ever; more pods have no more of a database."""
        where, wanted = f"{path('Deployment', namespace, name)}/scale", math.ceil(asked() / EACH_GETS)
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def crawl() -> None:
        """It begins with a few, and asks for more as it finds more."""
        while crawled[0] < most:
            crawled[0] = min(most, crawled[0] + lab.kubelets.rng.uniform(6, 12))
            await asyncio.sleep(0.5)

    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    like = App("", asked=asked, failing=refused, latency=waits, upstreams=((namespace, database),))
    await lab.app(namespace, name, like=like, replicas=math.ceil(users / EACH_GETS))
    lab.reserve(namespace, name, database)
    may = ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "traffic-scaler", every(4, scale), may, replicas=1)
    for result, rate in (("hit", lambda: users * HIT), ("miss", missed)):
        counted = lab.adding_up(rate)
        lab.measure("page_cache_requests_total", counted, "counter", namespace=namespace, service=name, result=result)
    active = lambda: 4 + min(90.0, missed() * (0.05 + max(0.0, 1 - DATABASE_STANDS / missed())))  # noqa: E731
    lab.measure("pg_stat_activity_count", active, namespace=namespace, service=database)
    await lab.until(lambda: backends(lab.world, namespace, name))
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    lab.start(crawl())


@family(
    "The cooling of one room of the machines fails: the air gets warm, processors slow down, so that what runs there"
    " answers late, and one machine after another stops by itself before it takes harm.",
    culprit=False,
    joined=20,
)
async def cooling_fails(lab: Lab) -> AsyncIterator[None]:
    """As Microsoft tells of one part of a data centre (September 2018)."""
    warm = lab.rng.sample(NODES, 3)
    degrees = {node: COOL + lab.rng.uniform(-1, 1) for node in NODES}

    def slowed(container: Container) -> float:
        return SLOWER * max(0.0, degrees.get(container.pod["spec"].get("nodeName", ""), COOL) - SLOWED)

    def told_by(node: str) -> float | None:
        return None if node in lab.outside.dead_nodes else round(degrees[node])

    async def fail() -> None:
        """No machine stands where another one does, and those that are off warm nobody."""
        pace = {node: lab.kubelets.rng.uniform(0.6, 1.0) for node in warm}
        while True:
            await asyncio.sleep(1)
            degrees.update({node: degrees[node] + pace[node] for node in warm if node not in lab.outside.dead_nodes})
            lab.outside.dead_nodes |= {node for node in warm if degrees[node] > OFF}

    for node in NODES:
        room = {"metadata": {"labels": {"room.corp.example/name": "b" if node in warm else "a"}}}
        await lab.edit("admin", "Node", "", node, room)
        told = partial(told_by, node)
        lab.measure("node_hwmon_temp_celsius", told, namespace="monitoring", service="node-agent", instance=node)
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 4, node=node)
    for app in lab.apps.values():
        app.latency = slowed
    for namespace, name in (("shop", "frontend"), ("payments", "checkout"), ("search", "query"), ("media", "uploads")):
        lab.alert_slow(namespace, name)
    yield
    lab.start(fail())
