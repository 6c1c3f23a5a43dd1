"""What each figure costs: a query of its own, whenever somebody asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

GROUP = "monitoring.coreos.com"
SECONDS = {"30m": 30.0, "30s": 0.5}
"""An interval of scrapes, and how long it is here."""
CORES, OF_APPS, WORK = 8, 4, 8.0
"""Processors of a database, how many of them its apps keep busy, and for how long one query of a figure has one."""
MOST = 64
"""Connections that apps leave."""
QUERY_SECONDS, PATIENT_SECONDS = 0.12, 0.6
"""How long an app's own query takes where nobody is in its way, and after which time some requests give up."""


@dataclass
class _Database:
    """Whoever runs a query has a processor, or its part of one."""

    queries: list[float] = field(default_factory=list)
    """What is still to be done of each that is for a figure."""
    interval: str = "30m"

    @property
    def slower(self) -> float:
        return max(1.0, (len(self.queries) + OF_APPS) / CORES)

    async def run(self) -> None:
        due = now().timestamp()
        while True:
            await asyncio.sleep(0.25)
            self.queries = [left - 0.25 / self.slower for left in self.queries if left > 0.25 / self.slower]
            due = min(due, now().timestamp() + SECONDS[self.interval])
            if now().timestamp() >= due:
                due += SECONDS[self.interval]
                self.queries += [WORK] if len(self.queries) < MOST else []

    def seconds(self, _: Container) -> float:
        return QUERY_SECONDS * self.slower

    def given_up(self, _: Container) -> float:
        return max(0.0, 1 - PATIENT_SECONDS / self.seconds(_))


@dataclass
class _Operator:
    """As what makes the file of who is scraped, and how often, from the objects that say so."""

    kind: Kind
    database: _Database
    name: str

    async def run(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        found = {
            one["metadata"]["name"]: one["spec"]["endpoints"][0]["interval"] for one in listed.body.get("items", [])
        }
        interval = found.get(self.name, self.database.interval)
        if interval == self.database.interval:
            return
        lines = "".join(f"- job_name: {name}\n  scrape_interval: {each}\n" for name, each in sorted(found.items()))
        body: Json = {"stringData": {"prometheus.yaml": f"scrape_configs:\n{lines}"}}
        await process.api.call("PATCH", path("Secret", "monitoring", "prometheus-main"), body)
        await asyncio.sleep(process.lag)
        self.database.interval = interval


@family(
    "Some figures of a business are scraped each half an hour, and for each scrape what exports them begins a query of"
    " some minutes. Somebody wants to see them as they change, and has them scraped each half a minute: queries pile up"
    " in the database, and all apps that share it are late.",
    joined=60,
)
async def each_figure(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose exporters of SQL queries were scraped as often as everything else."""
    namespace, name, other = lab.rng.choice(
        (
            ("shop", "order-history", "returns"),
            ("payments", "statements", "refunds"),
            ("media", "play-counts", "royalties"),
        )
    )
    by, team = lab.rng.choice(("alice", "carol", "bob", "flux")), lab.rng.choice(("ci", "argocd"))
    store, exporter = f"{name}-db", f"{name}-figures"
    database, minor = _Database(), lab.rng.randrange(2, 30)
    kind = await lab.custom("ServiceMonitor", GROUP, ANY)
    await lab.served(kind)
    like = App("", serves=False)
    await lab.app(namespace, store, like=like, kind="StatefulSet", replicas=1, tag="16.9")
    like = App("", upstreams=((namespace, store),), asked=lambda: 1 / SECONDS[database.interval])
    await lab.app(namespace, exporter, like=like, replicas=1, tag="0.17.3")
    for one, asked, tag in ((name, 22.0, f"4.{minor}.0"), (other, 9.0, "2.6.1")):
        like = App("", upstreams=((namespace, store),), latency=database.seconds, failing=database.given_up)
        like.asked, like.fails_with = (lambda asked=asked: asked), (lambda _: "504")
        await lab.app(namespace, one, like=like, replicas=3, tag=tag)
    for one, interval in ((name, "30s"), (other, "30s"), (exporter, "30m")):
        meta = {"namespace": namespace, "name": one}
        labels = {"matchLabels": {"app.kubernetes.io/name": one}}
        spec = {"selector": labels, "endpoints": [{"port": "http", "interval": interval}]}
        await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    meta = {"namespace": "monitoring", "name": "prometheus-main"}
    await lab.apply({"kind": "Secret", "metadata": meta, "stringData": {"prometheus.yaml": "scrape_configs: []\n"}})
    rules = ((GROUP, kind.plural, "get,list,watch"), ("", "secrets", "get,patch"))
    operator = _Operator(kind, database, exporter)
    await lab.controller("monitoring", "prometheus-operator", every(3, operator.run), *rules, replicas=1, tag="0.84.0")
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, other)) == 3)
    await publish(lab, namespace, name)
    lab.reserve(namespace, other, store, exporter)
    told = {"namespace": "monitoring", "service": "postgres-exporter", "server": store}
    active = lambda: float(len(database.queries) + OF_APPS)  # noqa: E731
    lab.measure("pg_stat_activity_count", active, "gauge", **told, state="active")
    lab.alert_slow(namespace, name)
    lab.alert_slow(namespace, other)
    lab.alert_errors(namespace, name, 0.1)
    lab.start(database.run())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(team, namespace, name, f"4.{minor}.1")
    await rolled(lab, namespace, name, f"4.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    body = {"spec": {"endpoints": [{"port": "http", "interval": "30s"}]}}
    await lab.culprit(by, "update", kind.name, namespace, exporter, body)
