"""An API server that goes down link by link: pods churn, watches are too old, all list anew, its memory is not enough.

As Robinhood told of its clusters: the store keeps fewer revisions than are written while an agent's watch hears
nothing, which is told 410 and lists everything; that many agents do so is more than the API server's memory allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.api import Caller, Json, now, path, stamp
from tests.lab.apps import App, Process, Program
from tests.lab.lab import Lab
from tests.lab.manifests import is_done
from tests.lab.programs import both, every, informer, lagging
from tests.lab.scenario import family
from tests.lab.static_pods import Limited

UNCACHED = ("--watch-cache-sizes=pods#0",)
"""Pods are read from the store: what a watch may begin at is what that keeps."""
KEPT_REVISIONS = 1500
RUNS, WAVE, TEMPLATE_BYTES = 200, 25, 36_000
"""Pods of pipelines that are through and are kept for their logs; what each has of its step in an annotation."""
AGENTS = ("network-agent", "log-agent", "security-agent")
NAMED = ("frontend", "cart", "checkout", "ledger", "query", "uploads")
"""Apps that a rule of an agent names: it watches the pods of each on its own node, which are few and rest."""
WATCH_SECONDS, SPREAD_SECONDS = 6, 15.0
"""Until a watch is opened again from where it was, and within what an agent's first ones are opened."""
CALM_SECONDS, LIMIT_FACTOR = 15, 2.0
"""After the agents' start, and what the API server may then have of memory, by what it has."""
DOWN_SECONDS = 3.0
TENANTS, REPLICAS = ("tenant-a", "tenant-b", "tenant-c"), 14
USUAL_UPLOADS, MOST_UPLOADS = 0.4, 12.0
"""Each second."""
FILES, TOGETHER, SCANNER = 12.0, "30", "attachment-scanner"
"""Files that come in each second, and how many of them one pod looks through."""
LONG_TEMPLATE_BYTES, LOW_FACTOR = 80_000, 1.8
"""Where fewer pods come and go, more is kept of each: what is listed is what counts."""


async def _keep_runs(lab: Lab, template_bytes: int) -> None:
    """Raises RefusedError."""
    image = "registry.corp.example/platform/pipeline-step"
    lab.apps[image] = App(image, ends_after=0.5)
    spec = objects.deployment("platform", "step", f"{image}:1.0.0", restartPolicy="Never")["spec"]["template"]["spec"]
    steps = ("build", "scan", "test")
    for number in range(RUNS):
        step = steps[number % len(steps)]
        told = f"run the step {step} of the pipeline; "
        note = {"pipelines.corp.example/template": told * (template_bytes // len(told))}
        meta = {"namespace": "platform", "name": f"run-{number:04}", "labels": {"step": step}, "annotations": note}
        await lab.apply({"kind": "Pod", "metadata": meta, "spec": spec})
        if number % WAVE == WAVE - 1:
            await lab.until(lambda: all(is_done(one) for one in _labelled(lab, "step")))


def _labelled(lab: Lab, label: str) -> list[Json]:
    """Pods that have this label."""
    return [one for one in lab.world["Pod"].values() if label in one["metadata"].get("labels", {})]


async def _agent(process: Process) -> None:
    node = process.see().pod["spec"]["nodeName"]
    of_node = f"{path('Pod')}?fieldSelector=spec.nodeName={node}&labelSelector=app.kubernetes.io/name="
    await both(*(_later(informer(f"{of_node}{one}", seconds=WATCH_SECONDS)) for one in NAMED))(process)


def _later(program: Program) -> Program:
    """Those of a fleet do not begin all at once."""

    async def run(process: Process) -> None:
        await asyncio.sleep(process.rng.uniform(0, SPREAD_SECONDS))
        await program(process)

    return run


async def _compact(lab: Lab) -> None:
    """As etcd with auto-compaction-mode=revision."""
    while True:
        await asyncio.sleep(2)
        await asyncio.to_thread(lab.plane.compact, keep=KEPT_REVISIONS)


class _Probed:
    """What monitoring sees of the API server's readiness, once a second."""

    def __init__(self, lab: Lab) -> None:
        self._caller = Caller(lab.client, "admin", lab.plane.token("admin"), "blackbox-exporter/0.27.0")
        self._answered: datetime = now()

    async def run(self) -> None:
        while True:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ask())
                tasks.create_task(asyncio.sleep(1))

    async def _ask(self) -> None:
        if (await self._caller.call("GET", "/readyz")).ok:
            self._answered = now()

    def is_down(self) -> bool:
        return now() - self._answered > timedelta(seconds=DOWN_SECONDS)


async def cluster(lab: Lab, template_bytes: int = TEMPLATE_BYTES, factor: float = LIMIT_FACTOR) -> None:
    """What is listed, who watches, what is measured, and what the API server may have. Raises RefusedError."""
    await lab.app("platform", "reporting", replicas=8)
    await _keep_runs(lab, template_bytes)
    rights = ("", "pods", "list,watch")
    images = [(await lab.controller("kube-system", one, _agent, rights, kind="DaemonSet")).image for one in AGENTS]
    await lab.pause(SPREAD_SECONDS + CALM_SECONDS)
    limited = Limited(lab.plane.apiserver, int(lab.plane.apiserver.resident_bytes * factor))
    probed = _Probed(lab)
    for work in (_compact(lab), limited.run(), probed.run()):
        lab.start(work)
    lab.alert("KubeAPIDown", probed.is_down, "the API server is not ready", 3, job="apiserver")
    failed = [lab.refused(image, 0, 429, 500, 503, 504) for image in images]
    lab.alert(
        "KubeAPIErrorBudgetBurn",
        lab.rate(lambda: sum(one() for one in failed), 1.0, seconds=20),
        "too many requests to the API server fail",
        6,
        job="apiserver",
    )


async def _update_agent(lab: Lab) -> None:
    """A harmless rollout of one of the fleets. Raises RefusedError."""
    name = lab.rng.choice(AGENTS)
    found = lab.world["DaemonSet"]["kube-system", name]["spec"]["template"]["spec"]["containers"][0]
    one = {**found, "image": str(found["image"]).replace(":1.0.0", ":1.0.1")}
    body = {"spec": {"template": {"spec": {"containers": [one]}}}}
    await lab.edit("flux", "DaemonSet", "kube-system", name, body)


@family(
    "The new version of an operator writes the time of its sync into what it deploys: tenants' pods are made anew"
    " without end, agents whose watches are too old list all pods, and the API server is killed for its memory.",
    flags=UNCACHED,
    joined=16,
)
async def redeploy_collapse(lab: Lab) -> AsyncIterator[None]:
    """As Robinhood told of a large re-deploy."""

    async def sync(process: Process) -> None:
        await lagging(process)
        for name in TENANTS:
            where = path("Deployment", "platform", name)
            found = await process.api.call("GET", where)
            if found.ok and not process.tag.startswith("1."):
                mark = {"operator.corp.example/rendered-at": stamp(now())}
                body = {"spec": {"template": {"metadata": {"annotations": mark}}}}
                await process.api.call("PATCH", where, body)

    for name in TENANTS:
        await lab.app("platform", name, replicas=REPLICAS)
    await lab.controller("platform", "tenant-operator", every(4, sync), ("apps", "deployments", "*"), replicas=1)
    await cluster(lab)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await _update_agent(lab)
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll("argocd", "platform", "tenant-operator", "2.0.0", culprit=True)
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll("ci", "platform", "reporting", "1.0.1")


@family(
    "A chart has an app ask for a setting of the kernel that kubelets do not let a pod have: each of its new pods has"
    " failed as soon as its node sees it, and another one is made at once. Agents whose watches are too old list all"
    " pods, and the API server is killed for its memory.",
    flags=UNCACHED,
    joined=45,
)
async def forbidden_setting(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found thousands of pods that their nodes had refused; the rest as Robinhood told."""
    namespace, name = lab.rng.choice((("media", "stream-relay"), ("shop", "live-stock"), ("search", "fan-out")))
    by = lab.rng.choice(("ci", "flux", "argocd"))
    await lab.app(namespace, name, replicas=20, tag="4.2.1")
    lab.reserve(namespace, name)
    await cluster(lab)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    [there] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    containers = [{**there, "image": str(there["image"]).replace(":4.2.1", ":4.3.0")}]
    asked = {"sysctls": [{"name": "net.core.somaxconn", "value": "8192"}]}
    body = {"spec": {"template": {"spec": {"containers": containers, "securityContext": asked}}}}
    await lab.culprit(by, "update", "Deployment", namespace, name, body)


@family(
    "An evening's uploads each get a pod of their own, as ever, and there are more than ever: agents whose watches are"
    " too old list all pods, and the API server is killed for its memory.",
    flags=UNCACHED,
    culprit=False,
    joined=16,
)
async def upload_collapse(lab: Lab) -> AsyncIterator[None]:
    """The links that Robinhood told of, begun by traffic."""
    image, where = "registry.corp.example/media/convert", path("Pod", "media")
    lab.apps[image] = App(image, ends_after=1)
    spec = objects.deployment("media", "convert", f"{image}:1.0.0", restartPolicy="Never")["spec"]["template"]["spec"]
    uploads, waiting = [USUAL_UPLOADS], [0.0]

    async def convert(process: Process) -> None:
        """What is through is deleted, what has been uploaded since gets a pod."""
        listed = await process.api.call("GET", f"{where}?labelSelector=upload")
        for pod in listed.body.get("items", ()):
            if is_done(pod):
                await process.api.call("DELETE", path("Pod", "media", pod["metadata"]["name"]))
        while listed.ok and waiting[0] >= 1:
            waiting[0] -= 1
            meta = {"generateName": "convert-", "labels": {"upload": "video"}}
            await process.api.call("POST", where, {"metadata": meta, "spec": spec})

    async def upload() -> None:
        while True:
            await asyncio.sleep(0.5)
            waiting[0] += uploads[0] / 2

    await lab.controller("media", "converter", every(0.5, convert), ("", "pods", "*"), replicas=1)
    await cluster(lab, LONG_TEMPLATE_BYTES, LOW_FACTOR)
    lab.start(upload())
    yield
    await _update_agent(lab)
    growth = lab.rng.uniform(0.8, 1.2)
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll("ci", "platform", "reporting", "1.0.1")
    while uploads[0] < MOST_UPLOADS:
        uploads[0] += growth
        await lab.pause(1)


@family(
    "What looks through uploaded files for viruses gives each thirty of them a pod, and is told to give each one its"
    " own, so that a bad one harms no other. Pods come and go thirty times as often: agents whose watches are too old"
    " list all pods, and the API server is killed for its memory.",
    flags=UNCACHED,
    joined=47,
)
async def one_each(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose workflows have a pod for each item; the rest as Robinhood told."""
    namespace, by = lab.rng.choice(("media", "payments", "search")), lab.rng.choice(("alice", "flux", "bob"))
    image, where, settings = f"registry.corp.example/{namespace}/scan", path("Pod", namespace), f"{SCANNER}-settings"
    lab.apps[image] = App(image, ends_after=1)
    spec = objects.deployment(namespace, "scan", f"{image}:1.4.0", restartPolicy="Never")["spec"]["template"]["spec"]
    waiting = [0.0]

    async def scan(process: Process) -> None:
        """What is through is deleted, what has come in since gets pods."""
        listed = await process.api.call("GET", f"{where}?labelSelector=scan")
        for pod in filter(is_done, listed.body.get("items", ())):
            await process.api.call("DELETE", path("Pod", namespace, pod["metadata"]["name"]))
        together = int(process.config["FILES_PER_POD"])
        while listed.ok and waiting[0] >= together:
            waiting[0] -= together
            meta = {"generateName": "scan-", "labels": {"scan": "attachments"}}
            await process.api.call("POST", where, {"metadata": meta, "spec": spec})

    async def come_in() -> None:
        while True:
            await asyncio.sleep(0.5)
            waiting[0] += FILES / 2

    await lab.apply(objects.config_map(namespace, settings, FILES_PER_POD=TOGETHER, LOG_LEVEL="info"))
    rights = ("", "pods", "*")
    await lab.controller(namespace, SCANNER, every(0.5, scan), rights, replicas=1, config=settings)
    await cluster(lab, LONG_TEMPLATE_BYTES, LOW_FACTOR)
    lab.start(come_in())
    yield
    await lab.pause(lab.rng.uniform(2, 7))
    await lab.culprit(by, "update", "ConfigMap", namespace, settings, {"data": {"FILES_PER_POD": "1"}})
