"""What is not let in or finds no room: pods that do not say enough, the run of a week."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

BEFORE_SECONDS = 15.0
"""How long before a full minute all has to be prepared, for a run at the next one but one."""
RUN_SECONDS = 20.0
WEEK = timedelta(days=7)


@family(
    "A quota of limits is made for a namespace, far above what runs there, and so every pod has to say a limit for the"
    " processor, which none of them does: the next, harmless release ends the old pods first and may make none.",
    joined=19,
)
async def limits_demanded(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("payments", "vouchers"), ("media", "gallery"), ("search", "facets")))
    body = objects.deployment(namespace, name, f"registry.corp.example/{namespace}/{name}:1.4.0", replicas=3)
    body["spec"]["strategy"] = {"type": "Recreate"}  # two versions at once would not get along
    lab.apps[f"registry.corp.example/{namespace}/{name}"] = App(f"registry.corp.example/{namespace}/{name}")
    await lab.apply(body)
    await lab.apply(objects.service(namespace, name))
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    by, share = lab.rng.choice(("carol", "flux", "alice")), lab.rng.choice(("32", "40", "48"))
    hard = {"requests.cpu": share, "limits.cpu": share, "limits.memory": "96Gi"}
    quota: Json = {"metadata": {"name": "fair-share"}, "spec": {"hard": hard}}
    await lab.culprit(by, "create", "ResourceQuota", namespace, "fair-share", quota)
    await lab.pause(lab.rng.uniform(7, 14))
    await lab.roll(lab.rng.choice(("argocd", "ci")), namespace, name, "1.4.1")


@family(
    "A new app gets room on the machines for batches, which are idle nearly all of the week: the run of this week is"
    " due soon after, and what is left is too little for it.",
    joined=19,
)
async def weekly_run(lab: Lab) -> AsyncIterator[None]:
    """As the author of a bot tells of its CronJob (timewitch.net, April 2020)."""
    namespace, name = lab.rng.choice((("payments", "settlement"), ("search", "full-reindex"), ("shop", "stocktaking")))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, ends_after=RUN_SECONDS)
    for node in spare(lab, 2):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "batch"}}})
    where: Json = {"nodeSelector": {"pool": "batch"}}
    await asyncio.sleep((60 - BEFORE_SECONDS - now().timestamp()) % 60)
    due = (now() + timedelta(minutes=2)).replace(second=0, microsecond=0)
    template = objects.deployment(namespace, name, f"{image}:1.0.0", restartPolicy="Never", **where)["spec"]["template"]
    template["spec"]["containers"][0]["resources"]["requests"] = {"cpu": lab.rng.choice(("10", "11")), "memory": "8Gi"}
    template["spec"]["containers"][0]["resources"]["limits"] = {"memory": "8Gi"}
    spec = {
        "schedule": f"{due.minute} {due.hour} * * {due.isoweekday() % 7}",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": template, "backoffLimit": 1}},
    }
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "CronJob", "metadata": meta, "spec": spec})
    await _ran(lab, namespace, name, due - WEEK)
    waits = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodPending", waits, f"a pod of {namespace} has had no node for a while", 8, namespace=namespace)
    yield
    home, new = lab.rng.choice((("search", "embeddings"), ("media", "captions"), ("shop", "recommender")))
    by, model = lab.rng.choice(("bob", "argocd", "ci")), f"registry.corp.example/{home}/{new}"
    lab.apps[model] = App(model)
    body = objects.deployment(home, new, f"{model}:0.9.0", replicas=5, memory="1Gi", **where)
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4", "memory": "512Mi"}
    await lab.culprit(by, "create", "Deployment", home, new, body)


async def _ran(lab: Lab, namespace: str, name: str, at: datetime) -> None:
    """As it was at its last turn. Raises RefusedError."""
    done = at + timedelta(minutes=18)
    status = {"lastScheduleTime": f"{stamp(at)[:19]}Z", "lastSuccessfulTime": f"{stamp(done)[:19]}Z"}
    await lab.who["admin"].must("PATCH", f"{path('CronJob', namespace, name)}/status", {"status": status})
