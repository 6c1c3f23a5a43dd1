"""What is left when a chart is uninstalled: the API that its pods answered, what only its operator may let go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import count

from tests.lab import objects
from tests.lab.alerts import Rule
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.metrics_api import MetricsApi
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, leading, tell
from tests.lab.scenario import family
from tests.lab.webhook_services import OUTSIDE

RUNNER, EXPORT = ("platform", "preview-runner"), ("platform", "cluster-export")
KEPT, WAITS_SECONDS, STAYS_SECONDS = 3, 14.0, 20.0
"""How many environments there are at a time, how long one may take to come, and to go before somebody is told."""
LEASE, EVENTS = ("coordination.k8s.io", "leases", "*"), ("", "events", "create")


@dataclass
class _Previews:
    """An environment for each pull request, in a namespace of its own; ``kind`` is of what is made there for it."""

    lab: Lab
    kind: Kind | None
    number: int
    made: int = 0
    failed: int = 0
    there: list[str] = field(default_factory=list)
    asked: dict[str, float] = field(default_factory=dict)
    """When each was asked for that is not complete."""

    async def next(self, process: Process) -> None:
        """Another one; the oldest goes, with all that is in it."""
        self.number += process.rng.randrange(1, 4)
        name = f"pr-{self.number}"
        labels = {"preview.corp.example/pull-request": str(self.number)}
        if not (await process.api.call("POST", path("Namespace"), {"metadata": {"name": name, "labels": labels}})).ok:
            return
        await process.api.call("POST", path("ConfigMap", name), objects.config_map(name, "web", BRANCH=name))
        if self.kind:
            body = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": {"name": "web-db"}}
            await process.api.call("POST", self.kind.path(name), {**body, "spec": {"size": "small"}})
        image = "registry.corp.example/previews/web:1.0.0"
        web = objects.deployment(name, "web", image, replicas=1, terminationGracePeriodSeconds=4)
        await process.api.call("POST", path("Deployment", name), web)
        self.there.append(name)
        self.asked[name] = now().timestamp()
        while len(self.there) > KEPT:
            await process.api.call("DELETE", path("Namespace", None, self.there.pop(0)))

    async def look(self, process: Process) -> None:
        """An environment is complete once what was made for it is ready; it is waited for so long."""
        for name, since in list(self.asked.items()):
            web = (await process.api.call("GET", path("Deployment", name, "web"))).body.get("status", {})
            is_there = web.get("readyReplicas", 0) > 0
            if self.kind:
                one = (await process.api.call("GET", self.kind.path(name, "web-db"))).body
                is_there = is_there and one.get("status", {}).get("phase") == "Ready"
            is_late = now().timestamp() - since > WAITS_SECONDS
            if not (is_there or is_late) or self.asked.pop(name, None) is None:
                continue
            self.made += is_there
            self.failed += not is_there
            if not is_there:
                pod, what = {"kind": "Pod", "metadata": process.see().pod["metadata"]}, "Deployment web"
                if self.kind:
                    what = f"{self.kind.name} web-db"
                why = f"{name}: timed out waiting for the condition on {what}"
                await tell(process, pod, "Warning", "PreviewFailed", why, by=RUNNER[1])

    def stays(self, labels: dict[str, str]) -> bool:
        """Whether a namespace has been going for long, which is told by the labels."""
        for (_, name), one in self.lab.world["Namespace"].items():
            at = one["metadata"].get("deletionTimestamp")
            if at and (now() - datetime.fromisoformat(at)).total_seconds() > STAYS_SECONDS:
                labels.setdefault("namespace", name)
                return True
        return False


@dataclass
class _Export:
    """What writes all objects of the cluster down, for the day on which they are lost: first it asks what kinds are."""

    done: int = 0
    failed: int = 0

    async def run(self, process: Process) -> None:
        groups = (await process.api.call("GET", "/apis")).body.get("groups", ())
        for version in (one["preferredVersion"]["groupVersion"] for one in groups):
            if not (await process.api.call("GET", f"/apis/{version}")).ok:
                self.failed += 1
                pod = {"kind": "Pod", "metadata": process.see().pod["metadata"]}
                unable = f"unable to retrieve the complete list of server APIs: {version}"
                why = f"error: {unable}: the server is currently unable to handle the request"
                await tell(process, pod, "Warning", "ExportFailed", why, by=EXPORT[1])
                return
        for kind in ("ConfigMap", "Service", "Deployment"):
            await process.api.call("GET", f"{path(kind)}?limit=50")
        self.done += 1


@dataclass
class _Keeper:
    """An operator that marks each of its objects as not to go before it has given back what is behind it."""

    kind: Kind
    finalizer: str
    numbers: count[int] = field(default_factory=lambda: count(5400))

    async def reconcile(self, process: Process) -> None:
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            meta = one["metadata"]
            where = self.kind.path(meta["namespace"], meta["name"])
            if "deletionTimestamp" in meta:
                await process.api.call("PATCH", where, {"metadata": {"finalizers": None}})
            elif "status" not in one:
                status = {"phase": "Ready", "port": next(self.numbers)}
                body = {"metadata": {"finalizers": [self.finalizer]}, "status": status}
                await process.api.call("PATCH", where, body)


async def _adapter(lab: Lab, name: str) -> None:
    """With its API, which nobody asks for a figure any more. Raises RefusedError."""
    image = f"registry.corp.example/monitoring/{name}"
    await lab.apply(objects.account("monitoring", name))
    await lab.apply(objects.cluster_role(name, ("", "pods,nodes,namespaces", "get,list,watch"), LEASE))
    await lab.apply(objects.binding(name, name, "monitoring", name))
    program = both(informer(path("Namespace")), leading("monitoring", name))
    lab.apps[image] = App(image, serves=False, program=program)
    made = objects.deployment("monitoring", name, f"{image}:v0.12.0", replicas=1, account=name)
    await lab.apply(made)
    await rolled(lab, "monitoring", name, "v0.12.0")
    api = MetricsApi(lambda: {"queue_messages_ready": lambda: 12.0} if backends(lab.world, "monitoring", name) else {})
    await api.start()
    lab.servers.append(api)
    await api.register(lab.who["admin"], "monitoring", name)


async def _uninstall(lab: Lab, by: str, namespace: str, name: str, services: tuple[str, ...]) -> None:
    """As Helm does: what is of the chart, and neither definitions nor what somebody has registered by hand."""
    for one in services:
        await lab.culprit(by, "delete", "Service", namespace, one)
    for kind, where in (
        ("Deployment", namespace),
        ("ClusterRoleBinding", ""),
        ("ClusterRole", ""),
        ("ServiceAccount", namespace),
    ):
        await lab.culprit(by, "delete", kind, where, name)


@family(
    "What seemed unused is uninstalled: an adapter for figures, of which the registration of its API is left, or an"
    " operator, of which objects are left that only it may let go. Namespaces that are deleted stay, nobody is told of"
    " all kinds any more, and what is still made of that sort is never ready.",
    joined=97,
)
async def what_it_left_behind(lab: Lab) -> AsyncIterator[None]:
    """As very many ask how to get rid of a namespace that is Terminating."""
    is_adapter, by = lab.rng.random() < 0.5, lab.rng.choice((*TEAMS, "ci"))
    home, name = "monitoring", lab.rng.choice(("prometheus-adapter", "kube-metrics-adapter", "queue-metrics-adapter"))
    kind, minor = None, lab.rng.randrange(2, 40)
    services: tuple[str, ...] = (name, f"{name}{OUTSIDE}")
    if is_adapter:
        await _adapter(lab, name)
    else:
        called, group = lab.rng.choice((("Database", "dbs.corp.example"), ("Bucket", "minio.corp.example")))
        home, name, services = "platform", f"{called.lower()}-operator", (f"{called.lower()}-operator",)
        kind = await lab.custom(called, group, ANY)
        await lab.served(kind)
        keeper = _Keeper(kind, f"{group}/finalizer")
        program = both(informer(kind.path()), every(1.0, keeper.reconcile), leading(home, name))
        await lab.controller(home, name, program, (group, kind.plural, "*"), LEASE, replicas=1, tag=f"0.{minor}.2")
        await rolled(lab, home, name, f"0.{minor}.2")
    previews, export = _Previews(lab, kind, lab.rng.randrange(1800, 5200)), _Export()
    program = both(every(7.0, previews.next), every(1.5, previews.look))
    await lab.controller(*RUNNER, program, ("*", "*", "*"), replicas=1, tag=f"1.{minor}.0")
    await lab.controller(*EXPORT, every(5.0, export.run), ("*", "*", "get,list"), EVENTS, replicas=1, tag="0.9.1")
    for one, tag in ((RUNNER, f"1.{minor}.0"), (EXPORT, "0.9.1")):
        await rolled(lab, *one, tag)
    told: Json = {"namespace": RUNNER[0], "service": RUNNER[1]}
    lab.measure("previews_total", lambda: previews.made, "counter", **told, result="success")
    lab.measure("previews_total", lambda: previews.failed, "counter", **told, result="failure")
    summary = "environments of pull requests fail"
    lab.alert("PreviewEnvironmentsFailing", lab.rate(lambda: previews.failed, 0.1, seconds=16), summary, 4, **told)
    told = {"namespace": EXPORT[0], "service": EXPORT[1]}
    lab.measure("exports_total", lambda: export.done, "counter", **told, result="success")
    lab.measure("exports_total", lambda: export.failed, "counter", **told, result="failure")
    lab.alert("ClusterExportFailing", lab.rate(lambda: export.failed, 0.1, seconds=12), "exports fail", 4, **told)
    summary = "a namespace has been terminating for a while"
    labels = {"phase": "Terminating"}
    lab.rules.append(Rule("KubeNamespaceTerminating", partial(previews.stays, labels), labels, summary, seconds=4))
    await lab.until(lambda: previews.made > KEPT and export.done and lab.is_well())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 10))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "950"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), *RUNNER, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(4, 8))
    await _uninstall(lab, by, home, name, services)
    lab.start(afterwards())
