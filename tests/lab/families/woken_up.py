"""Who is woken up for a look: the pilot of an operator, which keeps the definition of its kind as it knows it."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every
from tests.lab.scenario import family

GROUP, HOME, TRIALS = "developers.corp.example", "platform", "trials"
PILOT, CURRENT = "0.9.4", "2.3.1"
"""Versions of the operator: the first one knows a single version of its API."""
LOOKS = {PILOT: 5.0, CURRENT: 6.0}
"""Seconds between two looks of each at the definition."""
ORDERS_EVERY, KEPT = 0.7, 6
PAGES = 5.0
"""Requests a second to a console that order nothing."""


def _versions(*names: str) -> list[Json]:
    """Stored in the first one, which all of them are converted to by their name alone."""
    schema = {"openAPIV3Schema": ANY}
    return [{"name": one, "served": True, "storage": one == "v1", "schema": schema} for one in names]


OWN = {PILOT: _versions("v1"), CURRENT: _versions("v1", "v2")}


@dataclass
class _Playgrounds:
    """A console where people order a playground, an operator that makes it, and another one of an older version."""

    kind: Kind
    answered: deque[tuple[float, bool]] = field(default_factory=deque)
    """When orders were answered, and whether one was refused."""
    refused: int = 0

    @property
    def newest(self) -> str:
        return self.kind.path(HOME).replace("/v1/", "/v2/")

    async def define(self, process: Process) -> None:
        """As an operator that brings its own definition along: what is otherwise there is put right."""
        where = path("CustomResourceDefinition", None, f"{self.kind.plural}.{GROUP}")
        found = await process.api.call("GET", where)
        wanted = OWN[process.tag]
        if not found.ok or [one["name"] for one in found.body["spec"]["versions"]] == [one["name"] for one in wanted]:
            return
        await process.api.call("PATCH", where, {"spec": {"versions": wanted}})

    async def make(self, process: Process) -> None:
        """What is ordered, by the newest version that an operator knows; the pilot has a namespace of its own."""
        where = self.newest if process.tag == CURRENT else self.kind.path(TRIALS)
        listed = await process.api.call("GET", where)
        for one in listed.body.get("items", []) if listed.ok else ():
            if not one.get("status", {}).get("phase"):
                done = {"status": {"phase": "Ready", "operator": process.tag}}
                await process.api.call("PATCH", f"{where}/{one['metadata']['name']}", done)

    async def order(self, process: Process) -> None:
        name = f"playground-{process.rng.randrange(10**6):06}"
        body: Json = {"apiVersion": f"{GROUP}/v2", "kind": self.kind.name, "metadata": {"name": name}}
        body["spec"] = {"template": process.rng.choice(("small", "java", "notebook")), "hours": 4}
        done = await process.api.call("POST", self.newest, body)
        self.answered.append((now().timestamp(), not done.ok))
        self.refused += not done.ok
        listed = await process.api.call("GET", self.newest)
        old = sorted(listed.body.get("items", []), key=lambda one: str(one["metadata"]["creationTimestamp"]))
        for one in old[:-KEPT]:
            await process.api.call("DELETE", f"{self.newest}/{one['metadata']['name']}")

    def failed(self) -> float:
        """The share of a console's requests of the last seconds that were orders which were refused."""
        while self.answered and self.answered[0][0] < now().timestamp() - 6:
            self.answered.popleft()
        orders = len(self.answered) / 6
        return sum(refused for _, refused in self.answered) / 6 / (PAGES + orders)


def _looking(process: Process) -> float:
    return LOOKS[process.tag]


@family(
    "The pilot of an operator was scaled to nothing a year ago, when the operator itself came. Somebody has it run once"
    " more, to see how it did a thing. Both bring the definition of their kind along and put it right at each look, and"
    " the pilot knows no second version: that one is served and not served in turn, and orders by it are refused.",
    joined=58,
)
async def pilot_woken(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had two operators of one kind, each of which installs its own definition."""
    by = lab.rng.choice(("alice", "bob", "carol"))
    desk = lab.rng.choice(("playground-desk", "developer-portal", "order-desk"))
    kind = await lab.custom("Playground", GROUP, ANY)
    playgrounds = _Playgrounds(kind)
    await lab.served(kind)
    await lab.namespace(TRIALS)
    definition = f"{kind.plural}.{GROUP}"
    await lab.edit("admin", "CustomResourceDefinition", "", definition, {"spec": {"versions": OWN[CURRENT]}})
    for pause in itertools.repeat(0.5):
        if (await lab.who["admin"].call("GET", playgrounds.newest)).ok:
            break
        await asyncio.sleep(pause)
    rules = (
        (GROUP, kind.plural, "get,list,watch,patch"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "get,list,watch,patch"),
    )
    program = both(every(_looking, playgrounds.define), every(1.5, playgrounds.make))
    await lab.controller(HOME, "playground-operator", program, *rules, replicas=1, tag=CURRENT)
    await lab.controller(TRIALS, "playground-operator-pilot", program, *rules, replicas=0, tag=PILOT)
    await rolled(lab, HOME, "playground-operator", CURRENT)
    ordering = (GROUP, kind.plural, "get,list,create,delete")
    like = await lab.controller(HOME, desk, every(ORDERS_EVERY, playgrounds.order), ordering, replicas=1, tag="5.1.0")
    like.serves, like.asked = True, lambda: PAGES + 1 / ORDERS_EVERY
    like.failing, like.fails_with = (lambda _: playgrounds.failed()), (lambda _: "502")
    await lab.until(lambda: backends(lab.world, HOME, desk))
    await publish(lab, HOME, desk)
    told = {"namespace": HOME, "service": desk}
    lab.measure("orders_refused_total", lambda: playgrounds.refused, "counter", **told)
    lab.alert_errors(HOME, desk, 0.05)
    lab.alert_ingress_errors(HOME, HOME, 0.05)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 9))
    await lab.culprit(by, "update", "Deployment", TRIALS, "playground-operator-pilot", {"spec": {"replicas": 1}})
