"""Who counts for an autoscaler, and who checks what is to be made: one sees nothing, one is not trusted any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.metrics_api import MetricsApi
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, leading
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

# -- figures

ADAPTER = ("monitoring", "prometheus-adapter")
AIMED, STANDS = 20, 28.0
"""Requests a second for which there is to be one pod, and how many a pod stands."""
ASKS = "--prometheus-url=http://prometheus.monitoring.svc:9090/"
ELSEWHERE = (
    "--prometheus-url=http://prometheus-infra.monitoring.svc:9090/",
    "--prometheus-url=http://thanos-query.monitoring.svc:10902/",
    "--prometheus-url=http://prometheus.monitoring.svc/",
    "--prometheus-url=http://prometheus-operated.observability.svc:9090/",
)
"""Where nobody is, or nobody who has the series of apps."""


def _arguments(asks: str) -> list[str]:
    return ["--secure-port=6443", "--config=/etc/config/config.yaml", "--metrics-relist-interval=1m", asks]


@dataclass
class _Evening:
    """Those who come to an app, which turns away what is more than its pods stand."""

    lab: Lab
    place: tuple[str, str]
    asks: float

    def failing(self, _: Container) -> float:
        return max(0.0, 1 - STANDS * len(backends(self.lab.world, *self.place)) / self.asks)

    async def grow(self, to: float, seconds: float) -> None:
        first, steps = self.asks, round(seconds * 2)
        for step in range(steps):
            self.asks = first + (to - first) * (step + 1) / steps
            await asyncio.sleep(0.5)


@family(
    "What tells autoscalers how much is asked gets the address of another Prometheus, which has no series of apps or is"
    " not there. It goes on to run, and has no figures: as the evening comes an app stays as small as it was.",
    joined=92,
)
async def adapter_without_figures(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose autoscaler said that the server could not find the metric."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "flash-offers", "offers-page", "offers-feed"),
            ("payments", "split-bills", "split-page", "split-mails"),
            ("media", "live-captions", "caption-page", "caption-store"),
            ("search", "autofill", "autofill-page", "autofill-sync"),
        )
    )
    by, minor, is_upgrade = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    asks, metric = lab.rng.choice(ELSEWHERE), f"{name.replace('-', '_')}_requests_per_second"
    tag, later = "v0.11.2", "v0.12.0" if is_upgrade else "v0.11.2"
    evening = _Evening(lab, (namespace, name), lab.rng.uniform(64, 76))

    def found() -> dict[str, Callable[[], float]]:
        """What it has listed: a new process begins with nothing."""
        there = [one["spec"]["containers"][0].get("args", ()) for one in backends(lab.world, *ADAPTER)]
        return {metric: lambda: evening.asks} if any(ASKS in one for one in there) else {}

    await lab.apply(objects.config_map(*ADAPTER, **{"config.yaml": f"externalRules:\n- seriesQuery: '{metric}'\n"}))
    await lab.app(*ADAPTER, like=App("", serves=False), replicas=1, tag="v0.11.1", config=ADAPTER[1])
    await lab.roll("admin", *ADAPTER, tag, args=_arguments(ASKS))
    await rolled(lab, *ADAPTER, tag)
    await lab.who["admin"].must("DELETE", path("Service", *ADAPTER))
    api = MetricsApi(found)
    await api.start()
    lab.servers.append(api)
    await api.register(lab.who["admin"], *ADAPTER)
    like = App("", asked=lambda: evening.asks, failing=evening.failing, fails_with=lambda _: "503", capacity=60)
    await lab.app(namespace, name, like=like, replicas=4, tag=f"3.{minor}.0")
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.9.0", config=other)
    await rolled(lab, namespace, other, "1.9.0")
    await set_before(lab, namespace, front, name)
    target = {"type": "AverageValue", "averageValue": str(AIMED)}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": 14,
        "metrics": [{"type": "External", "external": {"metric": {"name": metric}, "target": target}}],
    }
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == -(-evening.asks // AIMED))
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        lab.start(evening.grow(lab.rng.uniform(190, 230), lab.rng.uniform(11, 16)))
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll(by, *ADAPTER, later, culprit=True, args=_arguments(asks))
    lab.start(afterwards())


# -- a certificate

GOOD_SECONDS, EVERY_SECONDS, LATE_SECONDS = 96.0, 4.0, 15.0
"""For how long a certificate is good once all is set up, and of runs, how often there is one, and when it is late."""
RUNS = (
    ("PyTorchJob", "kubeflow.org", "training-operator", "v1.9.3"),
    ("FlinkSessionJob", "flink.apache.org", "flink-kubernetes-operator", "1.12.1"),
    ("RayJob", "ray.io", "kuberay-operator", "v1.4.2"),
)


@dataclass
class _Runs:
    """A schedule that asks for a run every few minutes, and the operator of these."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    asked: int = 0
    refused: int = 0
    through: int = 0
    last: float = field(default_factory=lambda: now().timestamp())

    @property
    def image(self) -> str:
        return f"registry.corp.example/{self.namespace}/{self.name}-job"

    async def ask(self, process: Process) -> None:
        """The next one; those that are through and older than the last three are cleaned away."""
        self.asked += 1
        meta = {"name": f"{self.name}-{self.asked:05}", "labels": {"schedule": self.name}}
        spec = {"image": f"{self.image}:4.0.1", "restartPolicy": {"type": "Never"}}
        body = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        made = await process.api.call("POST", self.kind.path(self.namespace), body)
        self.refused += not made.ok
        listed = (await process.api.call("GET", self.kind.path(self.namespace))).body.get("items", ())
        ended = sorted(one["metadata"]["name"] for one in listed if one.get("status", {}).get("state") == "COMPLETED")
        for one in ended[:-3]:
            await process.api.call("DELETE", self.kind.path(self.namespace, one))

    async def drive(self, process: Process) -> None:
        """Each run has a pod, and is through as soon as that is."""
        listed = await process.api.call("GET", self.kind.path(self.namespace))
        for one in listed.body.get("items", ()):
            meta, state = one["metadata"], one.get("status", {}).get("state")
            if state == "COMPLETED":
                continue
            where = path("Pod", self.namespace, f"{meta['name']}-driver")
            found = await process.api.call("GET", where)
            if found.status == 404:
                await process.api.call("POST", path("Pod", self.namespace), self._driver(one))
            phase = found.body.get("status", {}).get("phase") if found.ok else "Pending"
            told = {"Succeeded": "COMPLETED", "Running": "RUNNING"}.get(str(phase), "SUBMITTED")
            if told != state:
                body = {"status": {"state": told}}
                await process.api.call("PATCH", self.kind.path(self.namespace, meta["name"]), body)
            if told == "COMPLETED":
                self.through, self.last = self.through + 1, now().timestamp()

    def _driver(self, one: Json) -> Json:
        meta = one["metadata"]
        owner = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "name": meta["name"]}
        labels = {"app.kubernetes.io/name": f"{self.name}-job", "run": meta["name"]}
        room = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
        return {
            "metadata": {
                "name": f"{meta['name']}-driver",
                "labels": labels,
                "ownerReferences": [{**owner, "uid": meta["uid"], "controller": True}],
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "driver", "image": one["spec"]["image"], "resources": room}],
            },
        }

    def age(self) -> float:
        """Seconds since a run was through."""
        return now().timestamp() - self.last


@family(
    "No culprit. An operator of batches checks each run before it is made, by a webhook whose certificate was made with"
    " its chart a year ago. It is over: the API server trusts it no more, and no run of the schedule is made.",
    culprit=False,
    joined=92,
)
async def checker_out_of_date(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose nightly reports were missing in the morning."""
    kind_name, group, operator, tag = lab.rng.choice(RUNS)
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "basket-stats", "stats-page"),
            ("payments", "fraud-scores", "scores-page"),
            ("media", "play-counts", "charts-page"),
            ("search", "click-model", "model-page"),
        )
    )
    kind = await lab.custom(kind_name, group, ANY)
    await lab.served(kind)
    runs = _Runs(lab, kind, namespace, name)
    lab.apps[runs.image] = App(runs.image, ends_after=3.0, serves=False)

    async def review(request: Json) -> str | None:
        """That it says of which image it is."""
        return None if request["object"]["spec"].get("image") else "spec.image: Required value"

    rights = (group, kind.plural, "get,list,watch,patch"), ("", "pods", "get,list,watch,create,delete")
    lease = ("coordination.k8s.io", "leases", "*")
    program = both(informer(kind.path()), every(1.0, runs.drive), leading("platform", operator))
    await lab.controller("platform", operator, program, *rights, lease, replicas=1, tag=tag)
    await rolled(lab, "platform", operator, tag)
    webhook = Webhook(review, seconds=GOOD_SECONDS, service=("platform", operator))
    over = now().timestamp() + GOOD_SECONDS
    await webhook.start()
    lab.servers.append(webhook)
    manifest = configuration(operator, webhook)
    asked = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [kind.plural]}
    manifest["webhooks"][0].update(name=f"v{kind_name.lower()}.kb.io", rules=[asked])
    await lab.apply(manifest)
    rights = (group, kind.plural, "get,list,create,delete"), lease
    await lab.controller(namespace, name, every(EVERY_SECONDS, runs.ask), *rights, replicas=1, tag="2.11.0")
    await lab.app(namespace, f"{name}-api", like=App("", asked=lambda: 14.0), replicas=2, tag="1.3.0")
    await rolled(lab, namespace, f"{name}-api", "1.3.0")
    await set_before(lab, namespace, front, f"{name}-api")
    await lab.until(lambda: runs.through >= 1)
    told = {"namespace": namespace, "service": name}
    for what, count in (("submitted", lambda: runs.asked - runs.refused), ("failed", lambda: runs.refused)):
        lab.measure("schedule_runs_total", count, "counter", **told, result=what)
    lab.measure("schedule_last_success_age_seconds", runs.age, **told)
    summary = f"no run of {namespace}/{name} has been through for a while"
    lab.alert("ScheduleRunsLate", lambda: runs.age() > LATE_SECONDS, summary, 4, **told)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(max(0.0, over - now().timestamp() - lab.rng.uniform(-4, 6)))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, f"{name}-api", "1.3.1")
        await lab.pause(lab.rng.uniform(4, 8))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, front, {"data": {"LOG_LEVEL": "warn"}})
    lab.start(afterwards())
