"""Incidents without a culprit among the changes: users fill what machines take, a partner is found elsewhere too."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import count
from zlib import crc32

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.nodes import provide
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.volumes import attaching

DRIVER, ATTACHED = "disk.csi.example", 8
"""Of the cloud's disks, and how many of them one machine takes."""
OPEN, GIVEN_UP_SECONDS = 27, 11.0
"""Workspaces that are open at noon, and after which time the hub gives up one that has not come up."""
AT_ONCE = 2
"""So many a hub starts at most each time it looks."""
LABEL = "hub.corp.example/workspace"


@dataclass
class _Hub:
    """Whoever comes gets a workspace: a claim that stays, and a pod that mounts it until it is closed."""

    namespace: str
    image: str
    comes: float = 0.15
    """Users a second; as many close theirs at noon."""
    waiting: float = OPEN
    numbers: count[int] = field(default_factory=count)
    lately: deque[bool] = field(default_factory=lambda: deque(maxlen=10))
    opened: int = 0
    failed: int = 0

    async def run(self, process: Process) -> None:
        where = path("Pod", self.namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector={LABEL}")
        for pod in listed.body.get("items", []):
            await self._look_at(process, pod)
        self.waiting += self.comes
        for _ in range(min(AT_ONCE, int(self.waiting))):
            self.waiting -= 1
            await self._open(process, f"workspace-{next(self.numbers):03}")

    async def _look_at(self, process: Process, pod: Json) -> None:
        """One that has come up is closed by its user some day; one that has not in time is given up."""
        meta = pod["metadata"]
        where = path("Pod", self.namespace, meta["name"])
        if is_ready(pod):
            if meta["annotations"].get(LABEL) != "open":
                await process.api.call("PATCH", where, {"metadata": {"annotations": {LABEL: "open"}}})
                self.opened += 1
                self.lately.append(True)
            elif process.rng.random() < 0.15 / OPEN:
                await process.api.call("DELETE", where)
        elif (now() - datetime.fromisoformat(meta["creationTimestamp"])).total_seconds() > GIVEN_UP_SECONDS:
            await process.api.call("DELETE", where)
            self.failed += 1
            self.lately.append(False)

    async def _open(self, process: Process, name: str) -> None:
        wanted = {"requests": {"storage": "1Gi"}}
        claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "resources": wanted}
        where = path("PersistentVolumeClaim", self.namespace)
        await process.api.call("POST", where, {"metadata": {"name": name}, "spec": claim})
        volume = {"name": "home", "persistentVolumeClaim": {"claimName": name}}
        made = objects.deployment(self.namespace, "workspace", f"{self.image}:4.1", volumes=[volume])
        meta = {"name": name, "labels": {LABEL: "true"}, "annotations": {LABEL: "asked-for"}}
        body = {"metadata": meta, "spec": made["spec"]["template"]["spec"]}
        await process.api.call("POST", path("Pod", self.namespace), body)

    def failing(self, _: Container) -> float:
        """Who is given up is told so: of all that the hub is asked a half is about workspaces that come up."""
        return 0.5 * self.lately.count(False) / len(self.lately) if self.lately else 0.0


@family(
    "Each user of a hub has a workspace with a disk of its own, and a machine of this type takes only so many disks. A"
    " course begins, more of its pupils come than ever: nodes have processors and memory enough, and no further pod"
    " with a disk finds one.",
    culprit=False,
    joined=54,
)
async def disks_attached(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose hubs of notebooks are in clouds whose machines take few disks ("max volume count")."""
    namespace, name = lab.rng.choice((("academy", "lab-hub"), ("studio", "desk-hub"), ("research", "notebook-hub")))
    image = f"registry.corp.example/{namespace}/workspace"
    hub = _Hub(namespace, image)
    lab.apps[image] = App(image, serves=False)
    await lab.namespace(namespace)
    for node in NODES:
        await attaching(lab.who["admin"], node, DRIVER, ATTACHED)
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "standard"}, "provisioner": DRIVER})
    rules = (("", "pods,persistentvolumeclaims", "*"), ("", "events", "list"))
    app = await lab.controller(namespace, name, every(1, hub.run), *rules, replicas=1, tag="5.2.1")
    app.serves, app.failing = True, hub.failing
    await rolled(lab, namespace, name, "5.2.1")
    await publish(lab, namespace, name)
    told = {"namespace": namespace, "service": name}
    for status, number in (("success", lambda: hub.opened), ("failure", lambda: hub.failed)):
        lab.measure("jupyterhub_server_spawns_total", number, "counter", **told, status=status)
    lab.measure("jupyterhub_running_servers", lambda: _running(lab, namespace), "gauge", **told)
    lab.alert_errors(namespace, name, 0.08)
    await lab.until(lambda: _running(lab, namespace) >= OPEN - 2)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    most = lab.rng.uniform(1.2, 1.7)
    while hub.comes < most:
        hub.comes += 0.25
        await lab.pause(1)


def _running(lab: Lab, namespace: str) -> int:
    there = (one for one in lab.world["Pod"].values() if LABEL in one["metadata"].get("labels", {}))
    return sum(is_ready(one) for one in there if one["metadata"]["namespace"] == namespace)


CONNECT_SECONDS, KNOWN_SECONDS = 2.0, 14.0
"""Until a process takes an address for dead and tries the next one, and for how long it knows a name's addresses."""


@dataclass
class _Partner:
    """Somebody outside, who is well. ``since`` it has an address of the newer kind too, which leads nowhere here."""

    lag: float
    since: float = 0.0

    def tried(self, container: Container) -> float:
        """Whether a process tries that one first: once it has asked for the name anew."""
        knows = crc32(uid_of(container.pod).encode()) % 100 / 100 * KNOWN_SECONDS + self.lag
        return float(bool(self.since) and now().timestamp() > self.since + knows)


@family(
    "A partner outside is found at an IPv6 address too from some hour on. The machines have such addresses, and no way"
    " out for them: one app tries the first address it is given for seconds before it takes the next, and is late with"
    " all that it asks there; another one, whose client tries both at once, sees nothing.",
    culprit=False,
    joined=54,
)
async def second_address(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose APIs were slow by seconds once a name had an AAAA record, where nothing routes it."""
    namespace, name, other, host = lab.rng.choice(
        (
            ("payments", "tax-quotes", "tax-filings", "api.taxrates.example"),
            ("shop", "address-checks", "gift-cards", "api.postcodes.example"),
            ("media", "song-lyrics", "cover-art", "api.songdata.example"),
        )
    )
    team, partner = lab.rng.choice(("ci", "argocd", "flux")), _Partner(lab.lag)
    share, twice = lab.rng.uniform(0.6, 0.8), lab.rng.uniform(0.15, 0.25)
    minor = lab.rng.randrange(3, 20)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", DEADLINE_MS="3500", KEEP_ALIVE="false"))
    like = App("", abroad=(host,), asked=lambda: 18.0)
    like.latency = lambda one: share * CONNECT_SECONDS * partner.tried(one)
    like.failing, like.fails_with = (lambda one: twice * partner.tried(one)), (lambda _: "504")
    await lab.app(namespace, name, like=like, replicas=4, tag=f"3.{minor}.1", config=name)
    await lab.app(namespace, other, like=App("", abroad=(host,), asked=lambda: 9.0), replicas=2, tag="1.8.0")
    await rolled(lab, namespace, name, f"3.{minor}.1")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    lab.reserve(namespace, other)

    def calls(service: str) -> float:
        """Of a process's attempts to connect, those that time out, a second."""
        there = [one.container for one in lab.kubelets.running() if one.container.spec["name"] == service]
        tried = sum(map(partner.tried, there)) / len(there) if there else 0.0
        return 18.0 * (share + twice) * tried

    told = {"namespace": namespace, "client_name": host}
    connects: dict[str, Callable[[], float]] = {
        "200": lambda: 18.0 * (share + twice),
        "CONNECT_TIMEOUT": partial(calls, name),
    }
    for status, rate in connects.items():
        counter = lab.adding_up(rate)
        lab.measure("http_client_requests_total", counter, "counter", **told, service=name, status=status)
    well = lab.adding_up(lambda: 7.0)
    lab.measure("http_client_requests_total", well, "counter", **told, service=other, status="200")
    lab.alert_slow(namespace, name)
    lab.alert_errors(namespace, name, 0.08)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(team, namespace, name, f"3.{minor + 1}.0")
    await rolled(lab, namespace, name, f"3.{minor + 1}.0")
    await lab.pause(lab.rng.uniform(4, 9))
    partner.since = now().timestamp()
