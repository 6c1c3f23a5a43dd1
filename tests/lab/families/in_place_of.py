"""What programs do in place of a small change: one writes a whole map, one leaves a key there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.alerts import pods
from tests.lab.api import Json, Key, Kind, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import INGRESS_CLASS, backends
from tests.lab.programs import changes, every, lagging
from tests.lab.scenario import family

WRITES = 5.0
"""How often a second each of two clients lets itself write, as most are built."""
REACHED = "management.corp.example/public-endpoints"
"""The annotation by which an agent tells a console where an Ingress is reached."""


@dataclass
class _Collectors:
    """An operator of collectors, each of which has an Ingress, with the annotations that are asked for there."""

    kind: Kind

    async def run(self, process: Process) -> None:
        """For ever: those of old write what is lacking, later ones all annotations as they should be."""
        is_old = process.tag.startswith("0.128.")
        await lagging(process)
        waiting: dict[Key, None] = {}

        def told(one: Json) -> None:
            waiting[one["metadata"]["namespace"], one["metadata"]["name"]] = None

        async def look() -> None:
            while True:
                for key in list(waiting):
                    del waiting[key]
                    await self._keep(process, *key, is_old=is_old)
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            group.create_task(look())
            for where in (self.kind.path(), path("Ingress")):
                group.create_task(changes(process, where, told, of_all=True))

    async def _keep(self, process: Process, namespace: str, name: str, *, is_old: bool) -> None:
        """What one has, as it is asked for."""
        found = await process.api.call("GET", self.kind.path(namespace, name))
        there = await process.api.call("GET", path("Ingress", namespace, name))
        if not found.ok:
            return
        wanted = found.body["spec"]["ingress"]
        if there.status == 404:
            backend = {"service": {"name": name, "port": {"number": 80}}}
            paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
            rules = [{"host": wanted["host"], "http": {"paths": paths}}]
            meta = {"name": name, "annotations": wanted["annotations"]}
            spec = {"ingressClassName": INGRESS_CLASS, "rules": rules}
            await process.api.call("POST", path("Ingress", namespace), {"metadata": meta, "spec": spec})
            return
        has = there.body["metadata"].get("annotations", {})
        whole = {**has, **wanted["annotations"]} if is_old else wanted["annotations"]
        if has != whole:
            body = {**there.body, "metadata": {**there.body["metadata"], "annotations": whole}}
            await process.api.call("PUT", path("Ingress", namespace, name), body)
            await asyncio.sleep(1 / WRITES)


async def _tell(process: Process) -> None:
    """As the agent of a console: each Ingress says where it is reached."""
    waiting: dict[Key, Json] = {}

    def told(one: Json) -> None:
        waiting[one["metadata"]["namespace"], one["metadata"]["name"]] = one

    async def write() -> None:
        while True:
            for key in list(waiting):
                one = waiting.pop(key)
                hosts = ",".join(f"https://{rule['host']}" for rule in one["spec"].get("rules", ()))
                if one["metadata"].get("annotations", {}).get(REACHED) != hosts:
                    body = {"metadata": {"annotations": {REACHED: hosts}}}
                    await process.api.call("PATCH", path("Ingress", *key), body)
                    await asyncio.sleep(1 / WRITES)
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(changes(process, path("Ingress"), told, of_all=True))


@family(
    "A new version of an operator writes all annotations of its Ingresses as they are asked for, and not only its own:"
    " it takes out what an agent of a console notes there, that one writes it again, and neither comes to rest.",
    joined=22,
)
async def annotations_replaced(lab: Lab) -> AsyncIterator[None]:
    """As a user of the operator for OpenTelemetry tells (September 2025, opentelemetry-operator 4322)."""
    name = lab.rng.choice(("collector-operator", "telemetry-operator"))
    agent = lab.rng.choice(("console-agent", "fleet-agent"))
    group, places = "telemetry.corp.example", lab.rng.sample(("shop", "payments", "search", "media"), 3)
    made = await lab.custom("Collector", group, ANY)
    await lab.served(made)
    for namespace in places:
        await lab.app(namespace, "collector")
        meta = {"namespace": namespace, "name": "collector"}
        notes = {"nginx.ingress.kubernetes.io/proxy-body-size": lab.rng.choice(("4m", "8m"))}
        spec = {"mode": "deployment", "ingress": {"host": f"telemetry.{namespace}.corp.example", "annotations": notes}}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": "Collector", "metadata": meta, "spec": spec})
    ingresses = ("networking.k8s.io", "ingresses", "get,list,watch,create,update,patch")
    rules = ((group, made.plural, "get,list,watch"), ingresses)
    await lab.controller("platform", name, _Collectors(made).run, *rules, replicas=1, tag="0.128.0")
    await lab.controller("platform", agent, _tell, ingresses, replicas=1, tag="2.11.3")
    seen: dict[Key, str] = {}
    written = [0]

    def writes() -> int:
        """Of all Ingresses, as their versions tell."""
        for key, one in lab.world["Ingress"].items():
            version = one["metadata"]["resourceVersion"]
            written[0] += seen.get(key, version) != version
            seen[key] = version
        return written[0]

    def told() -> bool:
        there = [lab.world["Ingress"].get((namespace, "collector")) for namespace in places]
        return all(one and REACHED in one["metadata"].get("annotations", {}) for one in there)

    await lab.until(told)
    summary = "Ingresses are written again and again"
    lab.alert("KubeAPIWritesHigh", lab.rate(writes, 1.5), summary, 5, job="apiserver", resource="ingresses")
    yield
    await lab.roll(lab.rng.choice(("argocd", "flux", "bob")), "platform", name, "0.131.1", culprit=True)


@dataclass
class _Stateful:
    """An operator of servers of which one is active: what is not released yet has calls go to that one by a label."""

    kind: Kind

    async def sync(self, process: Process) -> None:
        """What belongs to each, as this version renders it."""
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
            labels_active = process.tag.startswith("main-")
            notes = {f"{self.kind.group}/rendered-by": process.tag}
            selector = {"app.kubernetes.io/name": name, **({self.active: "true"} if labels_active else {})}
            await self._merge(
                process, path("StatefulSet", namespace, name), "template", {"metadata": {"annotations": notes}}
            )
            if labels_active:
                await self._mark(process, namespace, name)
            await self._merge(process, path("Service", namespace, name), "selector", selector)

    @property
    def active(self) -> str:
        """The label."""
        return f"{self.kind.group}/active"

    async def _merge(self, process: Process, where: str, key: str, wanted: Json) -> None:
        """Into what is there: what it does not know stays."""
        found = await process.api.call("GET", where)
        if found.ok and not _holds(found.body["spec"][key], wanted):
            await process.api.call("PATCH", where, {"spec": {key: wanted}})

    async def _mark(self, process: Process, namespace: str, name: str) -> None:
        """The first that is ready is active, and no other."""
        listed = await process.api.call("GET", f"{path('Pod', namespace)}?labelSelector=app.kubernetes.io/name={name}")
        there = sorted(listed.body.get("items", []), key=lambda pod: str(pod["metadata"]["name"]))
        first = next((pod["metadata"]["name"] for pod in there if is_ready(pod)), "")
        for pod in there:
            wanted = "true" if pod["metadata"]["name"] == first else None
            if pod["metadata"]["labels"].get(self.active) != wanted:
                body = {"metadata": {"labels": {self.active: wanted}}}
                await process.api.call("PATCH", path("Pod", namespace, pod["metadata"]["name"]), body)


def _holds(has: Json, wanted: Json) -> bool:
    """Whether all that is wanted is there, in maps of maps."""
    return all(
        _holds(has.get(key) or {}, value) if isinstance(value, dict) else has.get(key) == value
        for key, value in wanted.items()
    )


@family(
    "An operator that was built from what is not released yet has a Service select the active pod by a label: the"
    " released version that is put back knows of no such label and leaves the key there, and as it has made the pods"
    " anew the Service selects none.",
    joined=22,
)
async def key_left_behind(lab: Lab) -> AsyncIterator[None]:
    """As a user of the operator for Slurm tells of a cluster for tests (September 2026, slurm-operator 257)."""
    namespace, name, callers, kind = lab.rng.choice(
        (
            ("media", "render-controller", ("render-api", "render-gateway"), "RenderCluster"),
            ("search", "crawl-controller", ("crawl-api", "crawl-gateway"), "CrawlCluster"),
            ("payments", "batch-controller", ("batch-api", "batch-gateway"), "BatchCluster"),
        )
    )
    group, operator = f"{namespace}.corp.example", f"{name.split('-')[0]}-operator"
    trial, released = f"main-{lab.rng.randrange(16**7):07x}", lab.rng.choice(("1.2.2", "1.4.1"))
    made = await lab.custom(kind, group, ANY)
    await lab.served(made)
    await lab.app(namespace, name, kind="StatefulSet", replicas=2, tag="24.11.3")
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": {"controllers": 2}})
    stateful = _Stateful(made)
    rules = (
        (group, made.plural, "get,list,watch"),
        ("apps", "statefulsets", "get,list,watch,patch"),
        ("", "services,pods", "get,list,watch,patch"),
    )
    await lab.controller("platform", operator, every(1.5, stateful.sync), *rules, replicas=1, tag=trial)
    one_at_a_time = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    await lab.edit("admin", "Deployment", "platform", operator, one_at_a_time)

    def marked() -> bool:
        """And all pods are as that version renders them."""
        selector = lab.world["Service"][namespace, name]["spec"]["selector"]
        there = pods(lab.world, namespace, name)
        notes = [pod["metadata"].get("annotations", {}).get(f"{group}/rendered-by") for pod in there if is_ready(pod)]
        return notes == [trial] * 2 and stateful.active in selector and len(backends(lab.world, namespace, name)) == 1

    await lab.until(marked)
    for caller in callers:
        await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)))
        lab.alert_errors(namespace, caller)
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in callers))
    await publish(lab, namespace, callers[-1])
    lab.alert_ingress_errors(namespace, namespace)
    yield
    await lab.roll(lab.rng.choice(("alice", "ci", "argocd")), "platform", operator, released, culprit=True)
