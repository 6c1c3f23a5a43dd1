"""What programs do in place of a small change: one writes a whole map."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, Key, Kind, path
from tests.lab.apps import Process
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS
from tests.lab.programs import changes, lagging
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
    joined=21,
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
