"""What was told of releases that bring only a part of what they need: the step before them, the script beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_done
from tests.lab.network import backends
from tests.lab.scenario import family

ASK_EVERY = 0.1
"""How often somebody asks a service for what it keeps in its database."""
FIXES = ("internal", "patch", "patch2", "patch3")
"""What is tried next, with the same code in it."""
CHECK_SECONDS, BUILD_SECONDS = 5.0, 2.0
"""How often a builder looks whether a site is built, and for how long it builds."""
WARM_SECONDS, CALLS, UNCACHED = 12.0, 420.0, 0.08
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

    async def ask() -> None:
        """Callers, each of whom gets to one of the pods: a query names every column that the code knows."""
        while True:
            await asyncio.sleep(ASK_EVERY)
            behind = backends(lab.world, namespace, name)
            tag = images(lab.rng.choice(behind))[0].rsplit(":", 1)[1] if behind else old
            failed[0] += tag.startswith(new) and not is_migrated()

    await lab.app(namespace, name, tag=old, replicas=3)
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


def _build(namespace: str, name: str, image: str) -> Json:
    """What a run is made of."""
    made = objects.deployment(namespace, f"{name}-build", image, restartPolicy="Never")
    template: Json = made["spec"]["template"]
    del template["spec"]["containers"][0]["readinessProbe"]
    return template
