"""Memory that is used up: that of nodes, by what watches them, and that which the cluster's DNS may have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Key, now
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import DNS, backends
from tests.lab.scenario import family

GIB = 1024.0
"""In MiB, as all of what containers have in memory is told here."""


@dataclass
class _Beside:
    """What an agent and an index have in memory that run on the same nodes."""

    lab: Lab
    sensor: App
    index: App
    new: str
    """The version of the agent that keeps more."""
    held: float
    wanted: float

    def has(self, app: App, container: Container) -> float:
        """An index is read at the start; the new agent gets more with what it sees."""
        if app is self.index:
            return self.held * min(1.0, container.seconds / 5)
        grown = min(1.0, max(0.0, container.seconds - self.lab.lag) / 12) if container.tag == self.new else 0.0
        return 0.3 * GIB + grown * self.wanted

    async def fill(self) -> None:
        while True:
            for one in self.lab.kubelets.running():
                if one.app in (self.sensor, self.index):
                    self.lab.outside.taken[uid_of(one.container.pod)] = self.has(one.app, one.container)
            await asyncio.sleep(0.5)

    def most(self, app: App) -> float | None:
        """Bytes of the one of its containers that has most."""
        there = [one.container for one in self.lab.kubelets.running() if one.app is app]
        return max((self.has(app, one) * 2**20 for one in there), default=None)


async def _install(lab: Lab, app: App, place: Key, tag: str, resources: Json, **more: Any) -> Json:
    """With resources of its own; returns its container."""
    lab.apps[app.image] = app
    made = objects.deployment(*place, f"{app.image}:{tag}", **more)
    [container] = made["spec"]["template"]["spec"]["containers"]
    container["resources"] = resources
    await lab.apply(made)
    await lab.apply(objects.service(*place))
    return dict(container)


@family(
    "The agent that gathers on all nodes what happens there is rolled out in a version that keeps far more of it in"
    " memory. It has no limit and is never the first to be ended: on nodes with an app that needs much memory, too,"
    " the kernel ends that app, again and again.",
    joined=80,
)
async def closer_look(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose apps were OOM-killed far below their limits."""
    agent, (namespace, name) = lab.rng.choice(
        (
            (("security", "runtime-sensor"), ("search", "vectors")),
            (("security", "process-audit"), ("payments", "risk-graph")),
            (("logging", "log-collector"), ("media", "similar-frames")),
        )
    )
    by, minor = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(11, 40)
    old, new = f"0.{minor}.2", f"0.{minor + 1}.0"
    sensor = App(f"registry.corp.example/{agent[0]}/{agent[1]}", serves=False)
    index = App(f"registry.corp.example/{namespace}/{name}", asked=lambda: 40.0)
    memory = _Beside(lab, sensor, index, new, lab.rng.uniform(44, 46) * GIB, lab.rng.uniform(14, 18) * GIB)
    lab.outside.thrashing_seconds = 5.0
    await lab.namespace(agent[0])
    asks = {"requests": {"cpu": "100m", "memory": "300Mi"}}
    critical = {"kind": "DaemonSet", "priorityClassName": "system-node-critical"}
    there = await _install(lab, sensor, agent, old, asks, **critical)
    needs = {"requests": {"cpu": "500m", "memory": "40Gi"}, "limits": {"memory": "52Gi"}}
    await _install(lab, index, (namespace, name), "6.4.0", needs, replicas=4)
    await rolled(lab, namespace, name, "6.4.0")
    await rolled(lab, *agent, old)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await lab.app(namespace, f"{name}-api", like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.0.0")
    await lab.until(lambda: backends(lab.world, namespace, f"{name}-api"))
    await publish(lab, namespace, f"{name}-api")
    for (where, what), app in ((agent, sensor), ((namespace, name), index)):
        told = {"namespace": where, "service": what, "container": what}
        lab.measure("container_memory_working_set_bytes", partial(memory.most, app), **told)
    killed = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    summary = f"containers of {namespace}/{name} were OOM killed several times within an hour"
    lab.alert("KubeContainerOOMKilled", killed, summary, namespace=namespace, container=name)
    lab.alert_lacking(namespace, name, seconds=14)
    lab.start(memory.fill())
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, f"{name}-api", "2.0.1")
    await lab.pause(lab.rng.uniform(3, 8))
    body = {"spec": {"template": {"spec": {"containers": [{**there, "image": f"{sensor.image}:{new}"}]}}}}
    await lab.culprit(by, "update", "DaemonSet", *agent, body)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(6, 10))
        await lab.edit("bob", "ConfigMap", "shop", "cart", {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}})

    lab.start(afterwards())


BASE_MIB, LIMIT = 40.0, "170Mi"
"""What a server of names has after its start, and may have in all, as it is installed."""
MIB_EACH = 0.05
"""What it has for each query a second: those that wait for an answer, and its cache."""


@family(
    "The servers of the cluster's names have used a third of their memory for weeks, and get less: a lower limit, or"
    " one of them in place of three. In the evening each of them gets twice the queries, is ended for its memory, and"
    " apps do not find each other.",
    joined=80,
)
async def seemed_oversized(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had CoreDNS OOM-killed when it was needed most."""
    namespace, name, behind = lab.rng.choice(
        (
            ("shop", "checkout-form", "delivery-dates"),
            ("media", "player", "play-rights"),
            ("search", "answers", "snippets"),
        )
    )
    by, is_limit = lab.rng.choice(("alice", "carol", "flux")), lab.rng.random() < 0.5
    rate, peak, evening = lab.rng.uniform(1400, 1600), lab.rng.uniform(2.2, 2.5), [0.0]
    dns = lab.apps["registry.corp.example/{}/{}".format(*DNS)]

    def queries() -> float:
        """A second, of all; more of them come within some minutes."""
        since = now().timestamp() - evening[0] if evening[0] else 0.0
        return rate * (1 + (peak - 1) * min(1.0, max(0.0, since) / 12))

    def memory(container: Container) -> float:
        share = queries() / max(1, len(backends(lab.world, *DNS)))
        return BASE_MIB + MIB_EACH * share * min(1.0, container.seconds / 4)

    def ended(container: Container) -> Problem | None:
        limit, had = container.spec["resources"]["limits"]["memory"], memory(container)
        return Problem("oom", f"has {had:.0f}Mi, may have {limit}") if had > mebibytes(limit) else None

    def most() -> float | None:
        there = [one.container for one in lab.kubelets.running() if one.app is dns]
        return max((memory(one) * 2**20 for one in there), default=None)

    def sized(limit: str) -> Json:
        there = lab.world["Deployment"][DNS]["spec"]["template"]["spec"]["containers"][0]
        one = {**there, "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": limit}}}
        return {"spec": {"template": {"spec": {"containers": [one]}}}}

    dns.memory_mi = int(BASE_MIB)
    await lab.edit("admin", "Deployment", *DNS, {"spec": {"replicas": 3, **sized(LIMIT)["spec"]}})
    await lab.until(lambda: len(backends(lab.world, *DNS)) == 3)
    dns.check = ended
    await lab.app(namespace, behind, replicas=2, tag="1.7.0")
    await lab.until(lambda: backends(lab.world, namespace, behind))
    await lab.app(namespace, name, like=App("", upstreams=((namespace, behind),)), replicas=3, tag="4.0.2")
    await rolled(lab, namespace, name, "4.0.2")
    await publish(lab, namespace, name)
    told = {"namespace": DNS[0], "service": DNS[1]}
    lab.measure("coredns_dns_requests_total", lab.adding_up(queries), "counter", **told)
    lab.measure("container_memory_working_set_bytes", most, **told, container=DNS[1])
    summary = f"containers of {DNS[0]}/{DNS[1]} are restarted again and again"
    crashes = lambda: restarts(lab.world, *DNS) > 2  # noqa: E731
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=DNS[0], deployment=DNS[1])
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, behind, "1.7.1")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", "Deployment", *DNS, sized("84Mi") if is_limit else {"spec": {"replicas": 1}})

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 8))
        await lab.roll("ci", namespace, name, "4.0.3")

    lab.start(afterwards())
    evening[0] = now().timestamp() + lab.rng.uniform(8, 14)
