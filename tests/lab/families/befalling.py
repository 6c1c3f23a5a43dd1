"""Incidents without a culprit among the changes: pages that take long to make, pods that nothing makes again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

REPLICAS, WORKERS = 4, 6
"""Servers of pages, and how many of these each of them makes at the same time."""
PAGE_SECONDS, COSTLY_SECONDS, WAIT_SECONDS = 0.06, 3.0, 5.0
"""How long a worker is busy with a page, and with one of those that are a lot of work; how long others wait for one."""
SESSIONS, SESSION_IMAGE = 24, "registry.corp.example/notebooks/session"
DOWN_SECONDS = 6.0
"""Until a machine is up again after what has ended its runtime: nobody calls its node lost so soon."""


@family(
    "Addresses of a few networks ask again and again for those pages that are a lot of work to make: there are hardly"
    " more requests than on any day, but the workers are all busy with them, and everybody else waits in vain.",
    culprit=False,
    joined=22,
)
async def costly_pages(lab: Lab) -> AsyncIterator[None]:
    """As the Open Build Service tells of 8 July 2026 (obs-landing 574)."""
    namespace, name, caller = lab.rng.choice(
        (("media", "sources", "builds"), ("search", "comparisons", "digests"), ("shop", "order-reports", "invoices"))
    )
    users, most, costly = lab.rng.uniform(60, 80), lab.rng.uniform(13, 18), [lab.rng.uniform(0.4, 0.8)]

    def workers() -> int:
        return WORKERS * max(1, len(backends(lab.world, namespace, name)))

    def wanted() -> float:
        """Workers that would be busy if there were enough of them."""
        return users * PAGE_SECONDS + costly[0] * COSTLY_SECONDS

    def refused(_: Container) -> float:
        return max(0.0, 1 - workers() / wanted())

    def waits(_: Container) -> float:
        """A worker's time for each, and a queue that grows as fewer workers are free."""
        own = wanted() / (users + costly[0]) - 0.02
        free = max(0.0, 1 - wanted() / workers())
        return own + min(WAIT_SECONDS, 0.01 / max(free, 0.001))

    async def ask() -> None:
        """More and more of those addresses."""
        while costly[0] < most:
            costly[0] = min(most, costly[0] + lab.kubelets.rng.uniform(0.4, 0.9))
            await asyncio.sleep(0.5)

    asked = lambda: users + costly[0]  # noqa: E731
    like = App("", asked=asked, failing=refused, fails_with=lambda _: "503", latency=waits)
    await lab.app(namespace, name, like=like, replicas=REPLICAS)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
    busy = lambda: min(wanted(), float(workers()))  # noqa: E731
    lab.measure("http_workers_busy", busy, namespace=namespace, service=name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == REPLICAS)
    await publish(lab, namespace, name)
    lab.reserve(namespace, caller)
    for one in (name, caller):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name, 1.0)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    lab.start(ask())


@family(
    "The runtime of one machine ends with all that runs there, and the machine boots anew: apps are up again by then,"
    " but the pods of users' sessions, which a hub made once and nothing starts or makes again, have ended.",
    culprit=False,
    joined=22,
)
async def bare_pods(lab: Lab) -> AsyncIterator[None]:
    """As mybinder.org tells of 27 February 2018 (mybinder.org-deploy 493)."""
    namespace, proxy, hub = "notebooks", "proxy", "hub"
    users = [f"session-{lab.rng.randrange(16**6):06x}" for _ in range(SESSIONS)]
    homes = spare(lab, 3)
    where = path("Pod", namespace)
    started: set[str] = set()

    def manifest(user: str) -> Json:
        """A pod without a controller."""
        made = objects.deployment(
            namespace,
            user,
            f"{SESSION_IMAGE}:3.1.0",
            nodeSelector={"pool": "users"},
            restartPolicy="Never",
        )
        meta = {"name": user, "labels": {"component": "session"}}
        return {"metadata": meta, "spec": made["spec"]["template"]["spec"]}

    async def serve(process: Process) -> None:
        """Who is new gets a pod; who has had one is sent to it by the proxy."""
        for user in users:
            if user not in started and (await process.api.call("POST", where, manifest(user))).ok:
                started.add(user)
        await process.api.call("GET", f"{where}?labelSelector=component=session")

    def is_served(user: str) -> bool:
        pod = lab.world["Pod"].get((namespace, user))
        return pod is not None and is_ready(pod) and pod["spec"]["nodeName"] not in lab.outside.dead_nodes

    def gone(_: Container) -> float:
        """Of all users, whose browsers go on to ask, those whose pod does not answer."""
        return sum(not is_served(user) for user in users) / SESSIONS

    for node in homes:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "users"}}})
    await lab.namespace(namespace)
    lab.apps[SESSION_IMAGE] = App(SESSION_IMAGE)
    general: Json = {"nodeSelector": {"pool": "general"}}
    await lab.controller(namespace, hub, every(3, serve), ("", "pods", "*"), replicas=1, **general)
    await lab.until(lambda: all(map(is_served, users)))
    like = App("", failing=gone, fails_with=lambda _: "503")
    await lab.app(namespace, proxy, like=like, replicas=2, **general)
    await lab.until(lambda: len(backends(lab.world, namespace, proxy)) == len(pods(lab.world, namespace, proxy)) == 2)
    await publish(lab, namespace, proxy)
    active = lambda: float(sum(map(is_served, users)))  # noqa: E731
    lab.measure("jupyterhub_active_sessions", active, namespace=namespace, service=proxy)
    lab.alert_errors(namespace, proxy)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    node = lab.rng.choice(homes)
    lab.kubelets.crash(node)

    async def boot() -> None:
        await lab.pause(DOWN_SECONDS)
        await lab.kubelets.come_back(node, rebooted=True)

    lab.start(boot())
