"""What is harmless one by one and comes together: members that are away, proxies that start anew, runs that waited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem
from tests.lab.company import READ
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import images, uid_of
from tests.lab.network import backends
from tests.lab.programs import informer
from tests.lab.scenario import family
from tests.lab.webhook import BrokenError, Review, Webhook, configuration

MEMBERS, QUORUM, REPLAY_SECONDS = 3, 2, 15.0
"""Of a store, how many of them have to agree, and until a process has read its log."""
NO_QUORUM = "probe failed: HTTP probe failed with statuscode: 503"


def _behind(lab: Lab, namespace: str, name: str) -> list[Json]:
    """The pods that answer a webhook. Raises ConnectionError where there is none."""
    if not (there := backends(lab.world, namespace, name)):
        raise ConnectionError("no pod is behind it")
    return there


async def _reviewed(lab: Lab, namespace: str, name: str, review: Review, *, only: str = "") -> Json:
    """The configuration of a webhook that the pods of an app answer."""
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 2)
    webhook = Webhook(review, service=(namespace, name))
    await webhook.start()
    lab.servers.append(webhook)
    return configuration(name, webhook, only=only)


@dataclass
class _Members:
    """Those of a store: who has read its log and can read its disk takes part."""

    lab: Lab
    app: App
    broken: set[str] = field(default_factory=set)
    """Names of pods whose disk fails."""

    def have_quorum(self) -> bool:
        there = [one.container for one in self.lab.kubelets.running() if one.app is self.app]
        up = (one.seconds >= REPLAY_SECONDS and one.pod["metadata"]["name"] not in self.broken for one in there)
        return sum(up) >= QUORUM

    def check(self, container: Container) -> Problem | None:
        if container.pod["metadata"]["name"] in self.broken:
            return Problem("crash", "panic: read /var/lib/store/member/wal: input/output error")
        is_through = container.seconds >= REPLAY_SECONDS
        return Problem("unready", NO_QUORUM) if is_through and not self.have_quorum() else None


@family(
    "All members of a store get more memory, as was planned. One of the three has been down for a while, as its disk"
    " fails, and nobody is told, as the two others are enough. The members are made anew from the last to the first,"
    " and nobody asks how the first one is: with the next one away there is no quorum, and whoever needs the store"
    " fails.",
    joined=46,
)
async def one_already_down(lab: Lab) -> AsyncIterator[None]:
    """As those who keep etcd for many clusters propose to order such updates by health (gardener.cloud, DEP-07)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "reservations", "booking-page"),
            ("media", "playout-plan", "schedule-page"),
            ("payments", "limits", "limits-page"),
        )
    )
    store, by = f"{name}-store", lab.rng.choice(("carol", "argocd", "flux"))
    image = f"registry.corp.example/{namespace}/{store}"
    members = _Members(lab, App(image, serves=False, start_seconds=REPLAY_SECONDS))
    members.app.check = members.check
    lab.apps[image] = members.app
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": store}},
    }
    made = objects.deployment(
        namespace, store, f"{image}:3.5.21", kind="StatefulSet", replicas=MEMBERS, topologySpreadConstraints=[apart]
    )
    made["spec"] |= {"podManagementPolicy": "Parallel", "serviceName": store}
    await lab.apply(made)
    await lab.apply(objects.service(namespace, store))
    await lab.until(lambda: len(backends(lab.world, namespace, store)) == MEMBERS)
    await lab.app(namespace, name, like=App("", upstreams=((namespace, store),)), replicas=3, tag="2.4.1")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.17.0")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) >= 2 for one in (name, front)))
    await publish(lab, namespace, front)
    lost = lambda: not members.have_quorum()  # noqa: E731
    lab.alert("StoreHasNoLeader", lost, f"{namespace}/{store} has no leader", namespace=namespace, service=store)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 5))
    members.broken.add(f"{store}-0")
    await lab.pause(lab.rng.uniform(11, 18))
    [container] = lab.world["StatefulSet"][namespace, store]["spec"]["template"]["spec"]["containers"]
    resources = {**container["resources"], "limits": {"memory": "512Mi"}}
    body = {"spec": {"template": {"spec": {"containers": [{**container, "resources": resources}]}}}}
    await lab.culprit(by, "update", "StatefulSet", namespace, store, body)


MESH, PILOT, INJECTOR = "istio-system", "istio-pilot", "istio-sidecar-injector"
PROXY = "registry.corp.example/istio/proxyv2"
INJECTED = "istio-injection"
OF_OLD, ANEW = "1.2.2", "1.2.5"
ANEW_SECONDS = (18.0, 24.0)
"""Until the new process of a proxy listens, at least and at most."""


@dataclass
class _Proxies:
    """Those of a mesh: each has a stream to one server, and starts its process anew where that is another version."""

    lab: Lab
    streams: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of each pod's, by uid, to which server, and of which version."""
    until: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(0.5)

    def _look(self) -> None:
        servers = {uid_of(pod): images(pod)[0].rsplit(":", 1)[1] for pod in backends(self.lab.world, MESH, PILOT)}
        for one in self.lab.kubelets.running():
            pod = one.container.pod
            if not any(image.startswith(f"{PROXY}:") for image in images(pod)):
                continue
            server, version = self.streams.get(uid_of(pod), ("", ""))
            if server in servers or not servers:
                continue
            found = self.lab.kubelets.rng.choice(sorted(servers))
            if version and servers[found] != version:
                self.until[uid_of(pod)] = now().timestamp() + self.lab.kubelets.rng.uniform(*ANEW_SECONDS)
            self.streams[uid_of(pod)] = found, servers[found]

    def check(self, container: Container) -> Problem | None:
        if now().timestamp() >= self.until.get(uid_of(container.pod), 0.0):
            return None
        return Problem("unready", "probe failed: dial tcp :15020: connect: connection refused")

    async def inject(self, request: Json) -> list[Json] | None:
        there = _behind(self.lab, MESH, INJECTOR)
        if any(one["image"].startswith(f"{PROXY}:") for one in request["object"]["spec"]["containers"]):
            return None
        resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
        tag = images(there[0])[0].rsplit(":", 1)[1]
        one = {"name": "istio-proxy", "image": f"{PROXY}:{tag}", "resources": resources}
        return [{"op": "add", "path": "/spec/containers/-", "value": one}]


@family(
    "The control plane of a mesh gets a newer version. Each proxy that connects to it starts its own process anew for"
    " that, which takes a while until it listens, and there is one server that all are connected to: every app of the"
    " mesh is away at the same time.",
    joined=46,
)
async def proxies_anew(lab: Lab) -> AsyncIterator[None]:
    """As a user of a mesh tells of an upgrade to the next patch (istio/istio 16873, 2019)."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "offers", "offers-page", ("media", "gallery-page")),
            ("search", "facets", "results-page", ("payments", "receipts-page")),
            ("media", "chapters", "reader-page", ("shop", "wishlist-page")),
        )
    )
    by, team, minor = (
        lab.rng.choice(("ci", "alice", "flux")),
        lab.rng.choice(("bob", "argocd")),
        lab.rng.randrange(3, 40),
    )
    proxies = _Proxies(lab)
    lab.apps[PROXY] = App(PROXY, serves=False, check=proxies.check)
    await lab.namespace(MESH)
    await lab.controller(MESH, PILOT, informer(path("Service")), READ, replicas=1, tag=OF_OLD)
    await lab.app(MESH, INJECTOR, like=App("", serves=False), tag=OF_OLD)
    await lab.until(lambda: backends(lab.world, MESH, PILOT))
    made = await _reviewed(lab, MESH, INJECTOR, proxies.inject, only=INJECTED)
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration"})
    lab.start(proxies.run())
    for one in (namespace, other[0]):
        await lab.edit("admin", "Namespace", "", one, {"metadata": {"labels": {INJECTED: "enabled"}}})
    await lab.app(namespace, name, replicas=4, tag="3.2.0")
    like = App("", upstreams=((namespace, name),), asked=lambda: 24.0)
    await lab.app(namespace, front, like=like, replicas=3, tag=f"1.{minor}.0")
    await lab.app(*other, like=App("", asked=lambda: 17.0), replicas=3, tag="2.8.3")
    places = ((namespace, name), (namespace, front), other)
    await lab.until(lambda: all(len(backends(lab.world, *place)) >= 3 for place in places))
    for place in (places[1], other):
        await publish(lab, *place)
        lab.alert_ingress_errors(place[0], place[0])
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, namespace, front, f"1.{minor + 1}.0")
    await rolled(lab, namespace, front, f"1.{minor + 1}.0")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, MESH, PILOT, ANEW, culprit=True)
    await lab.roll(by, MESH, INJECTOR, ANEW, culprit=True)


TENANTS, RUN_SECONDS = 10, 45.0
USUAL_QUERIES, EACH_RUN, DATABASE_STANDS = 100.0, 9.0, 250.0
"""Of a database: what its app asks a second, what each run asks beside that, and what it stands in all."""
REVIEWER_OLD, REVIEWER_NEW = "2.3.1", "2.4.0"


@family(
    "A new version of a policy webhook breaks on the pods of Jobs: none is made, and each minute there are further Jobs"
    " that wait, which nobody sees. After a while somebody puts the old version back, and all that has waited begins at"
    " once: the database that the runs read does not stand them.",
    joined=46,
)
async def held_back_runs(lab: Lab) -> AsyncIterator[None]:
    """As told of hundreds of pods by a webhook that misbehaved (kubernetes/kubernetes 93783, 2020)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "stock-levels", "stock-page"),
            ("payments", "balances", "balance-page"),
            ("media", "charts", "charts-page"),
        )
    )
    home, run = "platform", lab.rng.choice(("tenant-export", "tenant-totals", "tenant-audit"))
    reviewer, by, other = "pod-policy", lab.rng.choice(("argocd", "flux", "ci")), lab.rng.choice(("alice", "bob"))
    database, image = f"{name}-db", f"registry.corp.example/{home}/{run}"

    def asked() -> float:
        """By the app and by all runs."""
        running = [pod for pod in pods(lab.world, home, run) if pod.get("status", {}).get("phase") == "Running"]
        return USUAL_QUERIES + EACH_RUN * len(running)

    async def review(request: Json) -> str | None:
        there = _behind(lab, home, reviewer)
        owners = request["object"]["metadata"].get("ownerReferences", ())
        tag = images(lab.kubelets.rng.choice(there))[0].rsplit(":", 1)[1]
        if tag == REVIEWER_NEW and any(one["kind"] == "Job" for one in owners):
            raise BrokenError("panic: invalid memory address or nil pointer dereference [recovered]")
        return None

    await lab.app(home, reviewer, like=App("", serves=False), tag=REVIEWER_OLD)
    await lab.apply(await _reviewed(lab, home, reviewer, review))
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.9")
    late = lambda _: max(0.0, 1 - DATABASE_STANDS / asked())  # noqa: E731
    like = App("", upstreams=((namespace, database),), failing=late, asked=lambda: 30.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="4.0.6")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.3.2")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (database, name, front)))
    lab.apps[image] = App(image, ends_after=RUN_SECONDS)
    for number in range(TENANTS):
        env = [
            {"name": "TENANT", "value": f"{number:02}"},
            {"name": "DATABASE_URL", "value": f"postgres://reports@{database}.{namespace}:5432/{database}"},
        ]
        template = objects.deployment(home, run, f"{image}:1.9.0", env=env, restartPolicy="Never")["spec"]["template"]
        del template["spec"]["containers"][0]["readinessProbe"]
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template, "backoffLimit": 3}}}
        meta = {"namespace": home, "name": f"{run}-{number:02}"}
        await lab.apply({"kind": "CronJob", "metadata": meta, "spec": spec})
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    queried = lab.adding_up(asked)
    lab.measure("pg_stat_database_xact_total", queried, "counter", namespace=namespace, service=database)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause((44 - now().timestamp()) % 60)
    await lab.roll(by, home, reviewer, REVIEWER_NEW, culprit=True)
    await lab.pause(60)
    await lab.pause((34 - now().timestamp()) % 60)
    [container] = lab.world["Deployment"][home, reviewer]["spec"]["template"]["spec"]["containers"]
    put_back = {**container, "image": f"{container['image'].rsplit(':', 1)[0]}:{REVIEWER_OLD}"}
    body = {"spec": {"template": {"spec": {"containers": [put_back]}}}}
    why = "it let all that had waited begin at once"
    await lab.also(why, other, "update", "Deployment", home, reviewer, body)
