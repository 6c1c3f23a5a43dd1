"""Everyday work of teams: a strategy, a migration, a timeout, a level of logging."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_done
from tests.lab.scenario import family


@family(
    "The strategy of an app becomes Recreate, so that no two versions of it write at once: the next, harmless rollout"
    " ends every replica before it makes a new one, they are slow to start, and what calls it has nobody.",
    joined=7,
)
async def recreate_strategy(lab: Lab) -> AsyncIterator[None]:
    namespace, name, caller = lab.rng.choice(
        (("shop", "stock", "offers"), ("payments", "fees", "quotes"), ("search", "synonyms", "suggest"))
    )
    await lab.app(namespace, name, like=App("", start_seconds=25), replicas=3)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)))
    lab.alert_lacking(namespace, caller)
    yield
    by = lab.rng.choice(("bob", "carol", "flux"))
    strategy = {"type": "Recreate", "rollingUpdate": None}
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"strategy": strategy}})
    await lab.pause(lab.rng.uniform(8, 14))
    await lab.roll("argocd", namespace, name, "1.0.1")


@family(
    "A migration drops a column one release early: what runs still reads it and crashes.",
    joined=7,
)
async def migration_column(lab: Lab) -> AsyncIterator[None]:
    namespace, name, column = lab.rng.choice(
        (("payments", "invoices", "vat_id"), ("shop", "accounts", "nickname"), ("media", "albums", "cover_url"))
    )
    run, image = f"{name}-migrate-{lab.rng.randrange(100, 999)}", f"registry.corp.example/{namespace}/{name}-migrate"
    lab.apps[image] = App(image, ends_after=4)

    def check(container: Container) -> Problem | None:
        """Its database is as the migrations left it that are through."""
        through = any(
            is_done(pod) and pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == run
            for (where, _), pod in lab.world["Pod"].items()
            if where == namespace
        )
        return Problem("crash", f'ERROR: column "{column}" does not exist (SQLSTATE 42703)') if through else None

    await lab.app(namespace, name, tag="1.8.0", like=App("", check=check), replicas=3)
    lab.alert_lacking(namespace, name)
    yield
    template = objects.deployment(namespace, f"{name}-migrate", f"{image}:1.9.0", restartPolicy="Never")
    spec = {"template": template["spec"]["template"], "backoffLimit": 1}
    await lab.culprit("ci", "create", "Job", namespace, run, {"metadata": {"name": run}, "spec": spec})


@family(
    "A timeout in a ConfigMap is cut so that an app fails fast: what it calls takes longer than that, and always did.",
    joined=7,
)
async def timeout_cut(lab: Lab) -> AsyncIterator[None]:
    namespace, name, called = lab.rng.choice(
        (("shop", "frontend", "catalog"), ("payments", "checkout", "ledger"), ("search", "query", "indexer"))
    )
    lab.reserve(namespace, name)
    takes = lab.rng.randrange(230, 280)

    def check(container: Container) -> Problem | None:
        """It reads its configuration anew with every request."""
        given = int(container.config.get("TIMEOUT_MS", "800"))
        if given >= takes:
            return None
        trouble = f"GET http://{called}.{namespace}: context deadline exceeded after {given}ms"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({trouble})")

    lab.apps[f"registry.corp.example/{namespace}/{name}"].check = check
    lab.alert_lacking(namespace, name)
    yield
    cut = lab.rng.choice(("80", "100", "150"))
    by = lab.rng.choice(("alice", "bob", "ci"))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {"TIMEOUT_MS": cut}})


LOG_MEBIBYTES = {"info": 2, "debug": 220}
"""What a container writes a second, by its level; more than is rotated away fills the disk."""
LOG_ROOM = 3000


@family(
    "Somebody who looks for a fault sets an app to log everything: the disks of its nodes are full of it, and their"
    " kubelets evict whatever runs there.",
    joined=7,
)
async def debug_logging(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("search", "query"), ("shop", "frontend"), ("media", "uploads")))
    lab.reserve(namespace, name)
    logs: Counter[str] = Counter()
    written = lab.outside.written

    async def write() -> None:
        """A node rotates so much away as a container writes that logs what matters."""
        while True:
            await asyncio.sleep(1)
            level = lab.world["ConfigMap"][namespace, name]["data"]["LOG_LEVEL"]
            for pod in pods(lab.world, namespace, name):
                if pod.get("status", {}).get("phase") == "Running":
                    uid, more = pod["metadata"]["uid"], LOG_MEBIBYTES[level] - LOG_MEBIBYTES["info"]
                    logs[pod["spec"]["nodeName"]] += more
                    written[uid] = written.get(uid, 0) + more
            lab.outside.full_disks.update(node for node, size in logs.items() if size > LOG_ROOM)

    def full(node: str) -> bool:
        found: list[Json] = lab.world["Node"]["", node]["status"]["conditions"]
        return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in found)

    def watch(node: str) -> None:
        lab.alert("KubeNodePressure", lambda: full(node), f"node {node} has no room on its disk", 8, node=node)

    for node in NODES:
        watch(node)
    lab.start(write())
    yield
    by = lab.rng.choice(("alice", "carol"))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "debug"}})
