"""A pool of what is kept ready, each of which may only get so old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.api import now, path
from tests.lab.apps import App, Process
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.programs import both, every, informer
from tests.lab.scenario import family

WARM, AGE_SECONDS = 24, {"2h": 120.0, "2m": 2.0}
"""Sandboxes that wait for somebody, and how old they may get."""
KEPT_REVISIONS, OPEN_SECONDS = 600, 3
"""What the store keeps, and after how long a watch is opened again from where it was."""


@family(
    "Some sandboxes are always kept ready for whoever opens one, and are made anew once they are two hours old. So that"
    " nobody gets one without the latest patch, they may only get two minutes old: they come and go without end, the"
    " store outgrows what it keeps, and watches of what rests are too old once they come back: all list anew.",
    flags=("--watch-cache=false",),
    joined=63,
)
async def warm_pool(lab: Lab) -> AsyncIterator[None]:
    """As pools of warm sandboxes are kept, by those whose watches were then told that they are too old."""
    group, pool = "sandboxes.corp.example", "analysts"
    namespace, by = lab.rng.choice(("media", "search", "payments")), lab.rng.choice(("carol", "flux", "alice"))
    image, where = f"registry.corp.example/{namespace}/sandbox", path("Pod", namespace)
    lab.apps[image] = App(image, serves=False)
    made = objects.deployment(namespace, "sandbox", f"{image}:24.4", terminationGracePeriodSeconds=0)
    spec = made["spec"]["template"]["spec"]
    kind = await lab.custom("SandboxPool", group, ANY)
    await lab.served(kind)
    meta = {"namespace": namespace, "name": pool}
    wanted = {"size": WARM, "maxAge": "2h", "image": f"{image}:24.4"}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": kind.name, "metadata": meta, "spec": wanted})
    followed = ["2h"]

    async def keep(process: Process) -> None:
        """Who is too old goes, and as many come as are missing."""
        declared = await process.api.call("GET", kind.path(namespace, pool))
        listed = await process.api.call("GET", f"{where}?labelSelector=sandbox-pool={pool}")
        if not (declared.ok and listed.ok):
            return
        if declared.body["spec"]["maxAge"] != followed[0]:
            await asyncio.sleep(lab.lag)
            followed[0] = declared.body["spec"]["maxAge"]
        there = [one for one in listed.body["items"] if "deletionTimestamp" not in one["metadata"]]
        eldest = timedelta(seconds=AGE_SECONDS[followed[0]])
        old = [one for one in there if now() - datetime.fromisoformat(one["metadata"]["creationTimestamp"]) > eldest]
        named = {"generateName": f"{pool}-", "labels": {"sandbox-pool": pool}}
        async with asyncio.TaskGroup() as together:
            for pod in old:
                together.create_task(process.api.call("DELETE", path("Pod", namespace, pod["metadata"]["name"])))
            for _ in range(declared.body["spec"]["size"] - len(there)):
                together.create_task(process.api.call("POST", where, {"metadata": named, "spec": spec}))

    async def compact() -> None:
        """As etcd with auto-compaction-mode=revision."""
        while True:
            await asyncio.sleep(2)
            await asyncio.to_thread(lab.plane.compact, keep=KEPT_REVISIONS)

    rights = ("", "pods", "*"), (group, kind.plural, "get,list,watch")
    await lab.controller(namespace, "sandbox-operator", every(0.5, keep), *rights, replicas=1, tag="0.9.2")
    edge = both(informer(path("Namespace"), seconds=OPEN_SECONDS), informer(path("ConfigMap"), seconds=OPEN_SECONDS))
    reads = ("", "namespaces,configmaps", "list,watch")
    app = await lab.controller("ingress-nginx", "gateway", edge, reads, replicas=8)
    anew = lab.rate(lab.refused(app.image, 410), 0.5, seconds=20)
    lab.alert("KubeAPITerminatedWatches", anew, "watchers list anew again and again", 3, job="apiserver")
    await lab.pause(3)
    lab.start(compact())
    yield
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.culprit(by, "update", kind.name, namespace, pool, {"spec": {"maxAge": "2m"}})
