"""What is agreed on among several: a master of a store's members, a leader of an operator's replicas."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every
from tests.lab.scenario import family

MEMBERS, COUNTED = 3, "discovery.zen.minimum_master_nodes"
UNHEARD_SECONDS = 3.0
"""After which members take one of them for gone, and choose a master anew."""
WRITES = (0.55, 0.75)
"""The share of what a search engine is asked that writes, at least and at most."""


@family(
    "At a maintenance long ago somebody counted the members of a search engine's cluster as four, while there are"
    " three: since then three of them have to agree on a master. One machine dies, as machines do, and the two that"
    " are left take no write, though each of them is well.",
    culprit=False,
    joined=51,
)
async def counted_as_four(lab: Lab) -> AsyncIterator[None]:
    """As those who run Bonsai tell of a region of theirs (status.bonsai.io, n270nfrj99zb)."""
    namespace, name, front = lab.rng.choice(
        (
            ("search", "listing-intake", "listing-desk"),
            ("media", "clip-intake", "clip-desk"),
            ("shop", "offer-intake", "merchant-desk"),
        )
    )
    engine, writes, unled = f"{namespace}-elasticsearch", lab.rng.uniform(*WRITES), [False]
    image = f"registry.corp.example/{namespace}/{engine}"

    async def elect() -> None:
        """As many have to hear each other as their settings say."""
        since: datetime | None = None
        while True:
            await asyncio.sleep(0.5)
            heard = sum(one.app.image == image for one in lab.kubelets.running())
            settings = lab.world["ConfigMap"][namespace, engine]["data"]["elasticsearch.yml"]
            needed = int(settings.partition(f"{COUNTED}: ")[2].split("\n")[0])
            since = None if heard >= needed else since or now()
            unled[0] = since is not None and (now() - since).total_seconds() > UNHEARD_SECONDS

    refused = lambda _: writes if unled[0] else 0.0  # noqa: E731
    nodes = lambda: None if unled[0] else float(MEMBERS)  # noqa: E731
    settings = f"cluster.name: {namespace}\n{COUNTED}: 3\ndiscovery.zen.ping.unicast.hosts: {engine}\n"
    await lab.apply(objects.config_map(namespace, engine, **{"elasticsearch.yml": settings}))
    spread: Json = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app.kubernetes.io/name": engine}}
    like = App("", serves=False, failing=refused, fails_with=lambda _: "503", asked=lambda: 42.0)
    await lab.app(
        namespace,
        engine,
        like=like,
        kind="StatefulSet",
        replicas=MEMBERS,
        tag="6.8.23",
        config=engine,
        topologySpreadConstraints=[spread],
    )
    like = App("", upstreams=((namespace, engine),), asked=lambda: 24.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="3.9.1")
    like = App("", upstreams=((namespace, name),), asked=lambda: 16.0)
    await lab.app(namespace, front, like=like, replicas=2, tag="1.22.0")
    await lab.until(lambda: len(backends(lab.world, namespace, engine)) == MEMBERS)
    await lab.until(lambda: backends(lab.world, namespace, name) and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, engine, name)
    lab.measure("elasticsearch_cluster_health_number_of_nodes", nodes, namespace=namespace, service=engine)
    lab.alert_errors(namespace, name, 0.3)  # more than what one member that is gone makes of it
    summary = f"the health of the cluster {namespace}/{engine} is not known: nobody is its master"
    lab.alert("ElasticsearchHealthUnknown", lambda: unled[0], summary, 8, namespace=namespace, service=engine)
    lab.start(elect())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 10))
    lab.kubelets.crash(lab.rng.choice(pods(lab.world, namespace, engine))["spec"]["nodeName"])


GROUP = "messaging.corp.example"
USUAL, LONG = "15s", "1h0m0s"
SECONDS = {USUAL: 15, LONG: 3600}
RENEWED_EVERY, TRIED_EVERY, LOOKS_EVERY, ORDERED_EVERY = 3.0, 2.0, 2.0, 3.0
"""Seconds between two renewals, two tries of who does not lead, two looks of who does, and two orders."""
LONGEST = timedelta(seconds=26)
"""For which an order may wait."""
DURATION = "--leader-elect-lease-duration"


@dataclass
class _Operator:
    """Of its replicas that one works which holds the Lease; whoever ends does not give it back."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    holder: str = ""
    """Which pod has led last."""

    async def run(self, process: Process) -> None:
        for pause in itertools.repeat(TRIED_EVERY):
            if await self._acquire(process):
                self.holder = process.see().pod["metadata"]["name"]
                break
            await asyncio.sleep(pause)
        await both(every(RENEWED_EVERY, self._renew), every(LOOKS_EVERY, self._look))(process)

    def _held(self, process: Process) -> Json:
        [told] = [one.split("=")[1] for one in process.see().spec["args"] if one.startswith(DURATION)]
        at = f"{stamp(now())[:-1]}000Z"
        spec = {"holderIdentity": process.see().pod["metadata"]["name"], "renewTime": at}
        return {"spec": {**spec, "leaseDurationSeconds": SECONDS[told]}}

    async def _acquire(self, process: Process) -> bool:
        found = await process.api.call("GET", path("Lease", self.namespace, self.name))
        if found.status == 404:
            body = {"metadata": {"name": self.name}, **self._held(process)}
            return (await process.api.call("POST", path("Lease", self.namespace), body)).ok
        if not found.ok:
            return False
        held = found.body["spec"]
        until = datetime.fromisoformat(held["renewTime"]) + timedelta(seconds=held["leaseDurationSeconds"])
        if now() < until:
            return False
        body = {"metadata": {"resourceVersion": found.body["metadata"]["resourceVersion"]}, **self._held(process)}
        return (await process.api.call("PATCH", path("Lease", self.namespace, self.name), body)).ok

    async def _renew(self, process: Process) -> None:
        await process.api.call("PATCH", path("Lease", self.namespace, self.name), self._held(process))

    async def _look(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path(self.namespace))
        for one in listed.body["items"] if listed.ok else ():
            if "status" not in one:
                where = self.kind.path(self.namespace, one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": {"phase": "Ready"}})


@family(
    "An operator's leader has changed whenever the API server was slow for a moment, so its lease is made an hour long."
    " Nobody gives a lease back at its end: with the operator's next, harmless release the hour of a pod that is gone"
    " has just begun, no replica works, and whoever orders something waits.",
    joined=51,
)
async def hour_held(lab: Lab) -> AsyncIterator[None]:
    """As those tell who make a leader stay, and those who wait for one that is gone (cloudbeat 2588 and 336)."""
    name = lab.rng.choice(("topic-operator", "queue-operator", "stream-operator"))
    namespace, portal = "platform", f"{name.removesuffix('-operator')}-portal"
    kind = await lab.custom({"t": "Topic", "q": "Queue", "s": "Stream"}[name[0]], GROUP, ANY)
    by, team, number = lab.rng.choice(("alice", "flux", "bob")), lab.rng.choice(("ci", "argocd", "carol")), [0]
    operator = _Operator(lab, kind, namespace, name)
    await lab.served(kind)

    async def order(process: Process) -> None:
        number[0] += 1
        made = {"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": {"name": f"team-{number[0]:03}"}}
        await process.api.call("POST", kind.path(namespace), {**made, "spec": {"partitions": 6}})

    def is_late() -> bool:
        waiting = (one for one in lab.world[kind.name].values() if "status" not in one)
        return any(now() - datetime.fromisoformat(one["metadata"]["creationTimestamp"]) > LONGEST for one in waiting)

    def flags(duration: str) -> list[str]:
        return ["--leader-elect=true", f"{DURATION}={duration}", "--leader-elect-retry-period=2s"]

    rule = (GROUP, kind.plural, "get,list,create")
    await lab.controller(namespace, portal, every(ORDERED_EVERY, order), rule, replicas=1, tag="5.2.0")
    rules = ("coordination.k8s.io", "leases", "get,create,patch"), (GROUP, kind.plural, "get,list,watch,patch")
    await lab.apply(objects.account(namespace, name))
    await lab.apply(objects.cluster_role(name, *rules))
    await lab.apply(objects.binding(name, name, namespace, name))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, program=operator.run, serves=False)
    made = objects.deployment(namespace, name, f"{image}:0.14.1", account=name)
    made["spec"]["template"]["spec"]["containers"][0]["args"] = flags(USUAL)
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, "0.14.1")
    lab.reserve(namespace, name, portal)
    summary = f"{kind.plural} that were ordered have not been made for long"
    lab.alert("OrdersNotReconciled", is_late, summary, 3, namespace=namespace, kind=kind.name)
    await lab.until(lambda: any("status" in one for one in lab.world[kind.name].values()))
    await lab.until(lab.is_well)
    yield
    was = {pod["metadata"]["name"] for pod in pods(lab.world, namespace, name)}
    await lab.roll(by, namespace, name, "0.14.1", culprit=True, args=flags(LONG))
    await lab.until(lambda: operator.holder not in was)
    await lab.pause(lab.rng.uniform(6, 14))
    await lab.roll(team, namespace, name, "0.14.2")
