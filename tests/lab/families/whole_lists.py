"""Lists that are written or bounded as a whole: conditions of a status, listeners of a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.lab.api import Json, Kind
from tests.lab.apps import App, Container, Process, Program
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, changes, every, lagging, tell
from tests.lab.scenario import family

REPORTS, CONDITIONS = "2.3.1", "2.4.0"
"""A checker that tells what it found in a report of its own, and one that writes it into the status, too."""
TURN_SECONDS = 0.08
"""What a controller's queue lets pass between two objects."""


def following(kind: Kind, reconcile: Callable[[Process, Json], Awaitable[None]]) -> Program:
    """Whatever is told of an object has it looked at, once for all that was told meanwhile."""

    async def run(process: Process) -> None:
        told: dict[str, Json] = {}

        def queue(one: Json) -> None:
            told[one["metadata"]["uid"]] = one

        async def work(process: Process) -> None:
            for uid in list(told):
                await reconcile(process, told.pop(uid))
                await asyncio.sleep(TURN_SECONDS)

        async def watch(process: Process) -> None:
            await changes(process, kind.path(), queue, of_all=True)

        await both(watch, every(0.05, work))(process)

    return run


@dataclass
class _Conditions:
    """What two controllers say of the same objects."""

    kind: Kind
    looked: dict[str, int] = field(default_factory=dict)

    async def _say(self, process: Process, one: Json, conditions: list[Json]) -> None:
        meta = one["metadata"]
        where = f"{self.kind.path(meta['namespace'], meta['name'])}/status"
        await process.api.call("PATCH", where, {"status": {"conditions": conditions}})

    def _look(self, who: str) -> None:
        self.looked[who] = self.looked.get(who, 0) + 1

    async def own(self, process: Process, one: Json) -> None:
        """The kind's operator: the status is what it has found, and anything else is written over."""
        self._look("operator")
        wanted = [_condition("Ready", "Provisioned", one)]
        if one.get("status", {}).get("conditions") != wanted:
            await self._say(process, one, wanted)

    async def check(self, process: Process, one: Json) -> None:
        """Its condition is there, beside all others."""
        self._look("checker")
        there = one.get("status", {}).get("conditions", [])
        if process.tag == CONDITIONS and not any(condition["type"] == "Compliant" for condition in there):
            await lagging(process)
            await self._say(process, one, [*there, _condition("Compliant", "PoliciesMet", one)])


def _condition(what: str, reason: str, one: Json) -> Json:
    since = one["metadata"]["creationTimestamp"]
    return {"type": what, "status": "True", "reason": reason, "message": "", "lastTransitionTime": since}


@family(
    "A new version of a checker writes what it found into the status of objects that another operator owns, which"
    " writes the whole of that status as it has it: a condition is put there and taken out again, without end and at"
    " all of them.",
    joined=33,
)
async def conditions_replaced(lab: Lab) -> AsyncIterator[None]:
    """As those who write controllers are told: a list of conditions that is written as a whole has one owner."""
    name, group, operator, checker = lab.rng.choice(
        (
            ("Bucket", "storage.corp.example", "bucket-operator", "compliance-scan"),
            ("Topic", "messaging.corp.example", "topic-operator", "policy-report"),
            ("Database", "data.corp.example", "database-operator", "posture-check"),
        )
    )
    by = lab.rng.choice(("argocd", "flux", "ci"))
    kind = await lab.custom(name, group, ANY)
    one: Json = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}}
    body = {"spec": {"versions": [{**one, "subresources": {"status": {}}}]}}
    await lab.edit("admin", "CustomResourceDefinition", "", f"{kind.plural}.{group}", body)
    await lab.served(kind)
    for namespace in ("shop", "payments", "search", "media"):
        for use in lab.rng.sample(("events", "reports", "archive", "exports", "imports"), 3):
            meta = {"namespace": namespace, "name": f"{namespace}-{use}"}
            spec = {"team": namespace, "retentionDays": lab.rng.choice((7, 30, 90))}
            await lab.apply({"apiVersion": f"{group}/v1", "kind": name, "metadata": meta, "spec": spec})
    conditions = _Conditions(kind)
    rule = (group, f"{kind.plural},{kind.plural}/status", "get,list,watch,patch")
    await lab.controller("platform", operator, following(kind, conditions.own), rule, replicas=1, tag="1.12.0")
    await lab.controller("platform", checker, following(kind, conditions.check), rule, replicas=1, tag=REPORTS)
    await lab.until(lambda: all("status" in one for one in lab.world[name].values()))
    for who, place in (("operator", operator), ("checker", checker)):
        value = lambda who=who: conditions.looked.get(who, 0)  # noqa: E731
        lab.measure("controller_runtime_reconcile_total", value, "counter", namespace="platform", service=place)
    alert_on_load(lab)
    yield
    await lab.roll(by, "platform", checker, CONDITIONS, culprit=True)


PROXIES, MOST = "edge.corp.example", 16
"""The group of the kind, and how many listeners a proxy may have by the new definition."""
THERE, ELSEWHERE = (12, 15), 5


def _schema(*, bounded: bool) -> Json:
    """A rule over a list has a cost, so a list that has rules is bounded."""
    listener: Json = {"type": "object", "properties": {"hostname": {"type": "string"}, "port": {"type": "integer"}}}
    listeners: Json = {"type": "array", "items": listener}
    if bounded:
        rule = {"rule": "self.all(one, one.port > 0)", "message": "a listener needs a port"}
        listeners |= {"maxItems": MOST, "x-kubernetes-validations": [rule]}
    listener["properties"]["hostname"]["maxLength"] = 253
    spec = {"type": "object", "properties": {"listeners": listeners}}
    return {"type": "object", "properties": {"spec": spec}}


def _defined(*, bounded: bool) -> Json:
    schema = {"openAPIV3Schema": _schema(bounded=bounded)}
    return {"spec": {"versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}}


@dataclass
class _Domains:
    """Each customer's domain is a listener of one proxy: who keeps them writes all of them."""

    kind: Kind
    namespace: str
    name: str
    known: int
    """Domains that customers have brought so far."""
    written: int = 0

    def waiting(self) -> float:
        return self.known - self.written

    def listeners(self) -> list[Json]:
        hosts = (f"www.customer-{number:03}.example" for number in range(1, self.known + 1))
        return [{"hostname": host, "port": 443} for host in hosts]

    async def write(self, process: Process) -> None:
        if not self.waiting():
            return
        where, known = self.kind.path(self.namespace, self.name), self.known
        answer = await process.api.call("PATCH", where, {"spec": {"listeners": self.listeners()}})
        if answer.ok:
            self.written = known
            return
        found = await process.api.call("GET", where)
        if found.ok:
            about: dict[str, Any] = {**found.body, "kind": self.kind.name}
            await tell(process, about, "Warning", "ListenersNotApplied", answer.body.get("message", ""), by="domains")

    def unknown(self, _: Container) -> float:
        """The share of requests for a name that the proxy does not have."""
        return 0.02 * self.waiting()


@family(
    "A chart's new definition of proxies has rules for their listeners, and so a bound for how many there are. What is"
    " there is within it, in every cluster; but each domain of a customer is a listener, and the next ones are"
    " refused.",
    joined=33,
)
async def list_bounded(lab: Lab) -> AsyncIterator[None]:
    """As the documentation tells of rules over lists: they are refused where a list has no bound."""
    namespace, app = lab.rng.choice((("shop", "storefronts"), ("media", "portals"), ("search", "sites")))
    name, by = f"{namespace}-edge", lab.rng.choice(("ci", "argocd", "flux"))
    kind = await lab.custom("EdgeProxy", PROXIES, _schema(bounded=False))
    definition = f"{kind.plural}.{PROXIES}"
    await lab.served(kind)
    domains = _Domains(kind, namespace, name, ELSEWHERE, ELSEWHERE)
    meta, spec = {"namespace": namespace, "name": name}, {"listeners": domains.listeners()}
    await lab.apply({"apiVersion": f"{PROXIES}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    like = App("", serves=False, failing=domains.unknown, fails_with=lambda _: "421")
    await lab.app(namespace, app, like=like, replicas=3, tag="5.2.0")
    await publish(lab, namespace, app)
    rules = (PROXIES, kind.plural, "get,patch"), ("", "events", "create")
    await lab.controller("platform", "domains", every(1.5, domains.write), *rules, replicas=1, tag="1.4.1")
    await lab.until(lambda: len(backends(lab.world, namespace, app)) == 3)
    await rolled(lab, "platform", "domains", "1.4.1")
    lab.measure("domains_waiting", domains.waiting, namespace="platform", service="domains")
    summary = f"domains of customers have been waiting for {namespace}/{name} for a while"
    holds = lambda: domains.waiting() > 0  # noqa: E731
    lab.alert("DomainsNotServed", holds, summary, 6, namespace=namespace, proxy=name)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(2, 5), cluster=lab.rng.choice(("us-3", "ap-1"))):
        await lab.pause(2)
        await lab.edit(by, "CustomResourceDefinition", "", definition, _defined(bounded=True))
        await lab.pause(4)
        domains.known += 1
        await lab.until(lambda: not domains.waiting())
    await lab.edit("admin", "CustomResourceDefinition", "", definition, _defined(bounded=False))
    domains.known = lab.rng.randrange(*THERE)
    await lab.until(lambda: not domains.waiting())

    async def join() -> None:
        while True:
            await asyncio.sleep(lab.rng.uniform(3, 7))
            domains.known += 1

    yield
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, _defined(bounded=True))
    lab.start(join())
