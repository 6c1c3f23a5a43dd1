"""What goes by figures: of age, of processors, of series, of nodes."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import LATER, Lab
from tests.lab.manifests import images, is_ready
from tests.lab.metrics_api import MetricsApi, PodMetricsApi
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

WEEK = 7 * 86400
LIFE = re.compile(r"maxPodLifeTimeSeconds: (\d+)")
POLICY = """apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig:
  - name: PodLifeTime
    args:
      maxPodLifeTimeSeconds: {life}
      namespaces:
        include: [{namespaces}]
  plugins:
    deschedule:
      enabled: [PodLifeTime]
"""


@family(
    "The descheduler is told to evict pods that are older than some minutes in place of a week, so that the nodes fill"
    " up evenly after new ones have come. It evicts all pods of the teams, and again as soon as they are that old: an"
    " app that needs a while for its start is hardly ever there.",
    joined=75,
)
async def shorter_pod_life(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have tried the descheduler's PodLifeTime."""
    namespace, name, front = lab.rng.choice(
        (("search", "ranker", "find-page"), ("shop", "advisor", "advice-page"), ("media", "player", "play-page"))
    )
    by, other = lab.rng.choice(("alice", "bob", "flux", "argocd")), lab.rng.choice(("ci", "carol"))
    swept = [namespace, *lab.rng.sample([one for one in APPS if one != namespace], 1)]

    def policy(seconds: int) -> str:
        return POLICY.format(life=seconds, namespaces=", ".join(sorted(swept)))

    async def sweep(process: Process) -> None:
        """Whoever is too old is evicted, as far as budgets let it; a second stands for a minute."""
        found = LIFE.search(process.config["policy.yaml"])
        assert found
        for home in swept:
            listed = await process.api.call("GET", path("Pod", home))
            for pod in listed.body.get("items", []):
                meta = pod["metadata"]
                age = (now() - datetime.fromisoformat(meta["creationTimestamp"])).total_seconds()
                if age * 60 > int(found[1]) and "deletionTimestamp" not in meta:
                    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"]}}
                    await process.api.call("POST", f"{path('Pod', home, meta['name'])}/eviction", body)

    await lab.apply(objects.config_map("kube-system", "descheduler-policy", **{"policy.yaml": policy(WEEK)}))
    rules = ("", "pods,nodes", "get,list,watch"), ("", "pods/eviction", "create")
    sweeper = every(3, sweep)
    await lab.controller(
        "kube-system", "descheduler", sweeper, *rules, config="descheduler-policy", replicas=1, tag="0.33.0"
    )
    await lab.app(namespace, name, like=App("", start_seconds=13, asked=lambda: 20.0), replicas=4, tag="2.8.0")
    await rolled(lab, namespace, name, "2.8.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), tag="4.0.7")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, namespace, front, "4.0.8")
    await lab.pause(lab.rng.uniform(3, 8))
    body = {"data": {"policy.yaml": policy(60 * lab.rng.choice((20, 24, 25)))}}
    await lab.culprit(by, "update", "ConfigMap", "kube-system", "descheduler-policy", body)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(other, "Deployment", namespace, front, {"metadata": {"annotations": {"on-call": "team"}}})


STANDS, USES_M = 40.0, 2.5
"""Requests a second that a process stands, and the thousandths of a processor that it uses for each."""


@family(
    "In a rollout the team takes out the request for a processor, which has them pay for more than they use. Their"
    " autoscaler goes by a share of what is requested, and has nothing to compute with from then on: as the evening"
    " comes the app stays at its replicas, and turns requests away.",
    joined=75,
)
async def no_processor_request(lab: Lab) -> AsyncIterator[None]:
    """As very many tell to whom an autoscaler says: missing request for cpu."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "offers", "offers-page"),
            ("search", "facets", "results-page"),
            ("media", "lyrics", "song-page"),
            ("payments", "instalments", "plans-page"),
        )
    )
    by, other, minor = lab.rng.choice(("ci", "argocd", "alice")), lab.rng.choice(("bob", "flux")), lab.rng.randrange(40)
    asked = [lab.rng.uniform(56, 64)]

    def there() -> int:
        return max(1, sum(is_ready(pod) for pod in pods(lab.world, namespace, name)))

    def uses(pod: Json) -> float:
        is_ours = is_ready(pod) and images(pod)[0].rsplit(":", 1)[0] == like.image
        return USES_M * min(STANDS, asked[0] / there()) if is_ours else 5.0

    def turned_away(_: Container) -> float:
        return max(0.0, 1 - STANDS * there() / asked[0])

    like = App("", capacity=60, asked=lambda: asked[0], failing=turned_away, fails_with=lambda _: "503")
    server = PodMetricsApi(lab.world, uses)
    await server.start()
    lab.servers.append(server)
    await server.register(lab.who["admin"], "kube-system", "metrics-server")
    await lab.app(namespace, name, like=like, replicas=3, tag=f"1.{minor}.3")
    await rolled(lab, namespace, name, f"1.{minor}.3")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), tag="2.0.4")
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 3,
        "maxReplicas": 12,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})

    def is_active() -> bool:
        told = lab.world["HorizontalPodAutoscaler"].get((namespace, name), {}).get("status", {})
        conditions = told.get("conditions") or ()
        return any(one["type"] == "ScalingActive" and one["status"] == "True" for one in conditions)

    await lab.until(is_active)
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def evening() -> None:
        for _ in range(10):
            asked[0] += lab.rng.uniform(15, 19)
            await asyncio.sleep(1)

    yield
    await lab.pause(lab.rng.uniform(2, 6))
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    await lab.roll(by, namespace, name, f"1.{minor}.4", culprit=True, resources=resources)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(other, namespace, front, "2.0.5")
    lab.start(evening())


@family(
    "An exporter is upgraded to its next major version, in which series have other names. A rule that tells if one of"
    " them is not there any more fires, and so it would if the thing itself were down: it is well, and nobody can see"
    " it.",
    joined=75,
)
async def renamed_series(lab: Lab) -> AsyncIterator[None]:
    """As the notes on the breaking changes of kube-state-metrics 2.0 and postgres_exporter 0.13 have it."""
    exporter, old, new, was, becomes, alertname = lab.rng.choice(
        (
            (
                "kube-state-metrics",
                "1.9.8",
                "2.0.0",
                "kube_hpa_status_current_replicas",
                "kube_horizontalpodautoscaler_status_current_replicas",
                "AutoscalerMetricsAbsent",
            ),
            (
                "kube-state-metrics",
                "1.9.7",
                "2.1.1",
                "kube_node_status_allocatable_cpu_cores",
                "kube_node_status_allocatable",
                "NodeCapacityAbsent",
            ),
            (
                "postgres-exporter",
                "0.12.1",
                "0.13.2",
                "pg_replication_lag",
                "pg_replication_lag_seconds",
                "ReplicationLagAbsent",
            ),
        )
    )
    by, other = lab.rng.choice(("flux", "argocd", "alice")), lab.rng.choice(("bob", "carol"))
    image = f"registry.corp.example/monitoring/{exporter}"

    def tags() -> set[str]:
        """Of those that run and are well."""
        there = (one for one in lab.kubelets.running() if one.app.image == image and one.problem is None)
        return {one.container.tag for one in there}

    def exported() -> set[str]:
        return {was if tag == old else becomes for tag in tags()}

    def is_absent() -> bool:
        """Of what the rule asks for."""
        told = lab.world["ConfigMap"]["monitoring", "prometheus-rules"]["data"]["rules.yaml"]
        asked = re.search(r"absent\((\w+)\)", told)
        return asked is not None and asked[1] not in exported()

    def rules(percent: int) -> str:
        groups = [
            f"- alert: {alertname}\n  expr: absent({was})\n  for: 8m",
            f"- alert: TargetsDown\n  expr: 100 * avg(up == bool 0) by (job) > {percent}\n  for: 5m",
        ]
        return "\n".join(groups)

    value = lab.rng.uniform(2, 16)
    await lab.apply(objects.config_map("monitoring", "prometheus-rules", **{"rules.yaml": rules(10)}))
    await lab.app("monitoring", exporter, like=App("", serves=False), replicas=1, tag=old)
    await rolled(lab, "monitoring", exporter, old)
    for one in (was, becomes):
        figure = lambda one=one: value if one in exported() else None  # noqa: E731
        lab.measure(one, figure, namespace="monitoring", service=exporter)
    summary = f"there is no series {was}: {exporter} is down or does not see anything"
    lab.alert(alertname, is_absent, summary, 8, namespace="monitoring", job=exporter)
    await lab.until(lab.is_well)
    yield
    await lab.edit(other, "ConfigMap", "monitoring", "prometheus-rules", {"data": {"rules.yaml": rules(15)}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, "monitoring", exporter, new, culprit=True)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll("ci", *lab.rng.choice((("shop", "catalog"), ("search", "indexer"))), "1.44.0")


EACH_WORKER = 2.0
"""Jobs a second that one is through with."""
SCALER = ("kube-system", "cluster-autoscaler")


@dataclass
class _Rendering:
    """Jobs that come and wait, and whoever asks the cloud for a node for those who work them off."""

    lab: Lab
    app: App
    arrives: float = 19.0
    waiting: float = 0.0
    is_throttled: bool = False
    has_asked: bool = False

    async def work(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(0.5)
            there = sum(one.app is self.app and one.problem is None for one in self.lab.kubelets.running())
            self.waiting = max(0.0, self.waiting + 0.5 * (self.arrives - EACH_WORKER * there))

    async def evening(self) -> None:
        """More is to be done than by day."""
        for _ in range(6):
            self.arrives += self.lab.rng.uniform(1.8, 2.3)
            await asyncio.sleep(1)

    async def look(self, process: Process) -> None:
        """Whether somebody finds no node: the cloud is asked for one."""
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName%3D")
        left = [one for pod in listed.body.get("items", ()) for one in pod.get("status", {}).get("conditions", ())]
        status = "ScaleUp: NoActivity"
        if any(one.get("reason") == "Unschedulable" for one in left) and not self.has_asked:
            status = "ScaleUp: Backoff (RequestLimitExceeded)" if self.is_throttled else "ScaleUp: InProgress"
            if not self.is_throttled:
                self.has_asked = True
                await self.lab.kubelets.join(LATER, "v1.36.1", {})
        where = path("ConfigMap", SCALER[0], f"{SCALER[1]}-status")
        done = await process.api.call("PATCH", where, {"data": {"status": status, "seen": f"{now():%H:%M:%S}"}})
        if done.ok and "Backoff" in status:
            why = "RequestLimitExceeded: Request limit exceeded. status code: 503"
            about = {**done.body, "kind": "ConfigMap"}
            await tell(process, about, "Warning", "FailedToScaleUpGroup", f"Scale-up failed: {why}", by=SCALER[1])


@family(
    "No culprit. The cloud throttles what an account asks of its API, for which a fault at the cloud's is to blame. As"
    " every evening more is to be rendered and the workers are scaled up, the nodes are full, and the autoscaler of"
    " nodes is refused each time it asks for one.",
    culprit=False,
    joined=75,
)
async def cloud_throttles(lab: Lab) -> AsyncIterator[None]:
    """As status pages of clouds tell, and those whose autoscaler says RequestLimitExceeded."""
    namespace, name, metric = lab.rng.choice(
        (("media", "render-worker", "renders"), ("search", "embed-worker", "texts"), ("shop", "image-worker", "images"))
    )
    team = lab.rng.choice(("bob", "carol", "argocd"))
    like = App("", serves=False)
    jobs = _Rendering(lab, like)
    api = MetricsApi(lambda: {f"{metric}_per_second": lambda: jobs.arrives})
    await api.start()
    lab.servers.append(api)
    await api.register(lab.who["admin"], "monitoring", "external-metrics")
    lab.apps[f"registry.corp.example/{'/'.join(SCALER)}"].program = every(4, jobs.look)
    events = f"{SCALER[1]}-events"
    await lab.apply(objects.cluster_role(events, ("", "events", "create")))
    await lab.apply(objects.binding(events, events, *SCALER))
    await lab.roll("admin", *SCALER, "1.33.1")
    await rolled(lab, *SCALER, "1.33.1")
    await lab.app(namespace, name, like=like, replicas=10, tag="3.5.9")
    resources = {"requests": {"cpu": "6", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    await lab.roll("admin", namespace, name, "3.6.0", resources=resources)
    await rolled(lab, namespace, name, "3.6.0")
    target = {"type": "AverageValue", "averageValue": f"{EACH_WORKER:g}"}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": math.ceil(jobs.arrives / EACH_WORKER),
        "maxReplicas": 20,
        "metrics": [{"type": "External", "external": {"metric": {"name": f"{metric}_per_second"}, "target": target}}],
    }
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
    lab.start(jobs.work())
    told = {"namespace": namespace, "service": name}
    lab.measure(f"{metric}_waiting", lambda: jobs.waiting, **told)
    summary = f"more {metric} wait for {namespace}/{name} than are done in a quarter of an hour"
    lab.alert("QueueBacklogHigh", lambda: jobs.waiting > 150, summary, 5, **told)
    summary = f"pods of {namespace} have had no node for a quarter of an hour"
    lab.alert("KubePodNotScheduled", lambda: pending(lab.world, namespace), summary, 15, namespace=namespace)
    await lab.until(lab.is_well)
    yield
    jobs.is_throttled = True
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(team, *lab.rng.choice((("shop", "frontend"), ("payments", "checkout"))), "1.52.0")
    await lab.pause(lab.rng.uniform(2, 6))
    lab.start(jobs.evening())
