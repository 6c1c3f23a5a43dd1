"""Instances that an operator renders: all of them anew at once, and by two operators in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from zlib import crc32

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

CACHES = "cache.corp.example"
OPERATOR = "cache-operator"
OWN_RULES = (CACHES, "cacheclusters", "get,list,watch"), ("apps", "statefulsets", "get,list,watch,create,patch")


@dataclass
class _Caches:
    """An operator's kind, whose instances need a while to read their data before they answer."""

    lab: Lab
    start_seconds: float
    places: list[tuple[str, str]] = field(default_factory=list)

    async def define(self) -> Kind:
        kind = await self.lab.custom("CacheCluster", CACHES, ANY)
        await self.lab.served(kind)
        return kind

    async def add(self, namespace: str, name: str) -> None:
        """An instance with its Service."""
        image = f"registry.corp.example/{namespace}/{name}"
        self.lab.apps[image] = App(image, serves=False, start_seconds=self.start_seconds)
        meta = {"namespace": namespace, "name": name}
        await self.lab.apply({"kind": "CacheCluster", "metadata": meta, "spec": {"version": "7.2.5", "size": 1}})
        await self.lab.apply(objects.service(namespace, name))
        self.places.append((namespace, name))

    async def is_there(self) -> None:
        for place in self.places:
            await self.lab.until(partial(backends, self.lab.world, *place))

    async def reconcile(self, process: Process) -> None:
        """Each instance's StatefulSet is as this version of the operator renders it."""
        listed = await process.api.call("GET", path("CacheCluster"))
        for one in listed.body.get("items", ()):
            wanted = _rendered(one, process.tag)
            meta = one["metadata"]
            where = path("StatefulSet", meta["namespace"], meta["name"])
            found = await process.api.call("GET", where)
            if found.status == 404:
                await process.api.call("POST", path("StatefulSet", meta["namespace"]), wanted)
            elif found.ok and _differs(found.body, wanted):
                await process.api.call("PATCH", where, {"spec": {"template": wanted["spec"]["template"]}})


RENDERED_BY, CHECKSUM = f"{CACHES}/rendered-by", f"{CACHES}/config-checksum"


def _rendered(cluster: Json, tag: str) -> Json:
    """A later operator writes another configuration file, so its checksum is another one."""
    meta = cluster["metadata"]
    image = f"registry.corp.example/{meta['namespace']}/{meta['name']}:{cluster['spec']['version']}"
    size = int(cluster["spec"]["size"])
    startup = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 120}
    made = objects.deployment(
        meta["namespace"], meta["name"], image, kind="StatefulSet", replicas=size, startup=startup
    )
    owner = {"apiVersion": f"{CACHES}/v1", "kind": "CacheCluster", "name": meta["name"], "uid": meta["uid"]}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    notes = {RENDERED_BY: f"{OPERATOR}-{tag}", CHECKSUM: f"{crc32(tag.encode()):08x}"}
    made["spec"]["template"]["metadata"]["annotations"] = notes
    return made


def _differs(there: Json, wanted: Json) -> bool:
    one, other = (
        (spec["metadata"].get("annotations", {}).get(CHECKSUM), spec["spec"]["containers"][0]["image"])
        for spec in (there["spec"]["template"], wanted["spec"]["template"])
    )
    return one != other


async def _callers(lab: Lab, places: list[tuple[str, str, str]], tag: str) -> None:
    """Of each instance an app that cannot do without it, by a public name."""
    for namespace, name, caller in places:
        like = App("", upstreams=((namespace, name),), asked=lambda: 16.0)
        await lab.app(namespace, caller, like=like, replicas=2, tag=tag)
        await lab.until(partial(backends, lab.world, namespace, caller))
        await publish(lab, namespace, caller)
        lab.alert_ingress_errors(namespace, namespace)
        lab.alert_lacking(namespace, caller)


@family(
    "An operator is upgraded. Its new version renders the instances that it manages somewhat otherwise, and brings all"
    " of them to that at once: each is restarted, reads its data for a long while, and the apps of all teams that keep"
    " something there are away together.",
    joined=78,
)
async def all_made_anew(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have upgraded an operator of databases or caches by day."""
    places = [
        ("shop", "basket-cache", "baskets"),
        ("media", "feed-cache", "feeds"),
        ("search", "result-cache", "results"),
    ]
    by, other = lab.rng.choice(("alice", "carol", "ci", "flux")), lab.rng.choice(("argocd", "bob"))
    minor = lab.rng.randrange(4, 20)
    caches = _Caches(lab, start_seconds=40.0)
    await caches.define()
    tag = f"0.{minor}.2"
    program = every(1.5, caches.reconcile)
    await lab.controller("platform", OPERATOR, program, *OWN_RULES, replicas=1, tag=tag)
    recreate = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    await lab.edit("admin", "Deployment", "platform", OPERATOR, recreate)
    await rolled(lab, "platform", OPERATOR, tag)
    for namespace, name, _ in places:
        await caches.add(namespace, name)
    await caches.is_there()
    await _callers(lab, places, "3.0.2")
    await lab.until(lab.is_well)
    yield
    namespace, _, caller = lab.rng.choice(places)
    await lab.roll(other, namespace, caller, "3.0.3")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.roll(by, "platform", OPERATOR, f"0.{minor + 1}.0", culprit=True)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(other, "ConfigMap", "payments", "ledger", {"data": {"TIMEOUT_MS": "900"}})


@family(
    "A team installs an operator into its own namespace by a chart, and does not know that the platform has one of"
    " another version that sees to all namespaces. Both write the same objects, each as it renders them: what they"
    " manage is restarted again and again, and hardly ever answers.",
    joined=78,
)
async def one_in_each(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose StatefulSet had a new revision each second."""
    namespace, name, caller = lab.rng.choice(
        (("shop", "offer-cache", "offers"), ("media", "cover-cache", "covers"), ("payments", "rate-cache", "rates"))
    )
    by = lab.rng.choice(("alice", "bob", "ci"))
    minor = lab.rng.randrange(4, 20)
    caches = _Caches(lab, start_seconds=9.0)
    await caches.define()
    program = every(1.5, caches.reconcile)
    await lab.controller("platform", OPERATOR, program, *OWN_RULES, replicas=1, tag=f"0.{minor}.2")
    await rolled(lab, "platform", OPERATOR, f"0.{minor}.2")
    await caches.add(namespace, name)
    await caches.is_there()
    await _callers(lab, [(namespace, name, caller)], "2.7.0")
    image = f"registry.corp.example/{namespace}/{OPERATOR}"
    lab.apps[image] = App(image, program=program, serves=False)
    await lab.until(lab.is_well)
    yield
    await lab.roll("argocd", namespace, caller, "2.7.1")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.apply(objects.account(namespace, OPERATOR), by=by)
    own = f"{namespace}-{OPERATOR}"
    bound = objects.binding(own, OPERATOR, namespace, OPERATOR)
    why = "it lets the second instance write, and came with it"
    await lab.also(why, by, "create", "ClusterRoleBinding", "", own, bound)
    second = objects.deployment(
        namespace, OPERATOR, f"{image}:0.{minor + lab.rng.randrange(1, 4)}.0", replicas=1, account=OPERATOR
    )
    await lab.culprit(by, "create", "Deployment", namespace, OPERATOR, second)
