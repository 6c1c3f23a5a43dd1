"""What decides at its start how a pod will be: whether its image is pulled, and what its first containers wait for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from math import inf

from tests.lab import objects
from tests.lab.alerts import pods, restarts, stuck
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

SETTINGS = "settings.yaml"
SCHEMA = re.compile(r"^schema: (\d+)$", re.MULTILINE)


@dataclass
class _Builds:
    """All of them have the same tag: which one a container has is the one that its node has, or the newest."""

    newest: int
    on: dict[str, int] = field(default_factory=dict)
    """What each node has."""
    runs: dict[str, tuple[float, int]] = field(default_factory=dict)
    """How old a pod's container was as it was last looked at, and its build, by uid."""

    def keep_newest(self) -> None:
        """Each node has had one of its pods since that was pushed."""
        self.on = dict.fromkeys(NODES, self.newest)

    def _of(self, container: Container) -> int:
        uid, node = uid_of(container.pod), container.pod["spec"]["nodeName"]
        age, build = self.runs.get(uid, (inf, 0))
        if container.seconds < age:
            if container.spec.get("imagePullPolicy") == "Always":
                self.on[node] = self.newest
            build = self.on.setdefault(node, self.newest)
        self.runs[uid] = container.seconds, build
        return build

    def check(self, container: Container) -> Problem | None:
        """It reads its settings at its start, which are of a build's own schema or of an older one."""
        build, found = self._of(container), SCHEMA.search(container.config.get(SETTINGS, ""))
        if found is None or int(found[1]) <= build:
            return None
        return Problem("crash", f"{SETTINGS}: schema {found[1]} is unknown, the latest one is {build}")


def _settings(number: int) -> str:
    return f"schema: {number}\nlocale: en\npage-size: {20 + number % 5}\n"


async def _release(lab: Lab, builds: _Builds, by: str, namespace: str, name: str) -> None:
    """As each week: a pipeline pushes a build, and has all pods made anew with the settings of that one."""
    [volume] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["volumes"]
    data = dict(lab.world["ConfigMap"][namespace, volume["configMap"]["name"]]["data"])
    builds.newest += 1
    data[SETTINGS] = _settings(builds.newest)
    await lab.apply(objects.config_map(namespace, f"{name}-{builds.newest}", **data), by)
    volumes = [{"name": volume["name"], "configMap": {"name": f"{name}-{builds.newest}"}}]
    await lab.edit(by, "Deployment", namespace, name, {"spec": {"template": {"spec": {"volumes": volumes}}}})


async def _through(lab: Lab, namespace: str, name: str) -> None:
    await lab.pause(2)
    await lab.until(lambda: not stuck(lab.world, namespace, name))


@family(
    "All builds of an app have the same tag, and each start of it asks the registry which one that is. So that a"
    " registry that is down keeps nothing from starting, somebody has images pulled only where they are not there yet:"
    " nothing changes, until the next weekly release, whose pods have the last build and the settings of the new one.",
    joined=50,
)
async def kept_build(lab: Lab) -> AsyncIterator[None]:
    """As an issue of a team tells of backups that did not start without a registry (mozmeao/infra 569), and of tags."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "gift-cards", "gift-page"),
            ("media", "chapters", "player-page"),
            ("search", "spellings", "search-page"),
        )
    )
    tag, by, team = (
        lab.rng.choice(("stable", "production", "main")),
        lab.rng.choice(("alice", "bob", "carol", "argocd")),
        "ci",
    )
    builds = _Builds(lab.rng.randrange(31, 80))
    store = f"{name}-db"
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.6")
    first = f"{name}-{builds.newest}"
    await lab.apply(objects.config_map(namespace, first, **{SETTINGS: _settings(builds.newest)}))
    like = App("", upstreams=((namespace, store),), check=builds.check)
    await lab.app(namespace, name, like=like, replicas=4, tag=tag, config=first)
    await lab.roll("admin", namespace, name, tag, imagePullPolicy="Always")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.9.2")
    await _through(lab, namespace, name)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    is_stuck = lambda: stuck(lab.world, namespace, name)  # noqa: E731
    labels = {"namespace": namespace, "deployment": name}
    summary = f"the rollout of {namespace}/{name} is not progressing"
    lab.alert("KubeDeploymentRolloutStuck", is_stuck, summary, 20, **labels)
    restarted = lab.rate(lambda: restarts(lab.world, namespace, name), 0.12, seconds=15)
    lab.alert("KubePodCrashLooping", restarted, f"containers of {namespace}/{name} are restarting", 4, **labels)
    lab.alert_lacking(namespace, name, seconds=15)
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.pause(3)
        await _release(lab, builds, team, namespace, name)
        await _through(lab, namespace, name)
        await lab.pause(3)
    builds.keep_newest()
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, tag, culprit=True, imagePullPolicy="IfNotPresent")
    await _through(lab, namespace, name)
    await lab.pause(lab.rng.uniform(6, 14))
    await _release(lab, builds, team, namespace, name)


def _waiting_for(host: str) -> Json:
    """As the documentation of Kubernetes shows it."""
    command = ["sh", "-c", f"until nslookup {host}; do echo waiting for {host}; sleep 2; done"]
    image = "registry.corp.example/platform/busybox:1.36.1"
    return {"name": f"wait-for-{host.split('.', maxsplit=1)[0]}", "image": image, "command": command}


@family(
    "A database has had a new name for a while, and all who call it have been moved there. Somebody deletes the Service"
    " of the old name, which nobody asks any more but an init container that waits for that name: as a node is emptied"
    " for its updates, pods from there do not get past it.",
    joined=50,
)
async def waited_name(lab: Lab) -> AsyncIterator[None]:
    """As a collection of faults to be found tells of services that were renamed (SREGym/SREGym 762)."""
    namespace, name, old, new = lab.rng.choice(
        (
            ("shop", "returns", "orders-db", "orders-postgres"),
            ("payments", "invoices", "billing-db", "billing-postgres"),
            ("media", "subscriptions", "members-db", "members-postgres"),
        )
    )
    by, admin = lab.rng.choice(("alice", "flux", "bob")), lab.rng.choice(("carol", "bob"))
    await lab.app(namespace, new, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="17.4")
    alias = objects.service(namespace, new)
    alias["metadata"] = {"namespace": namespace, "name": old, "labels": {"app.kubernetes.io/name": new}}
    await lab.apply(alias)
    like = App("", upstreams=((namespace, new),))
    host = lab.rng.choice((old, f"{old}.{namespace}.svc.cluster.local"))
    await lab.app(namespace, name, like=like, replicas=4, tag="5.2.7", initContainers=[_waiting_for(host)])
    await rolled(lab, namespace, name, "5.2.7")
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, old, new)
    lab.alert_lacking(namespace, name, seconds=12)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(by, "delete", "Service", namespace, old)
    await lab.pause(lab.rng.uniform(8, 16))
    here = [pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name)]
    names = [pod["spec"]["nodeName"] for pod in backends(lab.world, "kube-system", "kube-dns")]
    node = min(set(here), key=lambda one: (names.count(one), -here.count(one), one))
    await lab.edit(admin, "Node", "", node, {"spec": {"unschedulable": True}})
    lab.start(drain(lab, admin, node))
