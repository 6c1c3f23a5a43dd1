"""What is written by two, and what one may no longer write: lists of credentials, the size of a pool."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_done, is_ready
from tests.lab.network import backends
from tests.lab.programs import every, lagging, tell
from tests.lab.scenario import family

OURS, MIRROR = "registry-pull", "mirror-pull"
"""Secrets with credentials: of the company's registry, and of the mirror for images of others."""
ADDING, WRITING = "0.8.3", "0.9.0"
RUN_SECONDS, WAITS_FOR = 4.0, 3
"""Of a run, and how many that wait are too many."""
GROUP = "ci.corp.example"
DIGEST, TAG = "sha256:4f1c0a7e5b9d2c8836aa10f7be92d5c16e0347bb8d9f02c1a5e6f7081d2c3b4a", "2.319"
"""By which an image is named in a sibling, and here."""
FEW, MOST = 3, 14
EACH_DOES, MORNING, NOON = 0.5, 1.0, 4.4
"""Jobs a second of one runner, and those that come at two times of the day."""
TOO_MANY = 22
RULE = {
    "rule": "!self.ephemeral || self.image.contains('@sha256:')",
    "message": "ephemeral pools must pin their image by digest",
}


@dataclass(frozen=True)
class _Lists:
    """The credentials for images in all teams' ServiceAccounts; who runs ``image`` needs the company's own."""

    teams: tuple[str, ...]
    image: str

    def denied(self, asked: str, pod: Json) -> str:
        """What is private is given out by its credentials only."""
        listed = [one["name"] for one in pod["spec"].get("imagePullSecrets", ())]
        if not asked.startswith(f"{self.image}:") or OURS in listed:
            return ""
        token = "https://registry.corp.example/service/token"
        return (
            f"failed to authorize: failed to fetch anonymous token: unexpected status from GET request to {token}: 401"
        )

    async def keep_ours(self, process: Process) -> None:
        for one in self.teams:
            await self._add(process, OURS, one)

    async def keep_mirror(self, process: Process) -> None:
        if process.tag == WRITING:
            await lagging(process)
        for one in self.teams:
            keep = self._add if process.tag == ADDING else self._write
            await keep(process, MIRROR, one)

    async def _add(self, process: Process, name: str, namespace: str) -> None:
        """What others have put there is left."""
        where = path("ServiceAccount", namespace, "default")
        found = await process.api.call("GET", where)
        listed = found.body.get("imagePullSecrets", []) if found.ok else None
        if listed is not None and {"name": name} not in listed:
            await process.api.call("PATCH", where, {"imagePullSecrets": [*listed, {"name": name}]})

    async def _write(self, process: Process, name: str, namespace: str) -> None:
        """The whole of it."""
        where, wanted = path("ServiceAccount", namespace, "default"), [{"name": name}]
        found = await process.api.call("GET", where)
        if found.ok and found.body.get("imagePullSecrets") != wanted:
            await process.api.call("PATCH", where, {"imagePullSecrets": wanted})


@dataclass
class _Runs:
    """A runner of pipelines: a pod for each step; what is done goes, and how many wait for their image is counted."""

    lab: Lab
    namespace: str
    image: str
    number: int = 0

    async def run(self, process: Process) -> None:
        where = path("Pod", self.namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name=step")
        for one in filter(is_done, listed.body.get("items", [])):
            await process.api.call("DELETE", f"{where}/{one['metadata']['name']}")
        self.number += 1
        whole = objects.deployment(self.namespace, "step", f"{self.image}:7", restartPolicy="Never")
        made: Json = whole["spec"]["template"]
        [container] = made["spec"]["containers"]
        del container["readinessProbe"]
        container["imagePullPolicy"] = "Always"
        meta = {**made["metadata"], "name": f"step-{self.number:05}"}
        await process.api.call("POST", where, {**made, "metadata": meta})

    def waiting(self) -> int:
        """Those without their image."""
        states = (
            one["state"].get("waiting", {})
            for pod in pods(self.lab.world, self.namespace, "step")
            for one in pod.get("status", {}).get("containerStatuses", ())
        )
        return sum(one.get("reason") == "ImagePullBackOff" for one in states)


@family(
    "Two programs keep credentials for images in the ServiceAccounts of all teams, and each has only added its own. The"
    " new version of one writes the list as a whole: the other adds what is missing, and so on, and pods that are made"
    " in between may not pull what is private.",
    joined=41,
)
async def either_or_other(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: a pod gets the list that its ServiceAccount has as it is made, and keeps it."""
    namespace, runner = lab.rng.choice(
        (("pipelines", "step-runner"), ("builds", "build-runner"), ("jobs", "task-runner"))
    )
    ours, mirror = lab.rng.choice((("registry-creds", "mirror-creds"), ("pull-secrets", "mirror-operator")))
    by, image = lab.rng.choice(("argocd", "flux", "ci")), f"registry.corp.example/{namespace}/step"
    lists = _Lists((namespace, "shop", "media", "search"), image)
    await lab.namespace(namespace)
    for one in lists.teams:
        for secret in (OURS, MIRROR):
            body = {"metadata": {"namespace": one, "name": secret}, "stringData": {"auth": f"{secret} of {one}"}}
            await lab.apply({"kind": "Secret", "type": "Opaque", **body})
    rights = ("", "serviceaccounts", "get,list,watch,patch")
    await lab.controller("platform", ours, every(2.6, lists.keep_ours), rights, replicas=1, tag="3.3.0")
    await lab.controller("platform", mirror, every(2.2, lists.keep_mirror), rights, replicas=1, tag=ADDING)
    lab.outside.denied = lists.denied
    await rolled(lab, "platform", mirror, ADDING)

    def is_kept() -> bool:
        listed = lab.world["ServiceAccount"][namespace, "default"].get("imagePullSecrets", ())
        return {one["name"] for one in listed} == {OURS, MIRROR}

    await lab.until(is_kept)
    runs = _Runs(lab, namespace, image)
    lab.apps[image] = App(image, ends_after=RUN_SECONDS, serves=False)
    steps = ("", "pods", "list,create,delete")
    await lab.controller("platform", runner, every(2.0, runs.run), steps, replicas=1, tag="11.2.0")
    lab.measure("runner_steps_waiting", runs.waiting, namespace="platform", service=runner)
    summary = f"steps of {namespace} have been waiting for their image for a while"
    holds = lambda: runs.waiting() >= WAITS_FOR  # noqa: E731
    lab.alert("KubeContainerWaiting", holds, summary, 5, namespace=namespace, container="step")
    await lab.pause(6)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, "platform", mirror, WRITING, culprit=True)


@dataclass
class _Pool:
    """Runners for jobs: an autoscaler writes how many a pool has, an operator has so many."""

    lab: Lab
    kind: Kind
    name: str
    come: float = MORNING
    queue: float = 0.0
    told: set[int] = field(default_factory=set)

    @property
    def place(self) -> str:
        return self.kind.path("ci", self.name)

    @property
    def image(self) -> str:
        return f"registry.corp.example/ci/{self.name}"

    def schema(self, *rules: Json) -> Json:
        """Of its kind."""
        properties = {
            "image": {"type": "string", "maxLength": 300},
            "ephemeral": {"type": "boolean"},
            "replicas": {"type": "integer", "minimum": 0},
        }
        spec: Json = {"type": "object", "required": ["image", "ephemeral"], "properties": properties}
        if rules:
            spec["x-kubernetes-validations"] = list(rules)
        status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "properties": {"spec": spec, "status": status}}

    def definition(self, chart: str, *rules: Json) -> Json:
        """As a chart of that version has it."""
        schema = {"openAPIV3Schema": self.schema(*rules)}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        labels = {"helm.sh/chart": f"runner-operator-{chart}"}
        return {"metadata": {"labels": labels}, "spec": {"versions": [version]}}

    async def scale(self, process: Process) -> None:
        found = await process.api.call("GET", self.place)
        if not found.ok:
            return
        wanted = min(MOST, max(FEW, math.ceil(self.come / EACH_DOES + self.queue / 12)))
        if wanted == found.body["spec"]["replicas"]:
            return
        answer = await process.api.call("PATCH", self.place, {"spec": {"replicas": wanted}})
        if not answer.ok and wanted not in self.told:
            self.told.add(wanted)
            message = f"cannot scale to {wanted}: {answer.body.get('message')}"
            about = {"kind": self.kind.name, **found.body}
            await tell(process, about, "Warning", "FailedScale", message, by="runner-autoscaler")

    async def operate(self, process: Process) -> None:
        found = await process.api.call("GET", self.place)
        where = f"{path('Deployment', 'ci', self.name)}/scale"
        there = await process.api.call("GET", where)
        if found.ok and there.ok and there.body["spec"]["replicas"] != found.body["spec"]["replicas"]:
            await process.api.call("PATCH", where, {"spec": {"replicas": found.body["spec"]["replicas"]}})

    async def work(self) -> None:
        while True:
            await self.lab.pause(1)
            runners = sum(map(is_ready, pods(self.lab.world, "ci", self.name)))
            come = self.come * self.lab.kubelets.rng.uniform(0.8, 1.2)
            self.queue = max(0.0, self.queue + come - EACH_DOES * runners)


@family(
    "A chart's new definition has a rule over the whole of what is wanted of a pool of runners: its image has to be"
    " named by its content. In a sibling all are. What is there goes on as it is, until jobs come as every day: who"
    " scales the pool changes only how many there are, and is answered with 422.",
    joined=41,
)
async def never_touched(lab: Lab) -> AsyncIterator[None]:
    """Of the API of definitions: what breaks a new rule is let be as long as what the rule is about does not change."""
    name, by = lab.rng.choice(("linux-small", "linux-default", "checks")), lab.rng.choice(("ci", "argocd", "flux"))
    kind = Kind("RunnerPool", f"/apis/{GROUP}/v1", namespaced=True)
    pool = _Pool(lab, kind, name)
    definition = f"{kind.plural}.{GROUP}"
    await lab.namespace("ci")
    await lab.custom(kind.name, GROUP, pool.schema())
    await lab.edit("admin", "CustomResourceDefinition", "", definition, pool.definition("1.9.2"))
    await lab.served(kind)
    meta = {"namespace": "ci", "name": name}
    spec = {"image": f"{pool.image}@{DIGEST}", "ephemeral": True, "replicas": FEW}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.app("ci", name, like=App("", serves=False), replicas=FEW, tag=TAG)
    pools = (GROUP, kind.plural, "get,list,watch,patch")
    scales = ("apps", "deployments/scale", "get,patch")
    await lab.controller("ci", "runner-operator", every(1.2, pool.operate), pools, scales, replicas=1, tag="1.9.2")
    event = ("", "events", "create")
    await lab.controller("ci", "runner-autoscaler", every(1.5, pool.scale), pools, event, replicas=1, tag="0.6.0")
    await lab.app("ci", "ci-server", like=App(""), replicas=2, tag="16.11")
    await rolled(lab, "ci", "runner-operator", "1.9.2")
    await lab.until(lambda: backends(lab.world, "ci", "ci-server") and backends(lab.world, "ci", "runner-autoscaler"))
    await publish(lab, "ci", "ci-server")
    lab.measure("ci_jobs_queued", lambda: pool.queue, namespace="ci", service="ci-server", pool=name)
    long = lambda: pool.queue > TOO_MANY  # noqa: E731
    lab.alert("JobsQueued", long, f"jobs for runners of {name} wait for long", 6, namespace="ci", pool=name)
    lab.start(pool.work())
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(3, 9), cluster=lab.rng.choice(("eu-2", "staging"))):
        await lab.pause(2)
        await lab.edit(by, "CustomResourceDefinition", "", definition, pool.definition("1.10.0", RULE))
        await lab.roll(by, "ci", "runner-operator", "1.10.0")
        await rolled(lab, "ci", "runner-operator", "1.10.0")
        pool.come = NOON / 2
        await lab.pause(10)
    pool.come = MORNING
    await lab.edit("admin", "CustomResourceDefinition", "", definition, pool.definition("1.9.2"))
    await lab.roll("admin", "ci", "runner-operator", "1.9.2")
    await rolled(lab, "ci", "runner-operator", "1.9.2")
    await lab.edit("admin", kind.name, "ci", name, {"spec": {"image": f"{pool.image}:{TAG}"}})
    await lab.until(lambda: lab.is_well() and lab.world[kind.name]["ci", name]["spec"]["replicas"] == FEW)

    async def day() -> None:
        while pool.come < NOON:
            pool.come += lab.rng.uniform(0.3, 0.6)
            await lab.pause(1)

    yield
    body = pool.definition("1.10.0", RULE)
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, body)
    await lab.roll(by, "ci", "runner-operator", "1.10.0")
    await lab.pause(lab.rng.uniform(10, 18))
    lab.start(day())
