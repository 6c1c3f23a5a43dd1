"""What somebody has and loses: verbs of a role, pods that another owner takes, the Secret of a worker."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import httpx2

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Process
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_done
from tests.lab.programs import every
from tests.lab.scenario import family

WATCH_SECONDS, LATE_SECONDS = 9, 10.0
"""After which a watch ends and is begun anew, and what has not been seen to is late."""
KEPT = 8
LOADS_SECONDS = 28.0
"""What a renderer reads before it answers."""
MOST_WORKERS, WORK_SECONDS = 6, 3.0
MARK = "worker.corp.example/of"
PART_OF, COMPONENT = "app.kubernetes.io/part-of", "app.kubernetes.io/component"


@dataclass
class _Imports:
    """What a pipeline declares, and an operator that lists once and watches from there."""

    wanted: Kind

    async def see_to(self, process: Process, one: Json) -> None:
        meta = one["metadata"]
        if one.get("status", {}).get("phase") != "Succeeded":
            where = self.wanted.path(meta["namespace"], meta["name"])
            await process.api.call("PATCH", where, {"status": {"phase": "Succeeded"}})

    async def watch(self, process: Process, version: str) -> None:
        """Until it ends, as each does."""
        where = f"{self.wanted.path()}?watch=1&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
        async with process.api.client.stream("GET", where, headers=process.api.headers, timeout=None) as lines:
            if not lines.is_success:
                process.api.counts[lines.status_code] += 1
                return
            async for line in lines.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ADDED":
                    await self.see_to(process, event["object"])

    async def operate(self, process: Process) -> None:
        listed = await process.api.call("GET", self.wanted.path())
        for one in listed.body.get("items", []):
            await self.see_to(process, one)
        if listed.ok:
            with suppress(httpx2.TransportError):
                await self.watch(process, listed.body["metadata"]["resourceVersion"])

    async def ask(self, lab: Lab, namespace: str) -> None:
        """A pipeline declares an import now and then, and takes those of old away."""
        api = f"{self.wanted.group}/v1"
        for number in itertools.count(1):
            await asyncio.sleep(lab.kubelets.rng.uniform(2, 4))
            spec = {"source": f"s3://exports/{namespace}/{number}", "target": f"{namespace}-data"}
            body = {"apiVersion": api, "kind": "DataImport", "metadata": {"name": f"nightly-{number}"}, "spec": spec}
            await lab.who["ci"].call("POST", self.wanted.path(namespace), body)
            if number > KEPT:
                await lab.who["ci"].call("DELETE", self.wanted.path(namespace, f"nightly-{number - KEPT}"))


def _since(thing: Json) -> float:
    """Seconds since something was made."""
    return (now() - datetime.fromisoformat(thing["metadata"]["creationTimestamp"])).total_seconds()


@family(
    "The rights of an operator are cut down from all verbs to those that somebody found in its code: it goes on with"
    " the watch that it has, and as that ends it may neither list nor watch what it is there for.",
    joined=19,
)
async def verbs_trimmed(lab: Lab) -> AsyncIterator[None]:
    """As those who wrote the importer of KubeVirt tell of a review (containerized-data-importer 1012, 2019)."""
    group, name = "data.corp.example", lab.rng.choice(("import-operator", "dataset-operator", "transfer-operator"))
    imports = _Imports(await lab.custom("DataImport", group, ANY))

    def late() -> bool:
        found = lab.world["DataImport"].values()
        return any(one.get("status", {}).get("phase") != "Succeeded" and _since(one) > LATE_SECONDS for one in found)

    rules = ((group, "dataimports", "*"), ("", "persistentvolumeclaims", "get,list,watch,create"))
    await lab.controller("platform", name, every(1, imports.operate), *rules, replicas=1)
    await lab.served(imports.wanted)
    lab.alert("DataImportsLate", late, f"{name} has not seen to an import", 4, namespace="platform", service=name)
    lab.start(imports.ask(lab, lab.rng.choice(("search", "media", "shop"))))
    yield
    by = lab.rng.choice(("carol", "flux", "alice"))
    trimmed = objects.cluster_role(name, (group, "dataimports", "get,patch,update"), rules[1])
    await lab.culprit(by, "update", "ClusterRole", "", name, {"rules": trimmed["rules"]})


@family(
    "To give a renderer another selector, its Deployment is deleted without its pods and made anew beside them; another"
    " Deployment of the same product selects wider than it should, takes the pods for its own and ends them.",
    joined=19,
)
async def adopted_replicas(lab: Lab) -> AsyncIterator[None]:
    namespace, product, kept, caller = lab.rng.choice(
        (
            ("payments", "invoices", "api", "accounts"),
            ("shop", "labels", "web", "dispatch"),
            ("media", "posters", "api", "covers"),
        )
    )
    name, other = f"{product}-renderer", f"{product}-{kept}"
    label, replicas = {PART_OF: product}, lab.rng.choice((3, 4))

    def manifest(app: str, selector: Json, image: str, replicas: int) -> Json:
        body = objects.deployment(namespace, app, image, replicas=replicas)
        labels = {**body["spec"]["template"]["metadata"]["labels"], **selector}
        body["spec"]["selector"] = {"matchLabels": selector}
        body["spec"]["template"]["metadata"]["labels"] = labels
        return body

    like = App(f"registry.corp.example/{namespace}/{name}")
    lab.apps[like.image] = like
    lab.apps[f"registry.corp.example/{namespace}/{other}"] = App(f"registry.corp.example/{namespace}/{other}")
    old = {**label, "app.kubernetes.io/name": name}
    await lab.apply(manifest(name, old, f"{like.image}:2.4.0", replicas))
    await lab.apply(manifest(other, label, f"registry.corp.example/{namespace}/{other}:2.4.0", 2))
    for app in (name, other):
        await lab.apply(objects.service(namespace, app))
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    lab.reserve(namespace, caller)
    lab.alert_lacking(namespace, caller)
    lab.alert_errors(namespace, caller)
    yield
    like.start_seconds = LOADS_SECONDS  # as ever, but nobody waits for that before it began
    by = lab.rng.choice(("alice", "bob", "carol"))
    await lab.culprit(by, "delete", "Deployment", namespace, name, {"propagationPolicy": "Orphan"})
    await lab.until(lambda: (namespace, name) not in lab.world["Deployment"])
    new = {**old, COMPONENT: "renderer"}
    await lab.culprit(by, "create", "Deployment", namespace, name, manifest(name, new, f"{like.image}:2.4.0", replicas))


@dataclass
class _Spawner:
    """Makes workers, each with a Secret of its own, and sweeps up after those that are gone."""

    namespace: str
    name: str
    image: str
    late: str
    """The version that sweeps after it has spawned."""

    async def there(self, process: Process, kind: str) -> list[Json]:
        listed = await process.api.call("GET", f"{path(kind, self.namespace)}?labelSelector={MARK}={self.name}")
        found: list[Json] = listed.body.get("items", [])
        return found

    async def sweep(self, process: Process, pods: list[Json]) -> None:
        """The Secret of whoever is gone goes, too."""
        known = {f"{pod['metadata']['name']}-config" for pod in pods}
        for one in await self.there(process, "Secret"):
            if one["metadata"]["name"] not in known:
                await process.api.call("DELETE", path("Secret", self.namespace, one["metadata"]["name"]))

    async def spawn(self, process: Process) -> None:
        worker, labels = f"worker-{process.rng.randrange(10**8):08}", {MARK: self.name}
        meta, token = {"name": f"{worker}-config", "labels": labels}, {"token": f"{process.rng.randrange(10**12)}"}
        await process.api.call("POST", path("Secret", self.namespace), {"metadata": meta, "stringData": token})
        image, secret = f"{self.image}:1.0.0", f"{worker}-config"
        made = objects.deployment(self.namespace, worker, image, secret=secret, restartPolicy="Never")
        body = {"metadata": {"name": worker, "labels": labels}, "spec": made["spec"]["template"]["spec"]}
        await process.api.call("POST", path("Pod", self.namespace), body)

    async def turn(self, process: Process) -> None:
        pods = await self.there(process, "Pod")
        for pod in (pod for pod in pods if is_done(pod)):
            await process.api.call("DELETE", path("Pod", self.namespace, pod["metadata"]["name"]))
        if process.tag != self.late:
            await self.sweep(process, pods)
        if len(pods) < MOST_WORKERS:
            await self.spawn(process)
        if process.tag == self.late:
            await self.sweep(process, pods)


@family(
    "A new version of what spawns workers sweeps up after it has spawned, by a list of pods from before: it deletes the"
    " Secret of the worker that it has just made, whose pod waits for that for ever.",
    joined=19,
)
async def secret_sweep(lab: Lab) -> AsyncIterator[None]:
    """As users of CDS tell of its hatchery (September 2023, cds 6625)."""
    namespace, name = "platform", lab.rng.choice(("hatchery", "runner-spawner", "build-spawner"))
    old, new = lab.rng.choice((("0.51.0", "0.52.0"), ("1.6.2", "1.7.0"), ("2.3.1", "2.4.0")))
    image = f"registry.corp.example/{namespace}/worker"
    lab.apps[image] = App(image, ends_after=WORK_SECONDS)

    def waits() -> bool:
        """A worker does not start."""
        workers = (pod for pod in lab.world["Pod"].values() if MARK in pod["metadata"].get("labels", {}))
        return any(pod.get("status", {}).get("phase") == "Pending" and _since(pod) > LATE_SECONDS for pod in workers)

    spawner, rules = _Spawner(namespace, name, image, new), ("", "pods,secrets", "get,list,create,delete")
    await lab.controller(namespace, name, every(4, spawner.turn), rules, replicas=1, tag=old)
    summary = f"a worker of {name} has not started for a while"
    lab.alert("KubePodNotReady", waits, summary, 5, namespace=namespace, service=name)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd", "flux")), namespace, name, new, culprit=True)
