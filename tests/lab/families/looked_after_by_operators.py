"""What operators look after: more than they have memory for, and all of it anew with their next version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, leading, writing
from tests.lab.scenario import family

# -- more to watch

MIB, READ_SECONDS, STALE_SECONDS = 2.0**20, 6.0, 20.0
"""Until a controller has read all that it is to watch after its start, and from when on it is missed."""
WATCHERS = (
    ("platform", "strimzi-cluster-operator", "0.47.0", "STRIMZI_NAMESPACE", "*", "ConfigMap"),
    ("platform", "trivy-operator", "0.28.0", "OPERATOR_TARGET_NAMESPACES", "", "Pod"),
    ("monitoring", "grafana-operator", "v5.19.4", "WATCH_NAMESPACE", "", "ConfigMap"),
    ("platform", "postgres-operator", "v1.14.0", "WATCHED_NAMESPACE", "*", "Pod"),
)
"""By which variable each is told where to look, with which value it looks everywhere, and at what."""


@dataclass
class _Watcher:
    """A controller that keeps in its memory all that it watches: where, one of its variables says."""

    namespace: str
    name: str
    key: str
    everywhere: str
    about: str
    limit: int
    """MiB that it may have, as what it needs to watch everything."""
    need: int
    done: datetime = field(default_factory=now)
    seconds: float = 0.0
    sees_all: bool = False

    def check(self, container: Container) -> Problem | None:
        told = {one["name"]: one.get("value", "") for one in container.spec.get("env", ())}
        self.seconds, self.sees_all = container.seconds, told.get(self.key, "") == self.everywhere
        is_over = self.sees_all and container.seconds >= READ_SECONDS
        return Problem("oom", f"needs {self.need}Mi, may have {self.limit}Mi") if is_over else None

    def in_memory(self) -> float:
        full = self.need if self.sees_all else 0.45 * self.limit
        return min(float(self.limit), 50 + (full - 50) * min(1.0, self.seconds / READ_SECONDS)) * MIB

    def stale(self) -> float:
        """Seconds since it has last been through with what it does."""
        return (now() - self.done).total_seconds()

    async def sync(self, process: Process) -> None:
        if process.see().seconds > READ_SECONDS:
            await writing(self.namespace, f"{self.name}-state", "synced")(process)
            self.done = now()

    async def run(self, process: Process) -> None:
        told = process.env.get(self.key, "")
        homes = [None] if told == self.everywhere else told.split(",")
        watches = [informer(path(self.about, one)) for one in homes]
        await both(*watches, every(3.0, self.sync), leading(self.namespace, self.name))(process)


@family(
    "A controller that has looked after two namespaces is let see all of them, as another team wants it too. It reads"
    " all that is there into its memory, is killed at its limit before it is through, and starts again: nothing is"
    " looked after, not even what was before.",
    joined=92,
)
async def let_see_everything(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have left WATCH_NAMESPACE empty."""
    namespace, name, tag, key, everywhere, about = lab.rng.choice(WATCHERS)
    first, second, third = lab.rng.sample(("shop", "payments", "search", "media"), 3)
    by, (limit, need) = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.choice(((256, 410), (384, 620), (512, 790)))
    few, watcher = f"{first},{second}", _Watcher(namespace, name, key, everywhere, about, limit, need)
    rules = ("", "configmaps,pods,secrets", "get,list,watch,create,patch"), ("coordination.k8s.io", "leases", "*")
    await lab.apply(objects.account(namespace, name))
    await lab.apply(objects.cluster_role(name, *rules))
    for home in (first, second, namespace):
        await lab.apply(objects.binding(name, name, namespace, name, within=home))
    like = App("", program=watcher.run, check=watcher.check, serves=False)
    env = [{"name": key, "value": few}, {"name": "LOG_LEVEL", "value": "INFO"}]
    await lab.app(namespace, name, like=like, account=name, replicas=1, tag=tag, memory=f"{limit}Mi", env=env)
    await rolled(lab, namespace, name, tag)
    told = {"namespace": namespace, "service": name}
    lab.measure("container_memory_working_set_bytes", watcher.in_memory, **told, container=name)
    counted = lab.adding_up(lambda: 1.5 if watcher.stale() < 6 else 0.0)
    lab.measure("controller_runtime_reconcile_total", counted, "counter", **told, result="success")
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"{namespace}/{name} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    summary = f"{namespace}/{name} has synced nothing for a while"
    lab.alert("ControllerNotSyncing", lambda: watcher.stale() > STALE_SECONDS, summary, 3, **told)
    await lab.until(lambda: lab.is_well() and watcher.stale() < 5)
    lab.reserve("shop", "catalog")

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", third, "onboarding", {"data": {"step": "3"}})

    await lab.apply(objects.config_map(third, "onboarding", step="1"))
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), "shop", "catalog", "1.6.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", third, "onboarding", {"data": {"step": "2"}})
    await lab.pause(lab.rng.uniform(4, 9))
    why = "of the same upgrade: it lets the controller read everywhere"
    await lab.also(why, by, "create", "ClusterRoleBinding", "", name, objects.binding(name, name, namespace, name))
    await lab.roll(by, namespace, name, tag, culprit=True, env=[{"name": key, "value": everywhere}])
    lab.start(afterwards())


# -- all of it anew

BROKERS = (
    ("RabbitmqCluster", "rabbitmq.com", "rabbitmq-cluster-operator", "2.15.0", "2.16.1", "4.1.4", "bus"),
    ("Postgresql", "acid.zalan.do", "postgres-operator", "1.13.0", "1.14.0", "17.5", "db"),
    ("Kafka", "kafka.strimzi.io", "strimzi-cluster-operator", "0.46.1", "0.47.0", "4.0.0", "kafka"),
)


@dataclass
class _Instances:
    """What an operator has made for each object of its kind, as its version renders it."""

    lab: Lab
    kind: Kind
    newer: str
    starts: float

    def rendered(self, one: Json, tag: str) -> Json:
        """A later version says to the processes where they are, which makes another template."""
        meta, spec = one["metadata"], one["spec"]
        image = f"registry.corp.example/{meta['namespace']}/{meta['name']}:{spec['version']}"
        waits = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 120}
        env = [{"name": "CLUSTER_NAME", "value": meta["name"]}]
        if tag == self.newer:
            env.append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
        made = objects.deployment(
            meta["namespace"],
            meta["name"],
            image,
            kind="StatefulSet",
            replicas=spec["replicas"],
            startup=waits,
            env=env,
        )
        owner = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "name": meta["name"]}
        made["metadata"]["ownerReferences"] = [{**owner, "uid": meta["uid"], "controller": True}]
        return made

    async def reconcile(self, process: Process) -> None:
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            wanted, (home, name) = (
                self.rendered(one, process.tag),
                (one["metadata"]["namespace"], one["metadata"]["name"]),
            )
            found = await process.api.call("GET", path("StatefulSet", home, name))
            if found.status == 404:
                await process.api.call("POST", path("StatefulSet", home), wanted)
            elif found.ok and _environment(found.body) != _environment(wanted):
                body = {"spec": {"template": wanted["spec"]["template"]}}
                await process.api.call("PATCH", path("StatefulSet", home, name), body)

    async def add(self, namespace: str, name: str, version: str, replicas: int) -> None:
        """Raises RefusedError."""
        image = f"registry.corp.example/{namespace}/{name}"
        self.lab.apps[image] = App(image, serves=False, start_seconds=self.starts)
        meta, spec = {"namespace": namespace, "name": name}, {"version": version, "replicas": replicas}
        made = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        await self.lab.apply(made)
        await self.lab.apply(objects.service(namespace, name))


def _environment(made: Json) -> set[str]:
    """The names of what is set."""
    [container] = made["spec"]["template"]["spec"]["containers"]
    return {one["name"] for one in container.get("env", ())}


@family(
    "The operator of all brokers or databases is upgraded by day. Its new version renders the pods of each somewhat"
    " otherwise, and so restarts all of them at the same time: those of one member are away until they have started.",
    joined=92,
)
async def brokers_restarted_together(lab: Lab) -> AsyncIterator[None]:
    """As the notes on the upgrade had said, in their last paragraph."""
    kind_name, group, operator, old, new, version, ending = lab.rng.choice(BROKERS)
    by, other = lab.rng.choice(("ci", "flux", *TEAMS)), lab.rng.choice(("argocd", "ci"))
    callers = lab.rng.sample(
        (("shop", "parcels"), ("payments", "payouts"), ("search", "alerts"), ("media", "clips")), 3
    )
    kind = await lab.custom(kind_name, group, ANY)
    await lab.served(kind)
    instances = _Instances(lab, kind, new, lab.rng.uniform(28, 38))
    rules = (group, kind.plural, "get,list,watch"), ("apps", "statefulsets", "get,list,watch,create,patch")
    program = both(informer(kind.path()), every(1.5, instances.reconcile), leading("platform", operator))
    lease = ("coordination.k8s.io", "leases", "*")
    await lab.controller("platform", operator, program, *rules, lease, replicas=1, tag=old)
    recreate = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    await lab.edit("admin", "Deployment", "platform", operator, recreate)
    await rolled(lab, "platform", operator, old)
    for turn, (namespace, caller) in enumerate(callers):
        await instances.add(namespace, f"{caller}-{ending}", version, 3 if turn == 2 else 1)
    for namespace, caller in callers:
        name = f"{caller}-{ending}"
        await lab.until(partial(backends, lab.world, namespace, name))
        like = App("", upstreams=((namespace, name),), asked=lambda: 16.0)
        await lab.app(namespace, caller, like=like, replicas=2, tag="5.4.1")
        await lab.until(partial(backends, lab.world, namespace, caller))
        await publish(lab, namespace, caller)
        lab.alert_ingress_errors(namespace, namespace)
        lab.alert_lacking(namespace, caller, seconds=8)
        lab.alert_lacking(namespace, name, seconds=14)
    (namespace, caller), *_ = callers
    await lab.until(lab.is_well, seconds=180)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "900"}})

    yield
    await lab.roll(other, namespace, caller, "5.4.2")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "payments", "ledger", {"data": {"TIMEOUT_MS": "850"}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll(by, "platform", operator, new, culprit=True)
    lab.start(afterwards())
