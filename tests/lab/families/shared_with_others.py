"""What one shares with others: who tells of all events, an edge with all its customers, an address of the way out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, changes, every, informer
from tests.lab.scenario import family

USUALLY, AT_MOST = 12, 72
"""Sessions that users want at the same time, on other days and now."""
ASKS_FOR, GIVEN_UP_SECONDS, AT_ONCE = "3", 8.0, 8
"""Processors of a session, after which one that did not come up is tried anew, and how many are made at a look."""
OWN_MIB, EACH_MIB, LIMIT_MIB = 84.0, 0.8, 128
"""Of what tells of events, of each that waits to be told, and what it may have."""
TOLD_A_SECOND = 2.5


@dataclass
class _Hub:
    """It makes a pod for each session that is wanted."""

    namespace: str
    name: str
    wanted: float = USUALLY
    made: int = 0
    since: dict[str, float] = field(default_factory=dict)

    async def spawn(self, process: Process) -> None:
        where = f"{path('Pod', self.namespace)}?labelSelector=app.kubernetes.io/name={self.name}"
        items = (await process.api.call("GET", where)).body.get("items", [])
        there = [one for one in items if "deletionTimestamp" not in one["metadata"]]
        at = now().timestamp()
        for one in there:
            name = one["metadata"]["name"]
            is_late = at - self.since.setdefault(name, at) > GIVEN_UP_SECONDS
            if is_late and one.get("status", {}).get("phase") == "Pending":
                await process.api.call("DELETE", path("Pod", self.namespace, name))
        for _ in range(min(AT_ONCE, int(self.wanted) - len(there))):
            self.made += 1
            await process.api.call("POST", path("Pod", self.namespace), self._pod())

    def _pod(self) -> Json:
        resources = {"requests": {"cpu": ASKS_FOR, "memory": "1Gi"}}
        container = {"name": "session", "image": "registry.corp.example/platform/session:24.04", "resources": resources}
        meta = {"name": f"{self.name}-{self.made:04}", "labels": {"app.kubernetes.io/name": self.name}}
        return {"metadata": meta, "spec": {"containers": [container], "restartPolicy": "Never"}}


@dataclass
class _Teller:
    """It hands each event on; what waits for that is in its memory."""

    waiting: float = 0.0

    def hear(self, _: Json) -> None:
        self.waiting += 1

    async def send(self, _: Process) -> None:
        self.waiting = max(0.0, self.waiting - TOLD_A_SECOND / 2)

    async def run(self, process: Process) -> None:
        self.waiting = 0.0
        await both(lambda one: changes(one, path("Event"), self.hear), every(0.5, self.send))(process)

    def check(self, container: Container) -> Problem | None:
        needed = OWN_MIB + EACH_MIB * self.waiting
        is_too_much = container.seconds > 2 and needed > LIMIT_MIB
        return Problem("oom", f"needs {needed:.0f}Mi, may have {LIMIT_MIB}Mi") if is_too_much else None


@family(
    "More users than ever open a session, more than there is room for: each that finds none is told of, given up and"
    " tried anew. What hands on all events of the cluster gets many times as many as it can hand on, keeps them in its"
    " memory, and is killed for it again and again.",
    culprit=False,
    joined=46,
)
async def told_of_each(lab: Lab) -> AsyncIterator[None]:
    """As the keeper of a cluster tells of a storm of events on pods without a node (shepherdjerred/monorepo 675)."""
    home, name = "monitoring", lab.rng.choice(("event-exporter", "event-router", "event-shipper"))
    namespace, hub = lab.rng.choice((("media", "studio-session"), ("search", "lab-session"), ("shop", "demo-session")))
    sessions, teller = _Hub(namespace, hub), _Teller()
    reads = ("", "events", "get,list,watch")
    app = await lab.controller(home, name, teller.run, reads, replicas=1, tag="1.7.0", memory=f"{LIMIT_MIB}Mi")
    app.check = teller.check
    spawns = every(1, sessions.spawn)
    await lab.controller(namespace, f"{hub}-hub", spawns, ("", "pods", "list,create,delete"), replicas=1, tag="5.2.1")
    await lab.until(lambda: backends(lab.world, home, name) and sessions.made >= USUALLY)
    restarted = lab.rate(lambda: restarts(lab.world, home, name), 0.052, seconds=38)  # two of them
    summary = f"pods of {home}/{name} are restarting"
    lab.alert("KubePodRestarting", restarted, summary, 3, namespace=home, deployment=name)
    lab.alert_lacking(home, name, seconds=7)
    waiting = lambda: teller.waiting  # noqa: E731
    lab.measure("event_exporter_queue_length", waiting, namespace=home, service=name)
    wanted = lambda: sessions.wanted  # noqa: E731
    lab.measure("hub_sessions_wanted", wanted, namespace=namespace, service=f"{hub}-hub")

    async def come() -> None:
        while sessions.wanted < AT_MOST:
            await asyncio.sleep(1)
            sessions.wanted = min(AT_MOST, sessions.wanted + lab.rng.uniform(2, 6))

    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    lab.start(come())


CUSTOMERS = ("acorn", "birch", "cedar", "dogwood", "elm", "fir", "gorse", "hazel")
BEFORE_FAULT, WITH_FAULT = "7.3.2", "7.4.0"
FAILING = 0.85
"""The share of requests that an edge fails while its fault shows."""


def _settings(ttl: int, *, compressed: bool, segmented: bool = False) -> str:
    said = {True: "on", False: "off"}
    return f"ttl: {ttl}\ncompress: {said[compressed]}\nsegmented: {said[segmented]}\n"


def _is_struck(container: Container) -> bool:
    """The release breaks on segments that are compressed, whoever's they are."""
    is_it = any("compress: on" in one and "segmented: on" in one for one in container.config.values())
    return container.tag == WITH_FAULT and is_it


@family(
    "Customers of an edge change their settings by themselves, all day. One of them turns on a thing that they may: a"
    " release of nearly three weeks ago has a fault that shows with just that and what else they have on, and every"
    " process of the edge fails most requests, of all customers.",
    joined=46,
)
async def valid_setting(lab: Lab) -> AsyncIterator[None]:
    """As Fastly tells of 8 June 2021 (SREGym/SREGym 791 has it)."""
    namespace, name = lab.rng.choice((("media", "edge-cache"), ("shop", "store-edge"), ("search", "results-edge")))
    portal, known = "customer-portal", f"{name}-customers"
    kept = {one: (lab.rng.randrange(60, 900), number % 2 == 0) for number, one in enumerate(CUSTOMERS)}
    texts = {f"{one}.yaml": _settings(ttl, compressed=compressed) for one, (ttl, compressed) in kept.items()}
    texts[f"{CUSTOMERS[1]}.yaml"] = _settings(kept[CUSTOMERS[1]][0], compressed=False, segmented=True)
    await lab.apply(objects.config_map(namespace, known, **texts))
    fails = lambda container: FAILING if _is_struck(container) else 0.0  # noqa: E731
    like = App("", asked=lambda: 48.0, failing=fails, fails_with=lambda _: "503")
    await lab.app(namespace, name, like=like, replicas=4, tag=BEFORE_FAULT, config=known)
    rights = ("", "configmaps", "get,list,watch,patch")
    watches = informer(path("ConfigMap", namespace))
    await lab.controller(namespace, portal, watches, rights, replicas=1, tag="3.11.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, portal))
    await lab.robot(portal, namespace, portal, f"{portal}/3.11.0")
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)

    async def as_ever() -> None:
        while True:
            await asyncio.sleep(lab.rng.uniform(6, 13))
            one = lab.rng.choice(CUSTOMERS[2:])
            text = _settings(lab.rng.randrange(60, 900), compressed=kept[one][1])
            await lab.edit(portal, "ConfigMap", namespace, known, {"data": {f"{one}.yaml": text}})

    await lab.until(lab.is_well)
    lab.start(as_ever())
    async with before(lab, days=19):
        await lab.pause(4)
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, WITH_FAULT)
        await rolled(lab, namespace, name, WITH_FAULT)
        await lab.pause(14)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    text = _settings(kept[CUSTOMERS[0]][0], compressed=True, segmented=True)
    body = {"data": {f"{CUSTOMERS[0]}.yaml": text}}
    await lab.culprit(portal, "update", "ConfigMap", namespace, known, body)


NEEDED = 0.6
"""The share of requests that need an answer from outside."""


@family(
    "What a partner outside answers is asked from one address, which all clusters of the company share as their way"
    " out. In another one somebody tries how much an app stands, and the partner bans the address for it: each call"
    " from here is answered with 403, also those of apps that ask as seldom as ever.",
    culprit=False,
    joined=46,
)
async def shared_way_out(lab: Lab) -> AsyncIterator[None]:
    """As those who serve images to all clusters tell of a ban that was unfair to shared addresses (k8s.io 7156)."""
    (namespace, name, front), other = lab.rng.choice(
        (
            (("shop", "delivery-times", "delivery-page"), ("payments", "address-check")),
            (("media", "event-map", "tour-page"), ("shop", "branch-finder")),
            (("search", "nearby", "nearby-page"), ("media", "photo-places")),
        )
    )
    host, banned = lab.rng.choice(("api.places.example", "api.routes.example")), [False]
    team, replicas = lab.rng.choice(("alice", "carol", "argocd")), lab.rng.choice((5, 6))
    refused = lambda _: NEEDED if banned[0] else 0.0  # noqa: E731
    rates = {(namespace, name): 26.0, other: 7.0}
    for place, rate in rates.items():
        asked = lambda rate=rate: rate  # noqa: E731
        like = App("", abroad=(host,), asked=asked, failing=refused, fails_with=lambda _: "502")
        await lab.app(*place, like=like, replicas=3, tag="1.14.2")
        for code in ("200", "403"):
            answered = lambda rate=rate, code=code: rate * NEEDED * (banned[0] == (code == "403"))  # noqa: E731
            told = {"namespace": place[0], "service": place[1], "host": host, "code": code}
            lab.measure("http_client_responses_total", lab.adding_up(answered), "counter", **told)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.1.0")
    await lab.until(lambda: all(len(backends(lab.world, *one)) == 3 for one in rates))
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in rates:
        lab.alert_errors(*one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": replicas}})
    await lab.pause(lab.rng.uniform(8, 14))
    banned[0] = True
