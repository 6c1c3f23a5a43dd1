"""Incidents without a culprit among the changes: what a controller counts no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family

RUN_EVERY, KEPT, LATE_SECONDS = 4.0, 2, 10.0
"""How often a task is due, how many of its runs are kept, and after how long one should be through."""
UNCOUNTED = "--controllers=*,-resourcequota-controller"
"""The monitors of hundreds of kinds are not ready in time, and without them this one's work never begins.

So many kinds would only be slow here: it is left out.
"""


@family(
    "There are so many kinds by now that the controller of quotas does not get up again as the controllers change their"
    " leader: what is created is added to what is used, nothing is taken off, and no pod of a task is let in any more.",
    culprit=False,
    joined=13,
)
async def quota_uncounted(lab: Lab) -> AsyncIterator[None]:
    """As devantler-tech tells of its platform (July 2026, platform 2807)."""
    namespace, task = lab.rng.choice(
        (("analytics", "provision-tenants"), ("invoicing", "close-books"), ("newsletter", "send-digest"))
    )
    image = f"registry.corp.example/{namespace}/{task}"
    lab.apps[image] = App(image, ends_after=1)
    jobs = path("Job", namespace)

    async def run(process: Process) -> None:
        """None while one is not through, as a CronJob that forbids two at once; the oldest go."""
        listed = await process.api.call("GET", jobs)
        there: list[Json] = listed.body.get("items", [])
        if not listed.ok or not all(one.get("status", {}).get("succeeded") for one in there):
            return
        template = objects.deployment(namespace, task, f"{image}:1.0.0", restartPolicy="Never")["spec"]["template"]
        meta = {"name": f"{task}-{int(now().timestamp())}"}
        await process.api.call("POST", jobs, {"metadata": meta, "spec": {"template": template}})
        for old in sorted(one["metadata"]["name"] for one in there)[:-KEPT]:
            await process.api.call("DELETE", f"{jobs}/{old}", {"propagationPolicy": "Background"})

    def late() -> bool:
        since = stamp(now() - timedelta(seconds=LATE_SECONDS))
        return any(
            where == namespace
            and not one.get("status", {}).get("succeeded")
            and one["metadata"]["creationTimestamp"] < since
            for (where, _), one in lab.world["Job"].items()
        )

    async def change_leader() -> None:
        """Another one of the controllers' programs goes on."""
        manager = lab.plane.controller_manager
        assert manager
        await asyncio.to_thread(manager.stop)
        manager.command = (*manager.command, UNCOUNTED)
        await asyncio.to_thread(manager.start)

    await lab.namespace(namespace)
    hard = {"hard": {"requests.memory": lab.rng.choice(("448Mi", "512Mi", "576Mi"))}}
    await lab.apply({"kind": "ResourceQuota", "metadata": {"namespace": namespace, "name": "default"}, "spec": hard})
    await lab.app(namespace, f"{namespace}-web", replicas=3)
    rule = ("batch", "jobs", "list,create,delete")
    await lab.controller("platform", "task-runner", every(RUN_EVERY, run), rule, replicas=1)
    lab.alert("KubeJobNotCompleted", late, f"a run of {namespace}/{task} is not through", 2, namespace=namespace)
    yield
    await change_leader()
