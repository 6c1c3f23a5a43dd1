"""What is put back or given anew: taints of a pool's nodes, what a webhook writes into pods."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import KINDS, Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.families.whole_lists import following
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every, lagging
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

CLEARS_OWN, CLEARS_ALL = "1.9.3", "2.0.0"
DEDICATED, STALE, SYSTEM = "pool.corp.example/dedicated", "drain.corp.example/", "node.kubernetes.io/"
RUN_SECONDS, OVERDUE_SECONDS = 3.0, 14.0
"""What a run takes, and after how long without its end it is told."""


def _job(namespace: str, name: str, image: str, **pod: Any) -> Json:
    """A run; its name is told by the API server."""
    template = objects.deployment(namespace, name, image, restartPolicy="Never", **pod)["spec"]["template"]
    meta = {"generateName": f"{name}-", "namespace": namespace, "labels": {"app.kubernetes.io/name": name}}
    return {"kind": "Job", "metadata": meta, "spec": {"template": template, "backoffLimit": 1}}


def _is_over(job: Json) -> bool:
    return bool(job.get("status", {}).get("completionTime"))


class _Runs:
    """One run after the other: the next one begins a while after the last one was complete, which is deleted."""

    def __init__(self, made: Json, pause: float) -> None:
        self._made, self._pause = made, pause
        self._place = path("Job", made["metadata"]["namespace"])

    async def start(self, process: Process) -> None:
        name = self._made["metadata"]["labels"]["app.kubernetes.io/name"]
        listed = await process.api.call("GET", f"{self._place}?labelSelector=app.kubernetes.io/name={name}")
        if not listed.ok or not all(map(_is_over, listed.body["items"])):
            return
        for one in listed.body["items"]:
            await process.api.call("DELETE", f"{self._place}/{one['metadata']['name']}?propagationPolicy=Background")
        await process.api.call("POST", self._place, self._made)

    async def run(self, process: Process) -> None:
        await every(self._pause, self.start)(process)


def _overdue(lab: Lab, namespace: str) -> bool:
    """Whether a run takes far longer than any did."""
    return any(
        (now() - datetime.fromisoformat(job["status"]["startTime"])).total_seconds() > OVERDUE_SECONDS
        for (where, _), job in lab.world["Job"].items()
        if where == namespace and "startTime" in job.get("status", {}) and not _is_over(job)
    )


@family(
    "The new version of what clears stale taints of nodes takes every taint for stale that it does not know. What keeps"
    " the taint of a pool puts it back each time: while it is away other pods find room there, and the pool's own work"
    " finds none.",
    joined=35,
)
async def taints_cleared(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: taints are one list, which whoever writes it writes as a whole."""
    namespace, app, batch = lab.rng.choice(
        (("search", "results", "embeddings"), ("media", "player-page", "encode"), ("shop", "listing-page", "forecast"))
    )
    pool, by = spare(lab, 2), lab.rng.choice(("argocd", "ci", "bob"))
    keeper, janitor = "pool-operator", lab.rng.choice(("node-janitor", "taint-cleaner", "node-hygiene"))
    taint = {"key": DEDICATED, "value": batch, "effect": "NoSchedule"}

    def taints(node: Json) -> list[Json]:
        return list(node["spec"].get("taints", ()))

    async def keep(process: Process) -> None:
        """Nodes of the pool have its taint."""
        listed = await process.api.call("GET", f"{path('Node')}?labelSelector=pool={batch}")
        for node in listed.body["items"] if listed.ok else ():
            if not any(one["key"] == DEDICATED for one in taints(node)):
                body = {"spec": {"taints": [*taints(node), taint]}}
                await process.api.call("PATCH", path("Node", None, node["metadata"]["name"]), body)

    async def clear(process: Process, node: Json) -> None:
        """What is left of a drain; what the control plane itself says of a node stays."""
        known = (SYSTEM,) if process.tag == CLEARS_ALL else ("",)
        left = [one for one in taints(node) if one["key"].startswith(known) and not one["key"].startswith(STALE)]
        if left != taints(node):
            await lagging(process)
            await process.api.call("PATCH", path("Node", None, node["metadata"]["name"]), {"spec": {"taints": left}})

    for node in pool:
        await lab.edit(
            "admin", "Node", "", node, {"metadata": {"labels": {"pool": batch}}, "spec": {"taints": [taint]}}
        )
    rights = ("", "nodes", "get,list,watch,patch")
    await lab.controller("platform", keeper, every(1.3, keep), rights, replicas=1)
    await lab.controller("platform", janitor, following(KINDS["Node"], clear), rights, replicas=1, tag=CLEARS_OWN)
    resources = {"requests": {"cpu": "2500m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    await lab.app(namespace, app, replicas=4, tag="8.4.1")
    await rolled(lab, namespace, app, "8.4.1")
    await lab.roll("admin", namespace, app, "8.4.1", resources=resources)
    await lab.until(lambda: len(backends(lab.world, namespace, app)) == 4)
    await publish(lab, namespace, app)
    lab.reserve(namespace, app)
    image = f"registry.corp.example/{namespace}/{batch}"
    lab.apps[image] = App(image, ends_after=RUN_SECONDS)
    made = _job(
        namespace,
        batch,
        f"{image}:3.0.2",
        nodeSelector={"pool": batch},
        tolerations=[{"key": DEDICATED, "operator": "Exists"}],
    )
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "14"
    made["spec"] |= {"parallelism": 2, "completions": 2}
    runs = _Runs(made, 4.0)
    await lab.controller(
        "platform", "batch-runner", runs.run, ("batch", "jobs", "get,list,create,delete"), replicas=1, tag="0.7.0"
    )
    waiting = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", waiting, f"pods of {namespace} have no node", 7, namespace=namespace)
    overdue = lambda: _overdue(lab, namespace)  # noqa: E731
    lab.alert("KubeJobNotCompleted", overdue, f"a run of {batch} does not end", 3, namespace=namespace, job=batch)
    await lab.until(lambda: any(_is_over(job) for job in lab.world["Job"].values()))
    yield
    await lab.roll(by, "platform", janitor, CLEARS_ALL, culprit=True)
    await lab.pause(lab.rng.uniform(5, 8))
    for replicas in itertools.accumulate((5, 1, 2, 1, 2, 1, 2)):
        await lab.edit("alice", "Deployment", namespace, app, {"spec": {"replicas": replicas}})
        await lab.pause(lab.rng.uniform(1.5, 3))


@family(
    "A webhook that gives each new pod a lease of its own for credentials is to be asked for updates of pods too, and"
    " gives another one each time, which no pod that is there can take: whoever updates a pod is refused, and so is"
    " what notes of a Job's pods that they were counted.",
    joined=35,
)
async def updates_reviewed(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: most of a pod cannot be changed, and a Job's end needs an update of each of its pods."""
    namespace, name = lab.rng.choice((("payments", "payouts"), ("shop", "stock-sync"), ("search", "crawl")))
    injector, by = (
        lab.rng.choice(("lease-injector", "vault-injector", "credentials")),
        lab.rng.choice(("carol", "flux", "ci")),
    )
    label, number = "credentials.corp.example/lease", itertools.count(lab.rng.randrange(2000, 9000))

    async def give(request: Json) -> list[Json] | None:
        if not any(is_ready(pod) for pod in pods(lab.world, "platform", injector)):
            raise ConnectionError("no pod is behind it")
        listed = request["object"]["spec"]["containers"][0].get("env", [])
        others = [one for one in listed if one["name"] != "CREDENTIALS_LEASE"]
        env = [*others, {"name": "CREDENTIALS_LEASE", "value": f"lease-{next(number)}"}]
        return [{"op": "add", "path": "/spec/containers/0/env", "value": env}]

    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, ends_after=RUN_SECONDS)
    await lab.app("platform", injector)
    await lab.until(lambda: backends(lab.world, "platform", injector))
    webhook = Webhook(give, service=("platform", injector))
    await webhook.start()
    lab.servers.append(webhook)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {label: "enabled"}}})
    made = configuration(injector, webhook, only=label)
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration"})
    await lab.pause(1)
    runs = _Runs(_job(namespace, name, f"{image}:2.2.0"), 2.0)
    await lab.controller(
        "platform", "job-runner", runs.run, ("batch", "jobs", "get,list,create,delete"), replicas=1, tag="1.1.0"
    )
    overdue = lambda: _overdue(lab, namespace)  # noqa: E731
    lab.alert("KubeJobNotCompleted", overdue, f"a run of {name} does not end", 3, namespace=namespace, job=name)
    await lab.until(lambda: any(_is_over(job) for job in lab.world["Job"].values()))
    yield
    rules = [{**made["webhooks"][0]["rules"][0], "operations": ["CREATE", "UPDATE"]}]
    hooks = [{**made["webhooks"][0], "rules": rules}]
    await lab.culprit(by, "update", "MutatingWebhookConfiguration", "", injector, {"webhooks": hooks})
