"""What was told of stores that all rest on: one that many starts ask at once, one that crashes, one made anew."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import lacking, pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import LATE, App, Container, Problem, Process, mebibytes
from tests.lab.families.after_boot import process_of
from tests.lab.families.databases import ANY
from tests.lab.families.nodes import provide
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import both, every, informer
from tests.lab.scenario import family

STANDS, USUAL, RUNAWAY, START = 1000.0, 380.0, 340.0, 60.0
"""Commands a second that a store stands; those of every day, of a flow that schedules itself, and of each start."""
START_WORK = 240.0
"""Commands until a server is up."""
SERVERS = 8
HEAP_MIB, WRITES, SPREAD = 900.0, 60.0, 0.12
"""What a store's process needs with its share of the writes, by how much more in each second, and how even they are."""
REPLAY_SECONDS = 9.0
"""For which a store reads its log after a start."""
ROOM, PUBLISHED = 600.0, 60.0
"""How many messages a bus keeps, and how many come in a second."""


@dataclass
class _Jobs:
    """What servers, and flows that schedule themselves, ask of a store, and the jobs that wait there."""

    lab: Lab
    namespace: str
    server: str
    asked: float = USUAL
    runaway: float = 0.0
    waiting: float = 0.0
    done: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """What a server asked so far for its start, by process."""

    async def work(self) -> None:
        """For ever. A command that is not answered in time is sent again, and nothing gets on."""
        while True:
            await asyncio.sleep(1)
            there = pods(self.lab.world, self.namespace, self.server)
            running = [process_of(pod) for pod in there if pod.get("status", {}).get("phase") == "Running"]
            starting = [one for one in running if self.done[one] < START_WORK]
            self.asked = USUAL + self.runaway + START * len(starting)
            for one in starting if self.asked <= STANDS else ():
                self.done[one] += START
            served = self.asked <= STANDS and bool(backends(self.lab.world, self.namespace, self.server))
            self.waiting = max(0.0, self.waiting - 40.0 if served else self.waiting + 25.0)

    async def run_away(self) -> None:
        """A flow schedules itself once more each time, up to what its owner's plan allows."""
        while self.runaway < RUNAWAY:
            self.runaway += RUNAWAY / 10
            await asyncio.sleep(1)

    def check_store(self, container: Container) -> Problem | None:
        return Problem("unready", LATE) if self.asked > STANDS else None

    def check_server(self, container: Container) -> Problem | None:
        if self.done[process_of(container.pod)] >= START_WORK:
            return None
        return Problem("unready", "probe failed: dial tcp :8080: connect: connection refused")


@family(
    "All servers of an app are replaced at once, as ever, while a customer's flow that schedules itself fills their"
    " store with jobs: what each start asks of it is now too much, no start comes through, and jobs wait.",
    joined=15,
)
async def starts_at_once(lab: Lab) -> AsyncIterator[None]:
    """As Activepieces tells of 19 March 2026 (activepieces 12049)."""
    namespace, product = lab.rng.choice((("payments", "flows"), ("shop", "automations"), ("media", "pipelines")))
    server, store = f"{product}-server", f"{product}-redis"
    jobs = _Jobs(lab, namespace, server)
    lab.start(jobs.work())
    await lab.app(namespace, store, like=App("", check=jobs.check_store, serves=False), replicas=1)
    upstreams = ((namespace, store),)
    await lab.app(namespace, f"{product}-worker", like=App("", upstreams=upstreams), replicas=2)
    like = App("", check=jobs.check_server, upstreams=upstreams)
    await lab.app(namespace, server, like=like, tag="0.78.0", replicas=SERVERS)
    at_once = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}}
    await lab.edit("admin", "Deployment", namespace, server, {"spec": {"strategy": at_once}})
    lab.measure("jobs_waiting", lambda: jobs.waiting, namespace=namespace, service=server)
    queued = lambda: jobs.waiting > 500  # noqa: E731
    lab.alert("QueueBacklogHigh", queued, f"jobs of {product} wait", 4, namespace=namespace, service=server)
    lab.alert_lacking(namespace, server, seconds=20)
    yield
    lab.start(jobs.run_away())
    await lab.pause(lab.rng.uniform(14, 20))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, server, "0.79.0", culprit=True)


@family(
    "A cluster that keeps measurements crashes, one process after another: nobody takes messages from the bus for it"
    " any more, the bus is full, and whoever publishes there waits, also those whom measurements do not concern.",
    culprit=False,
    joined=15,
)
async def full_bus(lab: Lab) -> AsyncIterator[None]:
    """As Stackdriver tells of October 2013 (icco/postmortems 101)."""
    namespace, store, consumer = "monitoring", "series-cassandra", "series-ingest"
    since: list[datetime] = []
    waiting = [0.0]

    def check_store(container: Container) -> Problem | None:
        """The fewer there are, the more of the writes each of them has in its memory."""
        if not since or container.seconds < 2:
            return None
        there = max(1, sum(is_ready(pod) for pod in pods(lab.world, namespace, store)))
        grown = HEAP_MIB + WRITES * (now() - since[0]).total_seconds()
        uneven = 1 + SPREAD * (crc32(container.pod["metadata"]["name"].encode()) % 100) / 100
        needed, limit = grown * uneven * 3 / there, container.spec["resources"]["limits"]["memory"]
        return Problem("oom", f"needs {needed:.0f}Mi, may have {limit}") if needed > mebibytes(limit) else None

    async def publish() -> None:
        """What is taken from the bus is what the store takes; what is beyond its room has to wait outside."""
        while True:
            await asyncio.sleep(1)
            taken = 3 * PUBLISHED if backends(lab.world, namespace, consumer) else 0.0
            waiting[0] = min(ROOM, max(0.0, waiting[0] + PUBLISHED - taken))

    def check_publisher(container: Container) -> Problem | None:
        return Problem("unready", LATE) if waiting[0] >= ROOM else None

    like = App("", check=check_store, start_seconds=REPLAY_SECONDS, serves=False)
    await lab.app(namespace, store, like=like, kind="StatefulSet", replicas=3, memory="2Gi")
    await lab.app(namespace, consumer, like=App("", upstreams=((namespace, store),)), replicas=2)
    await lab.app("platform", "bus", like=App("", serves=False), kind="StatefulSet", replicas=1)
    lab.measure("bus_messages_waiting", lambda: waiting[0], namespace="platform", service="bus")
    for place in (("shop", "activity"), ("payments", "receipts"), ("media", "views")):
        await lab.app(*place, like=App("", check=check_publisher, upstreams=(("platform", "bus"),)), replicas=3)
        lab.alert_lacking(*place)
    holds = lambda: lacking(lab.world, namespace, store)  # noqa: E731
    summary = f"{namespace}/{store} has not had its replicas for a while"
    labels = {"namespace": namespace, "statefulset": store}
    lab.alert("KubeStatefulSetReplicasMismatch", holds, summary, 20, **labels)
    lab.start(publish())
    yield
    since.append(now())


@dataclass
class _Keeper:
    """As an operator of databases: what is declared is there, and of that only the size can be changed in place."""

    lab: Lab
    namespace: str
    name: str
    kind: Kind

    @property
    def database(self) -> str:
        return f"{self.name}-postgres"

    def volume(self) -> str:
        """The uid of the claim that has the data."""
        claim = self.lab.world["PersistentVolumeClaim"].get((self.namespace, f"data-{self.database}-0"))
        return str(claim["metadata"]["uid"]) if claim else ""

    async def keep(self, process: Process) -> None:
        where, sets = self.kind.path(self.namespace, self.name), path("StatefulSet", self.namespace)
        claim = path("PersistentVolumeClaim", self.namespace, f"data-{self.database}-0")
        found = await process.api.call("GET", where)
        there = await process.api.call("GET", f"{sets}/{self.database}")
        if not found.ok:
            return
        fixed = {key: value for key, value in found.body["spec"].items() if key != "storage"}
        if there.ok and found.body.get("status", {}).get("applied") != fixed:
            await _condition(process, where, "False", "Deleting")
            await process.api.call("DELETE", f"{sets}/{self.database}")
            await process.api.call("DELETE", claim)
        elif there.status == 404 and (await process.api.call("GET", claim)).status == 404:
            await _condition(process, where, "False", "Creating", applied=fixed)
            await process.api.call("POST", sets, _database(self.namespace, self.database))
        elif there.ok and there.body.get("status", {}).get("readyReplicas"):
            await _condition(process, where, "True", "Available")


@family(
    "A routine rotation of a database's credentials: they are a part of what the database is declared by, and what"
    " keeps it cannot change that in place, so it deletes the database and makes another one, which is empty.",
    joined=15,
)
async def database_replaced(lab: Lab) -> AsyncIterator[None]:
    """As Polar tells of 12 June 2026 (polar 12387), where it was Terraform."""
    namespace, name, table = lab.rng.choice(
        (("payments", "billing", "orders"), ("shop", "store", "customers"), ("media", "studio", "uploads"))
    )
    group = "sql.corp.example"
    kind = await lab.custom("DatabaseInstance", group, ANY)
    keeper, first = _Keeper(lab, namespace, name, kind), list[str]()
    database = keeper.database

    def check(container: Container) -> Problem | None:
        if not first or not backends(lab.world, namespace, database) or keeper.volume() == first[0]:
            return None
        missing = f'ERROR: relation "{table}" does not exist (SQLSTATE 42P01)'
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({missing})")

    lab.apps["registry.corp.example/platform/postgres"] = App("registry.corp.example/platform/postgres")
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    named = {"metadata": {"name": "standard", "annotations": mark}, "provisioner": "disk.csi.example"}
    await lab.apply({"kind": "StorageClass", **named})
    volumes = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *volumes, replicas=1)
    await lab.served(kind)
    spec = {"engine": "postgres-17", "storage": "1Gi", "credentials": {"secretName": f"{name}-login-1"}}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.apply(objects.service(namespace, database))
    rules = (group, kind.plural, "*"), ("apps", "statefulsets", "*"), ("", "persistentvolumeclaims", "get,delete")
    program = both(every(1, keeper.keep), informer(kind.path()))
    await lab.controller("platform", "database-operator", program, *rules, replicas=1)
    await lab.until(lambda: backends(lab.world, namespace, database))
    first.append(keeper.volume())
    for app in (f"{name}-api", f"{name}-dashboard", f"{name}-checkout"):
        await lab.app(namespace, app, like=App("", check=check, upstreams=((namespace, database),)), replicas=2)
        lab.alert_lacking(namespace, app)
    yield
    by, login = lab.rng.choice(("ci", "flux", "alice")), f"{name}-login-2"
    secret = {"metadata": {"name": login}, "stringData": {"password": f"{lab.rng.getrandbits(64):016x}"}}
    await lab.who[by].must("POST", path("Secret", namespace), secret)
    await lab.pause(lab.rng.uniform(2, 4))
    body = {"spec": {"credentials": {"secretName": login}}}
    await lab.culprit(by, "update", kind.name, namespace, name, body)


async def _condition(process: Process, where: str, status: str, reason: str, **told: Json) -> None:
    """What an operator says of what it keeps."""
    condition = {"type": "Ready", "status": status, "reason": reason}
    await process.api.call("PATCH", where, {"status": {"conditions": [condition], **told}})


def _database(namespace: str, name: str) -> Json:
    """One pod that claims a volume."""
    image = "registry.corp.example/platform/postgres:17.4"
    made: Json = objects.deployment(namespace, name, image, kind="StatefulSet", replicas=1)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    made["spec"]["serviceName"] = name
    return made
