"""What is older than whom it works with: an image that a chart names, a reader of a kind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, Kind
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.renumbered import helm_kept
from tests.lab.families.whole_lists import following
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, changes, every
from tests.lab.scenario import family

INSTALLED = "2.3.0"
"""The tag that a chart has had since its app was installed; since then only images were set."""
ENVIRONMENTS = "environments.corp.example"
OPERATOR_CHART, NEXT_CHART = "0.14.2", "0.15.0"
KEPT, WAITING = 6, 3
"""How many environments there are at once, and how many may wait for their route."""


@family(
    "The images of an app are set by kubectl each week, and its chart still names the one of its installation. A"
    " release of the chart, for more memory alone, writes that one back: it calls an API which the app behind it has"
    " no more.",
    joined=37,
)
async def chart_tag(lab: Lab) -> AsyncIterator[None]:
    """As users of Helm tell of what was changed beside it: a release makes all of its manifest so again."""
    namespace, name, behind, front = lab.rng.choice(
        (
            ("shop", "delivery-options", "carriers", "order-page"),
            ("media", "subtitles", "captions", "watch-page"),
            ("payments", "instalments", "credit-checks", "pay-page"),
        )
    )
    week, number = lab.rng.randrange(21, 60), lab.rng.randrange(3, 9)
    setter, other = lab.rng.sample(("alice", "bob", "carol"), 2)
    like = App(
        "",
        upstreams=((namespace, behind),),
        failing=lambda container: 0.55 if container.tag == INSTALLED else 0.0,
    )
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", RETRIES="2"))
    await lab.app(namespace, behind, replicas=2, tag="6.0.4")
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{week}.0", config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=3, tag="1.90.0")
    await lab.apply(helm_kept(name, namespace, number), "ci")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (behind, name, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, behind, front)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.pause(3)
        await lab.roll(setter, namespace, name, f"2.{week + 1}.0")
        await rolled(lab, namespace, name, f"2.{week + 1}.0")
        await lab.pause(6)
    yield
    await lab.roll(other, namespace, front, "1.91.0")
    await lab.pause(lab.rng.uniform(5, 10))
    why = "the release that writes it back"
    secret = helm_kept(name, namespace, number + 1)
    await lab.also(why, "ci", "create", "Secret", namespace, secret["metadata"]["name"], secret)
    larger = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    await lab.roll("ci", namespace, name, INSTALLED, culprit=True, resources=larger)


def _idle(**idle: object) -> Json:
    """Of an environment: who has it, and after how long without a user it is stopped."""
    fields = {"owner": {"type": "string"}, "idleMinutes": idle}
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "route": {"type": "string"}}}
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}, "status": status}}


NUMBER, NUMBER_OR_TEXT = _idle(type="integer"), _idle(**{"x-kubernetes-int-or-string": True})


@dataclass
class _Environments:
    """Somebody wants one again and again; its operator starts it, and what routes gives it a name."""

    lab: Lab
    kind: Kind
    numbers: itertools.count[int]
    up: list[str] = field(default_factory=list)

    @property
    def body(self) -> Json:
        return {"apiVersion": f"{ENVIRONMENTS}/v1", "kind": self.kind.name}

    async def order(self, process: Process) -> None:
        name, where = f"env-{next(self.numbers)}", self.kind.path("platform")
        owner = process.rng.choice(("checkout", "search", "mobile", "content"))
        made = {**self.body, "metadata": {"name": name}, "spec": {"owner": owner, "idleMinutes": 30}}
        if (await process.api.call("POST", where, made)).ok:
            self.up.append(name)
        while len(self.up) > KEPT:
            await process.api.call("DELETE", f"{where}/{self.up.pop(0)}")

    async def begin(self, process: Process, one: Json) -> None:
        if one.get("status", {}).get("phase") != "Ready":
            await asyncio.sleep(0.4)
            await process.api.call("PATCH", self._place(one), {"status": {"phase": "Ready"}})

    async def route(self, process: Process) -> None:
        """With types of old: a list with one that it cannot read is none to it."""
        told: dict[str, Json] = {}

        async def work(process: Process) -> None:
            for name in list(told):
                one = told.pop(name)
                if not one.get("status", {}).get("route"):
                    route = f"{name}.env.corp.example"
                    await process.api.call("PATCH", self._place(one), {"status": {"route": route}})

        def queue(one: Json) -> None:
            told[one["metadata"]["name"]] = one

        async def watch(process: Process) -> None:
            reads = lambda one: isinstance(one["spec"].get("idleMinutes", 0), int)  # noqa: E731
            await changes(process, self.kind.path(), queue, of_all=True, reads=reads)

        await both(watch, every(0.3, work))(process)

    def waiting(self) -> int:
        return sum(not one.get("status", {}).get("route") for one in self.lab.world[self.kind.name].values())

    def _place(self, one: Json) -> str:
        return self.kind.path(one["metadata"]["namespace"], one["metadata"]["name"])


@family(
    "A chart's new definition lets a field be text as well as a number, and its own operator reads both. What routes is"
    " another team's, and knows numbers only. Then somebody writes text there: a list with one object that it cannot"
    " read is none to it, and no new environment gets its route.",
    joined=37,
)
async def text_or_number(lab: Lab) -> AsyncIterator[None]:
    """As told of clients with types: one object that does not fit them fails the list of all."""
    portal, router, operator = (
        "environment-portal",
        lab.rng.choice(("environment-router", "route-sync")),
        "environment-operator",
    )
    by, team = lab.rng.choice(("argocd", "flux")), lab.rng.choice(("alice", "bob", "carol"))
    kind = await lab.custom("Environment", ENVIRONMENTS, NUMBER)
    await lab.served(kind)
    environments = _Environments(lab, kind, itertools.count(lab.rng.randrange(300, 900)))
    own = {**environments.body, "metadata": {"namespace": "platform", "name": f"demo-{lab.rng.randrange(10, 99)}"}}
    await lab.apply({**own, "spec": {"owner": "sales", "idleMinutes": 120}}, team)
    group, plural = ENVIRONMENTS, kind.plural
    parts = (
        (operator, following(kind, environments.begin), "get,list,watch,patch", OPERATOR_CHART),
        (router, environments.route, "get,list,watch,patch", "1.8.0"),
        (portal, every(2.0, environments.order), "get,create,delete", "4.4.1"),
    )
    for name, program, verbs, tag in parts:
        app = await lab.controller("platform", name, program, (group, plural, verbs), replicas=1, tag=tag)
        app.serves = name == portal
    waiting = environments.waiting
    lab.measure("environments_without_route", waiting, namespace="platform", service=portal)
    holds = lambda: waiting() >= WAITING  # noqa: E731
    summary = "environments have been waiting for their route for a while"
    lab.alert("EnvironmentsWithoutRoute", holds, summary, 6, namespace="platform", service=portal)
    await lab.until(lambda: len(environments.up) == KEPT)
    await lab.until(lab.is_well)
    yield
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": NUMBER_OR_TEXT}}]
    widened = partial(lab.also, "it lets the value be so", by, "update", "CustomResourceDefinition", "")
    await widened(f"{plural}.{group}", {"spec": {"versions": versions}})
    await lab.pause(1)
    await lab.roll(by, "platform", operator, NEXT_CHART)
    await rolled(lab, "platform", operator, NEXT_CHART)
    await lab.pause(lab.rng.uniform(6, 14))
    never = {"spec": {"idleMinutes": "never"}}
    await lab.culprit(team, "update", kind.name, "platform", own["metadata"]["name"], never)
