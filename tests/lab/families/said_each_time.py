"""What is said each time: the state of an agent's node, a field by the name that it had."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import Process
from tests.lab.before import before
from tests.lab.families.by_annotation import rolled
from tests.lab.families.load import alert_on_load
from tests.lab.families.whole_lists import following
from tests.lab.lab import Lab
from tests.lab.programs import both, every, lagging
from tests.lab.scenario import family

NETWORK, CACHES = "net.corp.example", "caches.corp.example"
ON_CHANGE, HEARTBEATS = "1.12.4", "1.13.0"
BLOCK = 16
"""Addresses of one block that an agent has for the pods of its node."""
KEPT = 3
"""How many previews there are at once."""


@dataclass(frozen=True)
class _Agents:
    """Each says what blocks its node has, and looks at each node of which another one has said something."""

    lab: Lab
    kind: Kind

    async def run(self, process: Process) -> None:
        node, said = process.see().pod["spec"]["nodeName"], dict[str, Json]()

        async def look(process: Process, one: Json) -> None:
            other = one["metadata"]["name"]
            if other != node:
                await process.api.call("GET", path("Node", None, other))

        async def say(process: Process) -> None:
            here = [pod for pod in self.lab.world["Pod"].values() if pod["spec"].get("nodeName") == node]
            spec: Json = {"node": node, "blocks": 1 + len(here) // BLOCK}
            if process.tag == HEARTBEATS:
                await lagging(process)
                spec["heartbeat"] = stamp(now())
            if said.get(node) == spec:
                return
            done = await process.api.call("PATCH", self.kind.path(None, node), {"spec": spec})
            if done.status == 404:
                meta, version = {"name": node}, f"{NETWORK}/v1"
                body = {"apiVersion": version, "kind": self.kind.name, "metadata": meta, "spec": spec}
                done = await process.api.call("POST", self.kind.path(), body)
            if done.ok:
                said[node] = spec

        await both(following(self.kind, look), every(1.0, say))(process)


@family(
    "A new version of an agent on every node says the state of its node again and again, with the time, where the old"
    " one said it when it had changed. Each agent looks at a node of which something was said, also those of the old"
    " version: each further node with the new one makes all of them ask more.",
    joined=35,
)
async def agent_heartbeats(lab: Lab) -> AsyncIterator[None]:
    """As those who run large networks of agents tell: what each of them says is told to every other one."""
    name, by = lab.rng.choice(("route-agent", "mesh-agent", "overlay-agent")), lab.rng.choice(("argocd", "flux", "ci"))
    schema: Json = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "node": {"type": "string"},
                    "blocks": {"type": "integer"},
                    "heartbeat": {"type": "string"},
                },
            }
        },
    }
    kind = await lab.custom("AgentState", NETWORK, schema, namespaced=False)
    await lab.served(kind)
    rights = (NETWORK, kind.plural, "get,list,watch,create,patch"), ("", "nodes", "get")
    program = _Agents(lab, kind).run
    await lab.controller("kube-system", name, program, *rights, kind="DaemonSet", tag=ON_CHANGE)
    await lab.until(lambda: len(lab.world[kind.name]) == len(lab.world["Node"]))
    await rolled(lab, "kube-system", name, ON_CHANGE)
    alert_on_load(lab)
    await lab.until(lab.is_well)
    yield
    template = lab.world["DaemonSet"]["kube-system", name]["spec"]["template"]["spec"]
    [container] = template["containers"]
    image = f"{container['image'].rsplit(':', 1)[0]}:{HEARTBEATS}"
    body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
    await lab.culprit(by, "update", "DaemonSet", "kube-system", name, body)


def _schema(**of_size: str) -> Json:
    """Of a cache; its size is the only thing that has had two names."""
    fields = {"engine": {"type": "string"}, **{key: {"type": what} for key, what in of_size.items()}}
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}, "status": status}}


OLD, NEW = _schema(sizeMi="integer"), _schema(memory="string")
OLD_CHART, NEW_CHART = "0.9.6", "0.10.0"


def _defined(schema: Json) -> Json:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"spec": {"versions": [version]}}


@dataclass
class _Previews:
    """A cache for each preview, as a template of old has it; a field that is not known is not taken."""

    kind: Kind
    numbers: itertools.count[int]
    up: list[str] = field(default_factory=list)

    async def order(self, process: Process) -> None:
        name = f"preview-{next(self.numbers)}"
        where = self.kind.path("platform")
        spec = {"engine": "valkey", "sizeMi": 128}
        body = {"apiVersion": f"{CACHES}/v1", "kind": self.kind.name, "metadata": {"name": name}, "spec": spec}
        if (await process.api.call("POST", f"{where}?fieldValidation=Strict", body)).ok:
            self.up.append(name)
        while len(self.up) > KEPT:
            await process.api.call("DELETE", f"{where}/{self.up.pop(0)}")

    async def ready(self, process: Process, one: Json) -> None:
        """What their operator does for each."""
        meta = one["metadata"]
        if one.get("status", {}).get("phase") != "Ready":
            await asyncio.sleep(0.5)
            where = self.kind.path(meta["namespace"], meta["name"])
            await process.api.call("PATCH", where, {"status": {"phase": "Ready"}})


@family(
    "A chart's new definition gives a field of its kind another name, as in a sibling where nobody makes such objects"
    " by a template. A pipeline makes one for each preview by the old name, and asks for fields that are not known to"
    " be refused: it gets none any more.",
    joined=35,
)
async def strict_fields(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of the API tells of field validation: what is dropped elsewhere is an error here."""
    pipeline, by = (
        lab.rng.choice(("preview-runner", "review-apps", "branch-deployer")),
        lab.rng.choice(("argocd", "flux")),
    )
    operator = "cache-operator"
    kind = await lab.custom("Cache", CACHES, OLD)
    definition = f"{kind.plural}.{CACHES}"
    await lab.served(kind)
    previews = _Previews(kind, itertools.count(lab.rng.randrange(1000, 4000)))
    rights = (CACHES, kind.plural, "get,list,watch,patch")
    await lab.controller("platform", operator, following(kind, previews.ready), rights, replicas=1, tag=OLD_CHART)
    rights = (CACHES, kind.plural, "get,create,delete")
    app = await lab.controller("platform", pipeline, every(1.6, previews.order), rights, replicas=1, tag="5.0.3")
    await rolled(lab, "platform", operator, OLD_CHART)
    await lab.until(lambda: len(previews.up) == KEPT)
    refused = lab.refused(app.image, 400)
    lab.measure(
        "pipeline_step_failures_total", refused, "counter", namespace="platform", service=pipeline, step="apply"
    )
    summary = "previews are not deployed: a step fails again and again"
    lab.alert("PreviewsFailing", lab.rate(refused, 0.2, seconds=8), summary, 5, namespace="platform", service=pipeline)

    async def scale(replicas: int) -> None:
        await lab.edit("admin", "Deployment", "platform", pipeline, {"spec": {"replicas": replicas}})
        await lab.until(lambda: len(pods(lab.world, "platform", pipeline)) == replicas)

    async def install() -> None:
        """As a chart does: first what is defined, then who reads it."""
        await lab.pause(1)
        await lab.roll(by, "platform", operator, NEW_CHART)

    await scale(0)
    async with before(lab, days=lab.rng.randrange(1, 4), cluster=lab.rng.choice(("staging", "us-2"))):
        await lab.pause(2)
        await lab.edit(by, "CustomResourceDefinition", "", definition, _defined(NEW))
        await install()
        await rolled(lab, "platform", operator, NEW_CHART)
        spec = {"engine": "valkey", "memory": "256Mi"}
        meta = {"namespace": "platform", "name": "sessions"}
        await lab.apply({"apiVersion": f"{CACHES}/v1", "kind": kind.name, "metadata": meta, "spec": spec}, "alice")
        await lab.pause(4)
    await lab.who["admin"].must("DELETE", kind.path("platform", "sessions"))
    await lab.edit("admin", "CustomResourceDefinition", "", definition, _defined(OLD))
    await lab.roll("admin", "platform", operator, OLD_CHART)
    await rolled(lab, "platform", operator, OLD_CHART)
    await lab.pause(2)
    await scale(1)
    await rolled(lab, "platform", pipeline, "5.0.3")
    yield
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, _defined(NEW))
    await install()
