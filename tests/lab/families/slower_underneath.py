"""Slower underneath: a database that several teams share is changed, and a volume gives no more than its share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from math import exp

from tests.lab import objects
from tests.lab.api import Json, Key, Kind, now, path
from tests.lab.apps import App, Container, Process, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import environment
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, leading, tell
from tests.lab.scenario import family

# -- a database for several teams

GROUP, HOME, OPERATOR = "postgres-operator.crunchydata.com", "databases", "postgres-operator"
MEMORY, CONNECTIONS, OLD, NEW = "16Gi", 400, "16.10", "17.6"


@dataclass
class _Shared:
    """A cluster of PostgreSQL that an operator keeps as it is declared: its pod is made anew with each change."""

    lab: Lab
    kind: Kind
    name: str
    held: float
    """Connections that all of its callers hold together."""
    slow: float
    """Seconds that a query of many rows takes more when its pages or its plan are not what they were."""
    app: App = field(default_factory=lambda: App("", serves=False))

    def declared(self, *, memory: str = MEMORY, version: str = OLD, connections: int = CONNECTIONS) -> Json:
        config = {"parameters": {"max_connections": connections, "shared_buffers": "25%"}}
        instance = {"name": "main", "replicas": 1, "resources": {"limits": {"memory": memory}}}
        return {"spec": {"image": f"crunchy-postgres:{version}", "config": config, "instances": [instance]}}

    async def keep(self, process: Process) -> None:
        """As the operator: the StatefulSet is what the cluster says."""
        listed = (await process.api.call("GET", self.kind.path(HOME))).body.get("items", ())
        found = await process.api.call("GET", path("StatefulSet", HOME, self.name))
        for one in listed if found.ok else ():
            there = found.body["spec"]["template"]["spec"]["containers"][0]
            wanted = self._container(there, one["spec"])
            if wanted != there:
                body = {"spec": {"template": {"spec": {"containers": [wanted]}}}}
                await process.api.call("PATCH", path("StatefulSet", HOME, self.name), body)
                said, about = f"updated StatefulSet {HOME}/{self.name}", {**one, "kind": self.kind.name}
                await tell(process, about, "Normal", "InstanceUpdated", said, by=OPERATOR)

    def _container(self, there: Json, spec: Json) -> Json:
        limits = spec["instances"][0]["resources"]["limits"]
        env = [{"name": "PGMAXCONNECTIONS", "value": str(spec["config"]["parameters"]["max_connections"])}]
        image = f"{there['image'].rsplit(':', 1)[0]}:{spec['image'].rsplit(':', 1)[1]}"
        return {**there, "image": image, "env": env, "resources": {**there["resources"], "limits": limits}}

    def _runs(self) -> Container | None:
        """Its process, once what is new about it has had time to show."""
        there = (one.container for one in self.lab.kubelets.running() if one.app is self.app)
        return next((one for one in there if one.seconds >= self.lab.lag), None)

    def late(self) -> float:
        """Seconds that a query waits: for pages that have no room in memory, or as its planner knows no figures yet."""
        if not (one := self._runs()):
            return 0.0
        is_small = mebibytes(one.spec["resources"]["limits"]["memory"]) < mebibytes(MEMORY)
        return self.slow if is_small or one.tag != OLD else 0.0

    def most(self) -> float:
        """Connections that it takes."""
        one = self._runs()
        return float(environment(one.spec).get("PGMAXCONNECTIONS", CONNECTIONS)) if one else float(CONNECTIONS)

    def refuses(self) -> float:
        """The share of its callers' requests that find no connection."""
        return max(0.0, 1 - self.most() / self.held)


@family(
    "Three teams have their data in one cluster of PostgreSQL, which an operator keeps. It is given a smaller instance,"
    " the next major version or another number of connections: the operator makes its pod anew, by which all"
    " connections are cut. From then on queries are slow, or connections refused, for all three.",
    joined=106,
)
async def changed_for_all_three(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had asked one of the teams whether it was a good moment."""
    by, change = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.choice(("memory", "version", "connections"))
    name, kind = lab.rng.choice(("main-pg", "shared-pg", "core-pg")), await lab.custom("PostgresCluster", GROUP, ANY)
    shared, minor = (
        _Shared(lab, kind, name, lab.rng.uniform(160, 230), lab.rng.uniform(0.9, 1.8)),
        lab.rng.randrange(40),
    )
    await lab.served(kind)
    await lab.namespace(HOME)
    meta = {"namespace": HOME, "name": name}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, **shared.declared()})
    first = [{"name": "PGMAXCONNECTIONS", "value": str(CONNECTIONS)}]
    await lab.app(HOME, name, like=shared.app, kind="StatefulSet", replicas=1, tag=OLD, memory=MEMORY, env=first)
    await lab.until(lambda: backends(lab.world, HOME, name))
    program = both(every(1.0, shared.keep), informer(kind.path()), leading(HOME, OPERATOR))
    rights = (GROUP, kind.plural, "get,list,watch"), ("apps", "statefulsets", "get,list,watch,patch")
    more = ("coordination.k8s.io", "leases", "*"), ("", "events", "create")
    await lab.controller(HOME, OPERATOR, program, *rights, *more, replicas=1, tag="5.8.2")
    await rolled(lab, HOME, OPERATOR, "5.8.2")
    callers = (
        ("shop", "wishes-api", "wishes-page", 0.9),
        ("payments", "refunds-api", "refunds-page", 0.7),
        ("media", "reviews-api", "reviews-page", 0.5),
    )
    for namespace, one, front, part in callers:
        like = App("", upstreams=((HOME, name),), asked=lambda: 17.0)
        like.latency = lambda _, part=part: part * shared.late()  # type: ignore[misc]
        like.failing = lambda _, part=part: part * shared.refuses()  # type: ignore[misc]
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", POOL_SIZE="20"))
        await lab.app(namespace, one, like=like, replicas=3, tag=f"2.{minor}.0", config=one)
        await rolled(lab, namespace, one, f"2.{minor}.0")
        await set_before(lab, namespace, front, one)
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
        lab.alert_ingress_errors(namespace, namespace)
    told = {"namespace": HOME, "service": name, "server": name}
    lab.measure("pg_stat_activity_count", lambda: round(min(shared.held, shared.most())), **told)
    lab.measure("pg_settings_max_connections", shared.most, **told)
    lab.measure("ccp_stat_statements_mean_seconds", lambda: 0.02 + shared.late(), **told)
    await lab.until(lab.is_well)
    asked = {"memory": {"memory": "6Gi"}, "version": {"version": NEW}, "connections": {"connections": 100}}[change]

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, "media", "reviews-page")

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "shop", "wishes-api", {"data": {"POOL_SIZE": "25"}})
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "payments", "refunds-api", f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 8))
    await change_page(lab, "shop", "wishes-page")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.culprit(by, "update", kind.name, HOME, name, shared.declared(**asked))  # type: ignore[arg-type]
    lab.start(afterwards())


# -- a volume's share


@dataclass
class _Volume:
    """Of a database: it has more operations a second than its share only for as long as it has credit."""

    lab: Lab
    share: float
    asked: float
    is_faulty: bool
    """Whether it is what lies behind it that fails, and no credit is used up."""
    set_up: float = field(default_factory=lambda: now().timestamp())
    last: tuple[float, float] = (0.0, 0.0)
    """When the end of its credit began to come near, and when it is there."""

    def balance(self) -> float:
        """Of its credit, in percent."""
        at, (begin, end) = now().timestamp(), self.last
        if self.is_faulty:
            return 99.0
        before = 9 + 30 * exp(-((begin or at) - self.set_up) / 90)
        return before * max(0.0, (end - at) / (end - begin)) if begin and at > begin else before

    def is_slow(self) -> bool:
        _, end = self.last
        return bool(end) and now().timestamp() >= end + self.lab.lag

    def operations(self) -> float:
        """A second."""
        return self.share if self.is_slow() else self.asked

    def waits(self) -> float:
        """Seconds that one of them takes."""
        return 0.004 if not self.is_slow() else 0.004 * 40 * self.asked / self.share

    def late(self, of_it: float) -> float:
        """Seconds that a query takes longer that needs so many of them, beside those that memory answers."""
        return of_it * self.waits() if self.is_slow() else 0.0


@family(
    "No culprit. The volume of a database has more operations a second than it is paid for, as long as there is credit"
    " left of quiet hours, or the storage behind it has a fault of which its vendor tells in the evening. At some point"
    " of a busy day each read waits. The database and who asks it are as they were, and late.",
    culprit=False,
    joined=106,
)
async def credit_of_the_volume(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found a graph at zero, on the page of the cloud's console that nobody opens."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "order-lookup", "lookup-page", "order-labels"),
            ("payments", "payout-lookup", "payout-page", "payout-files"),
            ("media", "chapter-lookup", "chapter-page", "chapter-sync"),
            ("search", "term-lookup", "terms-page", "term-sync"),
        )
    )
    minor, db = lab.rng.randrange(2, 40), f"{name}-db"
    volume = _Volume(lab, 300.0, lab.rng.uniform(800, 1500), lab.rng.random() < 0.3)
    of_it = lab.rng.uniform(2.0, 4.0)
    await stored(lab, namespace, db)
    like = App("", upstreams=((namespace, db),), asked=lambda: 19.0)
    like.latency = lambda _: min(3.0, volume.late(of_it))
    like.failing = lambda _: max(0.0, min(0.5, 1 - 3.0 / max(0.1, volume.late(of_it))))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", STATEMENT_TIMEOUT_MS="3000"))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{minor}.0", config=name)
    like = App("", upstreams=((namespace, db),), asked=lambda: 8.0, latency=lambda _: min(3.0, volume.late(of_it / 2)))
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, like=like, replicas=2, tag="1.7.1", config=other)
    for one, tag in ((name, f"4.{minor}.0"), (other, "1.7.1")):
        await rolled(lab, namespace, one, tag)
        lab.reserve(namespace, one)
    await set_before(lab, namespace, front, name)
    read: tuple[tuple[str, Callable[[], float]], ...] = (
        ("aws_ebs_burst_balance_average", volume.balance),
        ("aws_ebs_volume_read_ops_average", volume.operations),
        ("aws_ebs_volume_queue_length_average", lambda: volume.operations() * volume.waits()),
    )
    told = {"namespace": "monitoring", "service": "cloudwatch-exporter", "volume_name": f"data-{db}-0"}
    for series, value in read:
        lab.measure(series, value, **told)
    place: Key
    for place in ((namespace, name), (namespace, other)):
        lab.alert_slow(*place)
        lab.alert_errors(*place)
    lab.alert_slow(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(9, 16))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    begin = now().timestamp()
    volume.last = (begin, begin + lab.rng.uniform(26, 40))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.7.2")
    await lab.pause(lab.rng.uniform(7, 12))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 9))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"4.{minor}.1")
    else:
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "warn"}})
    lab.start(afterwards())
