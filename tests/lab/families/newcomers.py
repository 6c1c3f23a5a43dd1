"""What was told of the first pods of a new version: they see no peers, or find something amiss in what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.alerts import pods, restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.scenario import family

COPIES, DISK = 2, 0.5
"""How many members of a store keep each shard, and how much of all shards the disk of one has room for."""
LOADED = 0.06
"""How much of all shards a member loads in a second."""
GATE_SECONDS = 12.0
"""For how long a startup probe waits for a program that has much to prepare."""
REFUSED = "probe failed: HTTP probe failed with statuscode: 503"


@family(
    "A store's new version meets under another name than the old one: its first pods see no peers, each takes all"
    " shards for its own, and their disks are full before the next ones come.",
    joined=15,
)
async def peers_apart(lab: Lab) -> AsyncIterator[None]:
    """As Stripe tells of Sequins and how its nodes wait for each other (November 2017, sequins 136)."""
    namespace, name = lab.rng.choice((("search", "rankings"), ("shop", "prices"), ("payments", "scores")))
    new = lab.rng.choice(("1.1.0", "1.0.1", "2.0.0"))
    loaded: dict[str, float] = {}

    def met() -> list[str]:
        """The members that run the new version and so know of each other, by uid."""
        found = (pod for pod in pods(lab.world, namespace, name) if "deletionTimestamp" not in pod["metadata"])
        running = (pod for pod in found if pod.get("status", {}).get("phase") == "Running")
        return [pod["metadata"]["uid"] for pod in running if pod["spec"]["containers"][0]["image"].endswith(f":{new}")]

    async def load() -> None:
        """Each loads the shards that fall to it among those that it knows of; the old ones have theirs for long."""
        while True:
            members = met()
            share = min(1.0, COPIES / max(1, len(members)))
            for uid in members:
                loaded[uid] = min(loaded.get(uid, 0.0) + LOADED, max(share, loaded.get(uid, 0.0)))
            await asyncio.sleep(1)

    def check(container: Container) -> Problem | None:
        if loaded.get(container.pod["metadata"]["uid"], 0.0) <= DISK:
            return None
        shard = lab.rng.randrange(64)
        return Problem("crash", f"open /data/{name}/part-{shard:05}.sqs: no space left on device")

    volumes = [{"name": "data", "emptyDir": {}}]
    like = App("", check=check, start_seconds=2.0)
    await lab.app(namespace, name, like=like, kind="StatefulSet", replicas=6, volumes=volumes)
    lab.start(load())
    holds = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"containers of {namespace}/{name} crash again and again"
    lab.alert("KubePodCrashLooping", holds, summary, 4, namespace=namespace, statefulset=name)
    yield
    there = lab.world["StatefulSet"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    one = {**there, "image": f"registry.corp.example/{namespace}/{name}:{new}"}
    body = {"spec": {"template": {"spec": {"containers": [one]}}}}
    await lab.culprit(lab.rng.choice(("ci", "argocd", "alice")), "update", "StatefulSet", namespace, name, body)


@family(
    "A release looks through what is stored before it answers, and takes what users left half-made there for a fault"
    " of its own: its pods do not get past their startup probe, and its rollout stands still.",
    joined=15,
)
async def content_check(lab: Lab) -> AsyncIterator[None]:
    """As MeshWeaver tells of the gate of its portal (September 2026, issue 3663)."""
    namespace, name = lab.rng.choice((("media", "portal"), ("shop", "storefront"), ("search", "workbench")))
    new = f"3.{lab.rng.randrange(1, 9)}.0"

    def check(container: Container) -> Problem | None:
        """What is stored does not change by itself: it looks at the same at each start."""
        if container.tag != new:
            return None
        return Problem("killed" if container.seconds >= GATE_SECONDS else "starting", REFUSED, "Startup")

    probe: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 3, "failureThreshold": 4}
    await lab.app(namespace, name, like=App("", check=check, start_seconds=3.0), replicas=2, startup=probe)
    lab.alert_stuck(namespace, name)
    yield
    await lab.roll(lab.rng.choice(("ci", "flux", "argocd")), namespace, name, new, culprit=True)
