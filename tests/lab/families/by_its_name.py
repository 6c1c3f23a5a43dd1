"""What is known by its name: a container, by whose use of the processor an app is scaled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process, millicores
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

GROUP = "keda.sh"
BY_DAY, COST_M, STANDS = 62.0, 3.0, 42.0
"""Requests a second of an app, what each takes of a processor in thousandths, and how many one pod stands."""
TARGET, TOLERANCE, FEWEST, MOST = 0.65, 0.1, 3, 14


@dataclass
class _Scaler:
    """Keeps an app at as many pods as use, by one of their containers, the target's share of what that asks for."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    asked: float = BY_DAY
    failed: int = 0

    async def run(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        listed = f"{path('Pod', self.namespace)}?labelSelector=app.kubernetes.io/name={self.name}"
        items = (await process.api.call("GET", listed)).body.get("items", [])
        there = [one for one in items if is_ready(one) and "deletionTimestamp" not in one["metadata"]]
        if not (declared.ok and found.ok and there):
            return
        [trigger] = declared.body["spec"]["triggers"]
        container = trigger["metadata"]["containerName"]
        asked_for = [asked for pod in there for asked in _asked_for(pod, container)]
        if len(asked_for) < len(there):
            self.failed += 1
            without = next(pod for pod in there if not _asked_for(pod, container))
            about = {**declared.body, "kind": self.kind.name}
            message = f"failed to get cpu utilization: container {container} not present in metrics for pod"
            message = f"{message} {self.namespace}/{without['metadata']['name']}"
            await tell(process, about, "Warning", "FailedGetContainerResourceMetric", message, by="keda-operator")
            return
        ratio = self.asked * COST_M / sum(asked_for) / (int(trigger["metadata"]["value"]) / 100)
        wanted = min(MOST, max(FEWEST, math.ceil(len(there) * ratio)))
        if abs(ratio - 1) > TOLERANCE and wanted != found.body["spec"]["replicas"]:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    def short(self, _: Container) -> float:
        """Each pod has so many workers, and refuses what they do not take."""
        return max(0.0, 1 - STANDS * len(backends(self.lab.world, self.namespace, self.name)) / self.asked)

    async def grow(self, most: float) -> None:
        while self.asked < most:
            self.asked += 5
            await asyncio.sleep(1)


def _asked_for(pod: Json, container: str) -> list[float]:
    """What one container of a pod asks for; none where it has none of that name."""
    found = (one for one in pod["spec"]["containers"] if one["name"] == container)
    return [millicores(one["resources"]["requests"]["cpu"]) for one in found]


@family(
    "An app is scaled by the processor's time of one of its containers, as the proxy beside it would blur the number. A"
    " release of its chart gives that container the name that all have. All is well by day; in the evening what scales"
    " it finds no number for the name that it was told, does nothing, and its pods do not stand what comes.",
    joined=60,
)
async def by_its_name(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of the horizontal autoscaler says what to do first where a container gets another name."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "availability", "stock-page"),
            ("search", "facets", "filter-page"),
            ("media", "captions", "player-page"),
        )
    )
    by, minor = lab.rng.choice(("ci", "flux", "argocd")), lab.rng.randrange(3, 40)
    kind = await lab.custom("ScaledObject", GROUP, ANY)
    await lab.served(kind)
    scaler = _Scaler(lab, kind, namespace, name)
    like = App("", asked=lambda: scaler.asked, failing=scaler.short, fails_with=lambda _: "503", capacity=4 * STANDS)
    await lab.app(namespace, name, like=like, replicas=FEWEST, tag=f"5.{minor}.0")
    proxy = "registry.corp.example/mesh/proxy"
    lab.apps[proxy] = App(proxy, serves=False)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    resources = {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
    beside = {"name": "proxy", "image": f"{proxy}:1.26.2", "resources": resources}
    await lab.edit("admin", "Deployment", namespace, name, _containers(there, beside))
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.4.0")
    trigger: Json = {"type": "cpu", "metricType": "Utilization"}
    trigger["metadata"] = {"value": f"{TARGET * 100:.0f}", "containerName": name}
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": FEWEST, "maxReplicaCount": MOST, "triggers": [trigger]}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (
        (GROUP, kind.plural, "get,list,watch"),
        ("", "pods", "list"),
        ("", "events", "create"),
        ("apps", "deployments/scale", "get,patch"),
    )
    await lab.until(
        lambda: len(backends(lab.world, namespace, name)) == FEWEST and backends(lab.world, namespace, front)
    )
    await lab.controller("platform", "keda-operator", every(2, scaler.run), *rules, replicas=1, tag="2.17.2")
    await lab.until(lambda: backends(lab.world, "platform", "keda-operator"))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    used = lab.adding_up(lambda: scaler.asked * COST_M / 1000)
    lab.measure("container_cpu_usage_seconds_total", used, "counter", namespace=namespace, service=name)
    errors = lambda: scaler.failed  # noqa: E731
    lab.measure("keda_scaler_errors_total", errors, "counter", namespace="platform", service="keda-operator")
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 5))
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    released = {**there, "name": "app", "image": there["image"].replace(f"5.{minor}.0", f"5.{minor + 1}.0")}
    await lab.culprit(by, "update", "Deployment", namespace, name, _containers(released, beside))
    await lab.until(lambda: len(backends(lab.world, namespace, name)) >= FEWEST)
    await lab.pause(lab.rng.uniform(8, 14))
    lab.start(scaler.grow(lab.rng.uniform(230, 280)))


def _containers(*all_of_them: Json) -> Json:
    return {"spec": {"template": {"spec": {"containers": list(all_of_them)}}}}
