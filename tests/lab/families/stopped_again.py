"""What one lets run and another stops: Jobs of a team that has no queue, once what keeps queues minds all Jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.lab import Lab
from tests.lab.programs import every, tell
from tests.lab.scenario import family

HOME, MANAGER, SETTINGS, FILE = "kueue-system", "kueue-controller-manager", "kueue-manager-config", "config.yaml"
QUEUE = "kueue.x-k8s.io/queue-name"
ALL = "manageJobsWithoutQueueName: "
RUNS, RUN_SECONDS, LATE_SECONDS = 3, 4.0, 16.0
"""Runs at a time, how long one takes, and after how long it should have come to its end."""
CHECKSUM = "checksum/config"


@dataclass
class _Runs:
    """What has a Job made for each thing to be computed, by a ``queue`` or at once."""

    namespace: str
    name: str
    image: str
    queue: str = ""
    begun: dict[str, float] = field(default_factory=dict)
    """When those were made that have not come to their end."""

    async def dispatch(self, process: Process) -> None:
        jobs = path("Job", self.namespace)
        listed = await process.api.call("GET", f"{jobs}?labelSelector=batch={self.name}")
        if not listed.ok:
            return
        there: dict[str, Json] = {one["metadata"]["name"]: one for one in listed.body["items"]}
        done = sorted(name for name, one in there.items() if one.get("status", {}).get("succeeded"))
        self.begun = {name: at for name, at in self.begun.items() if name not in done}
        for old in done[:-3]:
            await process.api.call("DELETE", f"{jobs}/{old}", {"propagationPolicy": "Background"})
        for name in self.begun if not self.queue else ():
            if there.get(name, {}).get("spec", {}).get("suspend"):  # its own object does not say that it is to pause
                await process.api.call("PATCH", f"{jobs}/{name}", {"spec": {"suspend": False}})
        if len(self.begun) < RUNS:
            await self._begin(process)

    async def _begin(self, process: Process) -> None:
        name, image = f"{self.name}-{int(now().timestamp() * 10) % 10**8}", f"{self.image}:5.1.0"
        manifest = objects.deployment(self.namespace, self.name, image, restartPolicy="Never")
        labels = {"batch": self.name, **({QUEUE: self.queue} if self.queue else {})}
        spec = {"template": manifest["spec"]["template"], "suspend": bool(self.queue)}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        if (await process.api.call("POST", path("Job", self.namespace), body)).ok:
            self.begun[name] = now().timestamp()

    def late(self) -> int:
        return sum(now().timestamp() - at > LATE_SECONDS for at in self.begun.values())


async def _manage(process: Process) -> None:
    """As Kueue, which reads its settings at its start: it lets those of a queue run, and may stop all others."""
    minds_all = f"{ALL}true" in process.config.get(FILE, "")

    async def look(_: Process) -> None:
        listed = await process.api.call("GET", path("Job"))
        for one in listed.body.get("items", ()):
            meta, is_stopped = one["metadata"], bool(one["spec"].get("suspend"))
            is_queued = QUEUE in meta.get("labels", {})
            if one.get("status", {}).get("succeeded") or is_stopped is not is_queued or not (is_queued or minds_all):
                continue
            where = path("Job", meta["namespace"], meta["name"])
            if not (await process.api.call("PATCH", where, {"spec": {"suspend": not is_stopped}})).ok:
                continue
            told = ("Started", f"Admitted by clusterQueue {meta['labels'][QUEUE]}") if is_queued else (
                "Stopped", "No matching Workload; restoring pod templates according to existing Workload"
            )  # fmt: skip
            await tell(process, {**one, "kind": "Job"}, "Normal", *told, by="batch/job-kueue-controller")

    await every(0.8, look)(process)


def _settings(*, minds_all: bool) -> str:
    return (
        f"integrations:\n  frameworks: [batch/job]\n{ALL}{str(minds_all).lower()}\nwaitForPodsReady:\n  enable: false\n"
    )


@family(
    "What lets Jobs run in turn is told to mind all of them, also those that name no queue: it stops each. What makes"
    " the Jobs of one team keeps them as they are declared, which is not stopped: the two write that back and forth,"
    " the pods of a run are ended each time, and no run comes to its end.",
    joined=56,
)
async def suspend_fight(lab: Lab) -> AsyncIterator[None]:
    """As users of Kueue tell of its setting for Jobs without a queue, and of operators that start theirs anew."""
    namespace, name = lab.rng.choice((("payments", "reconcile"), ("shop", "stock-forecast"), ("media", "transcribe")))
    by = lab.rng.choice(("ci", "argocd", "flux"))
    runs = _Runs(namespace, name, f"registry.corp.example/{namespace}/{name}")
    queued = _Runs("search", "embeddings", "registry.corp.example/search/embeddings", queue="search")
    await lab.namespace(HOME)
    await lab.apply(objects.config_map(HOME, SETTINGS, **{FILE: _settings(minds_all=False)}))
    rules = (("batch", "jobs", "get,list,patch"), ("", "events", "create"))
    await lab.controller(HOME, MANAGER, _manage, *rules, replicas=1, tag="v0.11.3", config=SETTINGS)
    for one in (runs, queued):
        lab.apps[one.image] = App(one.image, ends_after=RUN_SECONDS)
        runner, rule = f"{one.name}-runner", ("batch", "jobs", "list,create,delete,patch")
        await lab.controller(one.namespace, runner, every(1, one.dispatch), rule, replicas=1, tag="2.6.0")
        waiting = lambda one=one: float(len(one.begun))  # noqa: E731
        lab.measure("runs_in_progress", waiting, namespace=one.namespace, service=runner)
    summary = f"runs of {namespace}/{name} have not come to their end for {LATE_SECONDS:.0f}s"
    lab.alert("KubeJobNotCompleted", lambda: runs.late() >= 2, summary, 3, namespace=namespace, job=name)
    await lab.until(lambda: runs.begun and queued.begun)
    await lab.pause(10)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    body: Json = {"data": {FILE: _settings(minds_all=True)}}
    await lab.culprit(by, "update", "ConfigMap", HOME, SETTINGS, body)
    mark = {"metadata": {"annotations": {CHECKSUM: f"{lab.rng.randrange(16**8):08x}"}}}
    await lab.culprit(by, "update", "Deployment", HOME, MANAGER, {"spec": {"template": mark}})
