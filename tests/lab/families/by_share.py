"""Two that scale the same app: one by how many pods there are, one by what each of them asks for."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process, millicores
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.taking_turns_out import evict
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

VERTICAL, HORIZONTAL, SCALED = "autoscaling.corp.example", "keda.sh", "vertical.corp.example/admission"
ASKED, COST_M, EACH_STANDS = 120.0, 8.0, 31.0
"""Requests a second of an app, what each of them takes of a processor in thousandths, and how many a pod stands."""
ASKS_FOR, RECOMMENDED = "200m", "520m"
TARGET, TOLERANCE, FEWEST, MOST = 0.8, 0.1, 2, 12


@dataclass
class _Scalers:
    """One by how many pods there are, one by what each of them asks for."""

    lab: Lab
    vertical: Kind
    horizontal: Kind
    namespace: str
    name: str

    async def _mode(self, process: Process) -> str:
        declared = await process.api.call("GET", self.vertical.path(self.namespace, self.name))
        return str(declared.body.get("spec", {}).get("updatePolicy", {}).get("updateMode", "Off"))

    async def update(self, process: Process) -> None:
        """As the updater: who asks for something else than what is recommended is evicted, one after another."""
        if await self._mode(process) != "Recreate":
            return
        there = await self._pods(process)
        others = [one for one in there if _asks_for(one) != millicores(RECOMMENDED)]
        if others and all(map(is_ready, there)) and len(there) >= FEWEST:
            await evict(process, others[0])

    async def admit(self, request: Json) -> list[Json] | None:
        """As the webhook: a new pod asks for what is recommended, unless that is only to be looked at."""
        found = self.lab.world[self.vertical.name].get((self.namespace, self.name), {})
        is_meant = request["object"]["metadata"].get("labels", {}).get("app.kubernetes.io/name") == self.name
        if not is_meant or found.get("spec", {}).get("updatePolicy", {}).get("updateMode") != "Recreate":
            return None
        return [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": RECOMMENDED}]

    async def scale(self, process: Process) -> None:
        """As many pods as use, all together, their target's share of what they ask for."""
        declared = await process.api.call("GET", self.horizontal.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        there = [one for one in await self._pods(process) if is_ready(one)]
        if not (declared.ok and found.ok and there):
            return
        used = ASKED * COST_M / sum(map(_asks_for, there))
        ratio = used / (int(declared.body["spec"]["triggers"][0]["metadata"]["value"]) / 100)
        wanted = min(MOST, max(FEWEST, math.ceil(len(there) * ratio)))
        if abs(ratio - 1) > TOLERANCE and wanted != found.body["spec"]["replicas"]:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def _pods(self, process: Process) -> list[Json]:
        where = f"{path('Pod', self.namespace)}?labelSelector=app.kubernetes.io/name={self.name}"
        items = (await process.api.call("GET", where)).body.get("items", [])
        return [one for one in items if "deletionTimestamp" not in one["metadata"]]

    def short(self, _: Container) -> float:
        """What comes is shared by those that are there; each has so many workers and refuses what they do not take."""
        return max(0.0, 1 - EACH_STANDS * len(backends(self.lab.world, self.namespace, self.name)) / ASKED)


def _asks_for(pod: Json) -> float:
    return millicores(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


@family(
    "What recommends how much an app should ask for was only looked at so far, and somebody lets it act. The app asks"
    " for more than twice as much, what it uses is a smaller share of that, and the autoscaler that goes by the share"
    " ends half of its pods: the others do not stand what comes.",
    joined=43,
)
async def share_shrinks(lab: Lab) -> AsyncIterator[None]:
    """Of the documentation of the vertical autoscaler: it is not to be used with the other one on the same resource."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "price-quotes", "quote-page"),
            ("media", "feed-builder", "feed-page"),
            ("search", "suggestions", "suggest-box"),
        )
    )
    by = lab.rng.choice(("alice", "bob", "flux", "argocd"))
    vertical = await lab.custom("VerticalPodAutoscaler", VERTICAL, ANY)
    horizontal = await lab.custom("ScaledObject", HORIZONTAL, ANY)
    await lab.served(vertical, horizontal)
    scalers = _Scalers(lab, vertical, horizontal, namespace, name)
    await lab.app("platform", "vpa-admission", like=App("", serves=False), tag="1.4.1")
    await lab.until(lambda: len(backends(lab.world, "platform", "vpa-admission")) == 2)

    async def review(request: Json) -> list[Json] | None:
        if not backends(lab.world, "platform", "vpa-admission"):
            raise ConnectionError("no pod is behind it")
        return await scalers.admit(request)

    webhook = Webhook(review, service=("platform", "vpa-admission"))
    await webhook.start()
    lab.servers.append(webhook)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {SCALED: "enabled"}}})
    made = {**configuration("vpa-admission", webhook, only=SCALED), "kind": "MutatingWebhookConfiguration"}
    made["webhooks"][0]["failurePolicy"] = "Ignore"
    await lab.apply(made)
    like = App("", asked=lambda: ASKED, failing=scalers.short, fails_with=lambda _: "503", capacity=4 * EACH_STANDS)
    await lab.app(namespace, name, like=like, replicas=6, tag="2.13.4")
    resources = {"requests": {"cpu": ASKS_FOR, "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    await lab.roll("admin", namespace, name, "2.14.0", resources=resources)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="6.0.2")
    meta, target = {"namespace": namespace, "name": name}, {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    advised = [{"containerName": name, "target": {"cpu": RECOMMENDED, "memory": "64Mi"}}]
    body = {
        "apiVersion": f"{VERTICAL}/v1",
        "kind": vertical.name,
        "metadata": meta,
        "spec": {"targetRef": target, "updatePolicy": {"updateMode": "Off"}},
        "status": {"recommendation": {"containerRecommendations": advised}},
    }
    await lab.apply(body)
    trigger = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": f"{TARGET * 100:.0f}"}}
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": FEWEST, "maxReplicaCount": MOST, "triggers": [trigger]}
    await lab.apply({"apiVersion": f"{HORIZONTAL}/v1", "kind": horizontal.name, "metadata": meta, "spec": spec})
    await rolled(lab, namespace, name, "2.14.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 6 and backends(lab.world, namespace, front))
    reads, evicts = ("", "pods", "list"), ("", "pods/eviction", "create")
    rights = (VERTICAL, vertical.plural, "get,list,watch"), reads, evicts
    await lab.controller("platform", "vpa-updater", every(2, scalers.update), *rights, replicas=1, tag="1.4.1")
    rights = (HORIZONTAL, horizontal.plural, "get,list,watch"), reads, ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(3, scalers.scale), *rights, replicas=1, tag="2.17.2")
    await lab.until(lambda: backends(lab.world, "platform", "keda-operator"))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    used = lab.adding_up(lambda: ASKED * COST_M / 1000)
    lab.measure("container_cpu_usage_seconds_total", used, "counter", namespace=namespace, service=name)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    body = {"spec": {"updatePolicy": {"updateMode": "Recreate"}}}
    await lab.culprit(by, "update", vertical.name, namespace, name, body)
