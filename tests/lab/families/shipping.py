"""What was told of releases that bring only a part of what they need: the step before them, the script beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.stories import Flaky
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_done
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

ASK_EVERY = 0.1
"""How often somebody asks a service for what it keeps in its database."""
FIXES = ("internal", "patch", "patch2", "patch3")
"""What is tried next, with the same code in it."""
CHECK_SECONDS, BUILD_SECONDS = 5.0, 2.0
"""How often a builder looks whether a site is built, and for how long it builds."""
WARM_SECONDS, CALLS, UNCACHED = 12.0, 600.0, 0.08
"""Until an emptied cache has most again; calls for what it keeps, and the share that it never has."""


@family(
    "Somebody in a hurry sets a new image by kubectl: a chart's hook would have migrated the database first, and the"
    " new code reads a column that is not there. All pods are ready, as their probe does not look, and calls fail.",
    joined=15,
)
async def skipped_migration(lab: Lab) -> AsyncIterator[None]:
    """As Scale AI tells of April 2026 (llm-engine 817); four further images did not help."""
    namespace, name = lab.rng.choice((("search", "models"), ("media", "endpoints"), ("payments", "mandates")))
    minor = lab.rng.randrange(12, 60)
    old, new = f"1.{minor}.0", f"1.{minor + 1}.0"
    failed = [0]

    def is_migrated() -> bool:
        """Whether the hook of this version ran through."""
        runs = pods(lab.world, namespace, f"{name}-migrate")
        return any(is_done(pod) and images(pod)[0].endswith(f":{new}") for pod in runs)

    def fails(tag: str) -> bool:
        """A query names every column that the code knows."""
        return tag.startswith(new) and not is_migrated()

    async def ask() -> None:
        """Callers, each of whom gets to one of the pods."""
        while True:
            await asyncio.sleep(ASK_EVERY)
            behind = backends(lab.world, namespace, name)
            tag = images(lab.rng.choice(behind))[0].rsplit(":", 1)[1] if behind else old
            failed[0] += fails(tag)

    await lab.app(namespace, name, like=App("", failing=lambda container: fails(container.tag)), tag=old, replicas=3)
    errors = lab.rate(lambda: failed[0], 0.5, seconds=10)
    summary = f"more than 5 % of the requests to {name} are answered with 5xx"
    lab.alert("EnvoyUpstream5xxHigh", errors, summary, 30, namespace=namespace, service=name)
    lab.start(ask())
    yield
    by = lab.rng.choice(("alice", "bob"))
    await lab.roll(by, namespace, name, new, culprit=True)

    async def go_on() -> None:
        for fix in FIXES:
            await lab.pause(lab.rng.uniform(5, 9))
            await lab.roll(by, namespace, name, f"{new}-{fix}")

    lab.start(go_on())


def _tag(deployment: Json) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"]).rsplit(":", 1)[1]


def _asked(warm: float) -> float:
    """The calls that a cache does not answer, ``warm`` with a share of what it keeps."""
    return CALLS * (UNCACHED + (1 - UNCACHED) * (1 - warm))


def _status(tag: str) -> str:
    """Since the move a file that cannot be read is one that is not found."""
    return "404" if tag.startswith("2.") else "500"


@family(
    "A site is moved to another framework, and the script that builds it looks for a page where that was before: it"
    " takes the site for never built, builds it again and again, and empties the cache in front each time.",
    joined=15,
)
async def purged_cache(lab: Lab) -> AsyncIterator[None]:
    """As the Node.js project tells of nodejs.org (March 2023, build 3231)."""
    namespace, name = lab.rng.choice((("media", "downloads"), ("shop", "manuals"), ("search", "portal")))
    builder, image = f"{name}-builder", f"registry.corp.example/{namespace}/{name}-build"
    flaky, origin, warm, missed = Flaky(lab.kubelets.rng), App(""), [1.0], [0]
    lab.apps[image] = App(image, ends_after=BUILD_SECONDS)

    def overload() -> float:
        """The share of what the origin is asked that it cannot read from its disk in time."""
        there = max(1, len([pod for pod in pods(lab.world, namespace, name) if "podIP" in pod.get("status", {})]))
        return max(0.0, 1 - origin.capacity * there / _asked(warm[0]))

    def check(container: Container) -> Problem | None:
        code = _status(container.tag)
        return flaky.probe(container, overload(), f"probe failed: HTTP probe failed with statuscode: {code}")

    async def fill() -> None:
        """Whoever asks for a file puts it into the cache, but for one that is not found."""
        while True:
            await asyncio.sleep(0.5)
            warm[0] += (1 - warm[0]) * 0.5 / WARM_SECONDS
            missed[0] += int(CALLS * overload() / 2)

    async def build(process: Process) -> None:
        """A site is built once its start page is there; what was kept of an older one is thrown away."""
        found = await process.api.call("GET", path("Deployment", namespace, name))
        if not found.ok:
            return
        tag = _tag(found.body)
        page = "en/index.html" if tag.startswith("1.") else "en.html"
        if page == "en/index.html":  # which is where it looks
            return
        run = f"{name}-build-{now():%H%M%S}"
        spec = {"template": _build(namespace, name, f"{image}:{tag}"), "ttlSecondsAfterFinished": 8}
        await process.api.call("POST", path("Job", namespace), {"metadata": {"name": run}, "spec": spec})
        for _ in range(20):
            await asyncio.sleep(0.5)
            job = await process.api.call("GET", path("Job", namespace, run))
            if job.body.get("status", {}).get("succeeded"):
                warm[0] = 0.0
                return

    origin.check, origin.asked = check, lambda: _asked(warm[0])
    origin.failing, origin.fails_with = lambda container: overload(), lambda container: _status(container.tag)
    await lab.app(namespace, name, tag="1.31.4", like=origin, replicas=2)
    edge = await lab.app(namespace, f"{name}-edge")  # what the origin answers, it hands on
    edge.failing = lambda container: _asked(warm[0]) / CALLS * overload()
    edge.fails_with = lambda container: _status(_tag(lab.world["Deployment"][namespace, name]))
    rules = ("apps", "deployments", "get"), ("batch", "jobs", "get,create")
    await lab.controller(namespace, builder, every(CHECK_SECONDS, build), *rules, replicas=1)
    not_found = lab.rate(lambda: missed[0], 15, seconds=10)
    summary = f"{name}-edge answers far more requests than usual with 404"
    lab.alert("HTTPNotFoundRateHigh", not_found, summary, 14, namespace=namespace, service=f"{name}-edge")
    lab.alert_lacking(namespace, name, seconds=12)
    lab.start(fill())
    yield
    await lab.roll(lab.rng.choice(("ci", "carol", "argocd")), namespace, name, "2.0.0", culprit=True)


def _build(namespace: str, name: str, image: str) -> Json:
    """What a run is made of."""
    made = objects.deployment(namespace, f"{name}-build", image, restartPolicy="Never")
    template: Json = made["spec"]["template"]
    del template["spec"]["containers"][0]["readinessProbe"]
    return template
