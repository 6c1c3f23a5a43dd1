"""What was told of what programs go by: a key of another project, registrations that flap, a list cut short."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import now, path
from tests.lab.apps import LATE, App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, getting
from tests.lab.scenario import family

FLAP_SECONDS = 3.0
"""For how long a member's registration is gone while the disk that keeps it is slow."""
TASK_SECONDS = 4.0


def _key(project: str) -> str:
    """The key of a service account, as a Secret has it."""
    fields = {"type": "service_account", "project_id": project, "client_email": f"llm@{project}.iam.example"}
    return base64.b64encode(json.dumps(fields).encode()).decode()


@family(
    "The key for a provider of models is replaced by one of a new project, and the ConfigMap beside it still names the"
    " old one: with its next start an app calls for a project that its key is not allowed to use.",
    joined=15,
)
async def key_project(lab: Lab) -> AsyncIterator[None]:
    """As Rhesis tells of its key for Vertex AI (3 September 2026, rhesis 2704)."""
    namespace, name = lab.rng.choice((("search", "answers"), ("media", "captions"), ("shop", "advisor")))
    secret, old, new = f"{name}-vertex", "corp-ml-1", "corp-ml-2"
    read: dict[str, tuple[str, str]] = {}
    failed = [0]

    def check(container: Container) -> Problem | None:
        """It reads its key and its project once, as it starts; that it is refused later does not make it unwell."""
        started = container.secret.get("key.json", ""), container.config["VERTEX_AI_PROJECT"]
        read.setdefault(container.pod["metadata"]["uid"], started)
        return None

    def refused(uid: str) -> bool:
        """The provider refuses a key of another project."""
        key, project = read.get(uid, ("", ""))
        return bool(key) and key != _key(project)

    async def ask() -> None:
        """Users ask whoever is there."""
        while True:
            await asyncio.sleep(0.3)
            there = (pod["metadata"]["uid"] for pod in backends(lab.world, namespace, name))
            if known := [uid for uid in there if uid in read]:
                failed[0] += refused(lab.rng.choice(known))

    await lab.apply(objects.config_map(namespace, f"{name}-config", VERTEX_AI_PROJECT=old, VERTEX_AI_LOCATION="global"))
    meta = {"namespace": namespace, "name": secret}
    await lab.apply({"kind": "Secret", "metadata": meta, "data": {"key.json": _key(old)}})
    like = App("", check=check)
    app = await lab.app(namespace, name, like=like, replicas=3, config=f"{name}-config", secret=secret)
    app.failing = lambda container: refused(container.pod["metadata"]["uid"])
    lab.start(ask())
    errors = lab.rate(lambda: failed[0], 0.8, seconds=6)
    lab.alert("HTTPErrorsHigh", errors, f"calls of {name} fail", 5, namespace=namespace, service=name)
    yield
    by = lab.rng.choice(("ci", "alice"))
    await lab.culprit(by, "update", "Secret", namespace, secret, {"data": {"key.json": _key(new)}})
    await lab.pause(lab.rng.uniform(1, 3))
    again = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
    body = {"spec": {"template": {"metadata": {"annotations": again}}}}
    await lab.culprit(by, "update", "Deployment", namespace, name, body)


@family(
    "The disk behind a registry of services is slow, its members' registrations come and go, and the scheduler of the"
    " platform takes the registry itself for something that should not run: it scales it to nothing.",
    joined=15,
)
async def scaled_away(lab: Lab) -> AsyncIterator[None]:
    """As a user of Flynn tells of discoverd and its scheduler (March 2016, flynn 2610; 2486 is the same)."""
    registry, slow = ("platform", "discovery"), [False]

    def check(container: Container) -> Problem | None:
        """One after another writes so late that its registration has run out meanwhile."""
        if not slow[0]:
            return None
        uids = sorted(pod["metadata"]["uid"] for pod in pods(lab.world, *registry))
        turn = int(now().timestamp() / FLAP_SECONDS) % max(1, len(uids))
        return Problem("unready", LATE) if container.pod["metadata"]["uid"] == uids[turn] else None

    await lab.app(*registry, like=App("", check=check), replicas=3)
    scheduler, look = "formation-scheduler", every(2, getting(path("Deployment")))
    await lab.controller("platform", scheduler, look, ("apps", "deployments", "get,list,patch"), replicas=1)
    callers = (("shop", "orders"), ("payments", "refunds"), ("media", "comments"), ("search", "tags"))
    for place in lab.rng.sample(callers, 2):
        await lab.app(*place, like=App("", upstreams=(registry,)), replicas=3)
        lab.alert_lacking(*place)
    await lab.until(lambda: backends(lab.world, *registry))
    await lab.robot("scheduler", "platform", scheduler, "formation-scheduler/1.0.0")
    yield
    slow[0] = True
    await lab.pause(lab.rng.uniform(8, 14))
    await lab.culprit("scheduler", "update", "Deployment", *registry, {"spec": {"replicas": 0}})


@family(
    "A release of what starts all tasks of a platform brings one more of them, which cannot be entered in its list:"
    " what comes after that one in the list is not started any more.",
    joined=15,
)
async def list_cut_short(lab: Lab) -> AsyncIterator[None]:
    """As PostHog tells of the tasks of its Celery (April 2024, posthog 21392)."""
    namespace, name = lab.rng.choice((("platform", "beat"), ("media", "task-scheduler"), ("search", "periodic")))
    tasks = lab.rng.sample(("usage", "cohorts", "digests", "retention", "invoices", "exports"), 5)
    new, broken = "1.1.0", lab.rng.randrange(1, 4)
    done: dict[str, datetime] = {task: now() for task in tasks}
    runs: Counter[str] = Counter()

    async def beat() -> None:
        """It starts what its list has, and workers do it; a list is read until an entry fails."""
        while True:
            await asyncio.sleep(TASK_SECONDS)
            for pod in backends(lab.world, namespace, name):
                whole = not pod["spec"]["containers"][0]["image"].endswith(f":{new}")
                started = tasks if whole else tasks[:broken]
                done.update({task: now() for task in started})
                runs.update(started)

    def late() -> bool:
        return any((now() - at).total_seconds() > 4 * TASK_SECONDS for at in done.values())

    await lab.app(namespace, name, replicas=1)
    for task in tasks:
        count = lambda task=task: runs[task]  # noqa: E731
        lab.measure("scheduled_task_runs_total", count, "counter", namespace=namespace, service=name, task=task)
    lab.start(beat())
    summary = f"tasks that {name} should start have not run for a while"
    lab.alert("ScheduledTasksLate", late, summary, 4, namespace=namespace, service=name)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd", "bob")), namespace, name, new, culprit=True)
