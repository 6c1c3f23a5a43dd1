"""At customers' cost: a version that writes far more to its node's disk, and a load test that goes to production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

# -- a disk

GIB = 1024.0
FULL_BELOW, FREE = 10 * GIB, (22.0, 36.0)
"""MiB that have to be free on a node's disk, and GiB that are free at first, at least and at most."""
KEPT = (
    ("limit", "/tmp/render", 2 * GIB, 110.0),
    ("volume", "/var/cache/work", 1 * GIB, 55.0),
    ("node", "/var/log/app", 0.0, 900.0),
)
"""By what a pod is evicted, where it writes, what it may have there, and MiB that it writes in a second now."""
STANDS, ASKED, EVICTED = 9.0, 27.0, 2


@dataclass
class _Disks:
    """What an app's pods write, the new version far more of it, which nobody deletes."""

    lab: Lab
    namespace: str
    name: str
    newer: str
    a_second: float
    is_limited: bool
    free: dict[str, float] = field(default_factory=dict)

    def left(self, node: str) -> float:
        """MiB; what an evicted pod had is gone with it."""
        found = pods(self.lab.world, self.namespace, self.name)
        here = [one for one in found if one["spec"].get("nodeName") == node]
        running = (uid_of(one) for one in here if one.get("status", {}).get("phase") == "Running")
        return self.free[node] - sum(self.lab.outside.written.get(uid, 0.0) for uid in running)

    async def run(self, like: App) -> None:
        written, rng, outside = self.lab.outside.written, self.lab.kubelets.rng, self.lab.outside
        while True:
            await asyncio.sleep(1)
            for one in self.lab.kubelets.running():
                is_new = one.app is like and one.container.tag == self.newer
                if is_new and one.container.seconds >= self.lab.lag:
                    uid = uid_of(one.container.pod)
                    written[uid] = written.get(uid, 0.0) + self.a_second * rng.uniform(0.6, 1.4)
            for node in NODES if not self.is_limited else ():
                (outside.full_disks.add if self.left(node) < FULL_BELOW else outside.full_disks.discard)(node)

    def evicted(self) -> int:
        there = pods(self.lab.world, self.namespace, self.name)
        return sum(one.get("status", {}).get("reason") == "Evicted" for one in there)

    def short(self, _: Container) -> float:
        return max(0.0, 1 - STANDS * len(backends(self.lab.world, self.namespace, self.name)) / ASKED)

    def presses(self) -> bool:
        """Whether a node says that its disk has no room."""
        told = (one for node in self.lab.world["Node"].values() for one in node["status"].get("conditions", ()))
        return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in told)


@family(
    "A new version of an app writes far more to its disk: whole requests into a file of its own, or what it needs once"
    " and never deletes. After a while its pods are evicted, one after another, and those in their place as well.",
    joined=94,
)
async def fills_its_disk(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose list of pods is one of Evicted."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "pdf-maker", "documents-page", "pdf-mails"),
            ("payments", "report-builder", "builder-page", "report-index"),
            ("media", "preview-maker", "previews-page", "preview-index"),
            ("search", "snippet-maker", "snippets-page", "snippet-index"),
        )
    )
    (kept, folder, most, a_second), minor = lab.rng.choice(KEPT), lab.rng.randrange(2, 40)
    by, old, new = lab.rng.choice(("ci", "argocd", "flux")), f"6.{minor}.3", f"6.{minor + 1}.0"
    disks = _Disks(lab, namespace, name, new, a_second, is_limited=kept != "node")
    disks.free = {node: lab.rng.uniform(*FREE) * GIB for node in NODES}
    like = App("", asked=lambda: ASKED, failing=disks.short, fails_with=lambda _: "503", capacity=60)
    size = {"sizeLimit": f"{most / GIB:.0f}Gi"} if kept == "volume" else {}
    volumes: list[Json] = [{"name": "config", "configMap": {"name": name}}, {"name": "work", "emptyDir": size}]
    resources: Json = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    room = {"ephemeral-storage": "95Gi"}
    for node in NODES:  # whoever has a limit on its disk asks for as much of it
        told = {"status": {"capacity": room, "allocatable": room}}
        await lab.who["admin"].must("PATCH", f"{path('Node', None, node)}/status", told)
    if kept == "limit":
        resources["limits"]["ephemeral-storage"] = f"{most / GIB:.0f}Gi"
        volumes = volumes[:1]
    mounts = [{"name": "config", "mountPath": "/etc/config"}, {"name": "work", "mountPath": folder}][: len(volumes)]
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    await lab.app(namespace, name, like=like, replicas=4, tag=old, config=name, volumes=volumes)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    await lab.roll("admin", namespace, name, old, volumeMounts=mounts, resources=resources)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.3.3", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.3.3")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await set_before(lab, namespace, front, name)
    lab.start(disks.run(like))
    summary = f"{EVICTED} pods of {namespace}/{name} or more were evicted"
    many = lambda: disks.evicted() >= EVICTED  # noqa: E731
    lab.alert("KubePodEvicted", many, summary, 3, namespace=namespace, deployment=name, reason="Evicted")
    lab.alert("KubeNodePressure", disks.presses, "a node's disk has no room", 3, condition="DiskPressure")
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.3.4")
    await lab.pause(lab.rng.uniform(5, 11))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


# -- a load test

USUAL, EACH_STANDS, USERS_EACH, RAMP_SECONDS = 24.0, 17.0, 42.0, 10.0
"""Requests a second that come as a rule, that a pod stands, that a pod of the test sends, and for how long it takes
to be at that."""


@dataclass
class _Target:
    """An app that customers ask, and a test for as long as its pods run that are told to ask this one."""

    lab: Lab
    namespace: str
    name: str
    image: str
    """Of what sends the requests of a test."""
    host: str
    """By which it gets here."""
    began: dict[str, float] = field(default_factory=dict)
    """When each of its pods began to ask here, by uid."""
    _felt: Lately = field(init=False)

    def __post_init__(self) -> None:
        self._felt = Lately(self.lab, lambda: self.tested() > 0)

    def _is_aimed(self, container: Container) -> bool:
        told = [str(one.get("value", "")) for one in container.spec.get("env", ())] + list(container.config.values())
        return self.host in told

    def tested(self) -> float:
        """Requests a second, more and more of them at first."""
        there = [one.container for one in self.lab.kubelets.running() if one.app is self.lab.apps[self.image]]
        aimed, at = [uid_of(one.pod) for one in there if self._is_aimed(one)], now().timestamp()
        self.began = {uid: self.began.get(uid, at) for uid in aimed}
        return sum(USERS_EACH * min(1.0, (at - since) / RAMP_SECONDS) for since in self.began.values())

    def asked(self) -> float:
        return USUAL + self.tested()

    def over(self) -> float:
        return self.asked() / (EACH_STANDS * max(1, len(backends(self.lab.world, self.namespace, self.name))))

    def lost(self, _: Container) -> float:
        return min(0.9, max(0.0, 1 - 1 / self.over())) if self._felt() else 0.0

    def waits(self, _: Container) -> float:
        return min(2.5, max(0.0, 1.5 * (self.over() - 0.9))) if self._felt() else 0.0


def _test(namespace: str, name: str, image: str, target: str, pods_at_once: int) -> Json:
    """A Job of k6, as a pipeline or somebody makes it. Its image is the team's own, with the script."""
    made = objects.deployment(namespace, name, image, restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["name"], container["args"] = "k6", ["run", "/scripts/journey.js", "--vus=200", "--duration=30m"]
    container["env"] = [{"name": "TARGET", "value": target}]
    counts = {"parallelism": pods_at_once, "completions": pods_at_once, "backoffLimit": 0}
    spec = {"template": made["spec"]["template"], **counts}
    return {"kind": "Job", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


@family(
    "A load test, which goes to staging as a rule, is told to go to production: by an address in its settings, or as"
    " somebody starts it by hand. The app gets many times its requests, and customers are among those who are not"
    " served.",
    joined=94,
)
async def aimed_at_production(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had looked for the attackers for an hour."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "cart-api", "cart-page", "cart-mails"),
            ("payments", "checkout-flow", "flow-page", "flow-export"),
            ("media", "playback-api", "playback-page", "playback-stats"),
            ("search", "search-api", "search-view", "search-stats"),
        )
    )
    by, minor, by_settings = lab.rng.choice((*TEAMS, "ci")), lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    home, staging, many = "load-tests", f"{namespace}-staging", lab.rng.choice((3, 4))
    image = f"registry.corp.example/{home}/{name}-k6"
    hosts = {where: f"http://{name}.{where}.svc" for where in (namespace, staging)}
    target = _Target(lab, namespace, name, image, hosts[namespace])
    lab.apps[image] = App(image, serves=False, ends_after=None)
    for where in (home, staging):
        await lab.namespace(where)
    await stored(lab, namespace, f"{name}-db")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    like = App("", upstreams=((namespace, f"{name}-db"),), asked=target.asked, failing=target.lost, capacity=400)
    like.latency, like.fails_with = target.waits, lambda _: "503"
    await lab.app(namespace, name, like=like, replicas=3, tag=f"7.{minor}.0", config=name)
    there = f"registry.corp.example/{namespace}/{name}:7.{minor}.0"
    await lab.apply(objects.deployment(staging, name, there, replicas=1))
    await lab.apply(objects.service(staging, name))
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.1.1", config=other)
    await rolled(lab, namespace, name, f"7.{minor}.0")
    await rolled(lab, namespace, other, "1.1.1")
    runner = f"{name}-runner"
    if by_settings:
        await lab.apply(objects.config_map(home, runner, TARGET=hosts[staging], USERS="200"))
        made = objects.deployment(home, runner, f"{image}:1.4.0", replicas=many, config=runner)
        await lab.apply(made)
        await rolled(lab, home, runner, "1.4.0")
    await set_before(lab, namespace, front, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.1.2")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "30"}})
    await lab.pause(lab.rng.uniform(5, 11))
    if by_settings:
        await lab.culprit(by, "update", "ConfigMap", home, runner, {"data": {"TARGET": hosts[namespace]}})
    else:
        job = _test(home, f"{name}-load-{lab.rng.randrange(100, 999)}", f"{image}:1.4.0", hosts[namespace], many)
        await lab.culprit(by, "create", "Job", home, job["metadata"]["name"], job)
    lab.start(afterwards())
