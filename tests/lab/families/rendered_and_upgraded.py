"""What a chart brings along, and what it leaves behind: an object, a definition, an account by its old name."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, CrashError, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

HELM, RELEASED_BY = "helm.toolkit.fluxcd.io", ("flux-system", "helm-controller")
BROKERS = "messaging.corp.example"
ORDER = ("ConfigMap", "Service", "Deployment")
"""In which Helm writes what it renders."""


def _rendered(namespace: str, name: str, values: Json) -> dict[str, Json]:
    """The team's chart: what is not said is as in the chart's own values, by which there is no Service and no
    ConfigMap."""
    settings, image = values.get("configuration", {}), values["image"]
    found: dict[str, Json] = {}
    if settings.get("create", False):
        found["ConfigMap"] = objects.config_map(namespace, name, **settings.get("data", {}))
    if values.get("service", {}).get("enabled", False):
        found["Service"] = objects.service(namespace, name)
    whole = objects.deployment(
        namespace, name, f"{image['repository']}:{image['tag']}", replicas=values["replicaCount"], config=name
    )
    mark = hashlib.sha256(json.dumps(found.get("ConfigMap", {}), sort_keys=True).encode()).hexdigest()
    whole["spec"]["template"]["metadata"]["annotations"] = {"checksum/config": mark}
    found["Deployment"] = whole
    for one in found.values():
        labels = {**one["metadata"].get("labels", {}), f"{HELM}/name": name, f"{HELM}/namespace": namespace}
        one["metadata"]["labels"] = labels
    return found


@dataclass
class _Releases:
    """What installs charts as HelmReleases say: an upgrade writes what is rendered and deletes what is not any more."""

    lab: Lab
    kind: Kind
    done: dict[tuple[str, str], tuple[Json, dict[str, Json]]] = field(default_factory=dict)
    """Of each release what was asked for when it was installed last, and what was rendered of that."""
    revisions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Of each release the names of the Secrets that Helm keeps it in."""

    async def reconcile(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", ()):
            meta, values = one["metadata"], one["spec"]["values"]
            place = meta["namespace"], meta["name"]
            seen, before = self.done.get(place, ({}, {}))
            if seen != values:
                wanted = _rendered(*place, values)
                await self._upgrade(process, place, before, wanted)
                self.done[place] = values, wanted
                await self._told(process, {**one, "kind": self.kind.name}, len(self._kept(place)))

    async def _upgrade(self, process: Process, place: tuple[str, str], before: Json, wanted: Json) -> None:
        namespace, name = place
        for kind in ORDER:
            if kind in wanted and kind in before:
                await process.api.call("PATCH", path(kind, namespace, name), wanted[kind])
            elif kind in wanted:
                await process.api.call("POST", path(kind, namespace), wanted[kind])
        for kind in reversed(ORDER):
            if kind in before and kind not in wanted:
                await process.api.call("DELETE", path(kind, namespace, name))
        revisions = self._kept(place)
        revisions.append(f"sh.helm.release.v1.{name}.v{len(revisions) + 1}")
        rendered = base64.b64encode(json.dumps(wanted).encode()).decode()
        labels = {"owner": "helm", "name": name, "version": str(len(revisions))}
        secret = {"metadata": {"name": revisions[-1], "labels": labels}, "type": "helm.sh/release.v1"}
        await process.api.call("POST", path("Secret", namespace), {**secret, "data": {"release": rendered}})

    def _kept(self, place: tuple[str, str]) -> list[str]:
        return self.revisions.setdefault(place, [])

    async def _told(self, process: Process, one: Json, revision: int) -> None:
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        message = f"Helm upgrade succeeded for release {namespace}/{name}.v{revision} with chart web-app@0.14.2"
        ready = {"type": "Ready", "status": "True", "reason": "UpgradeSucceeded", "message": message}
        status = {"conditions": [{**ready, "lastTransitionTime": f"{stamp(now())[:19]}Z"}]}
        await process.api.call("PATCH", self.kind.path(namespace, name), {"status": status})
        await tell(process, one, "Normal", "UpgradeSucceeded", message, by="helm-controller")


@family(
    "The values of a team's chart are put in order, and what an app's Service, or its ConfigMap, is rendered by is"
    " where the chart does not look for it: it is rendered without. What installs charts deletes what is not rendered"
    " any more, and the app goes on to need it.",
    joined=87,
)
async def rendered_without(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose values were one level too deep."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "size-guides", "guide-page"),
            ("payments", "bank-codes", "transfer-form"),
            ("media", "episode-lists", "series-page"),
            ("search", "filter-counts", "filters-page"),
        )
    )
    minor, is_service = lab.rng.randrange(2, 50), lab.rng.random() < 0.5
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, asked=lambda: 22.0)
    kind = await lab.custom("HelmRelease", HELM, ANY)
    await lab.served(kind)
    releases = _Releases(lab, kind)
    await lab.controller(*RELEASED_BY, every(1.5, releases.reconcile), ("*", "*", "*"), replicas=1, tag="v1.3.0")
    await rolled(lab, *RELEASED_BY, "v1.3.0")
    data = {"LOG_LEVEL": "info", "CACHE_SECONDS": "60"}
    values: Json = {
        "replicaCount": 3,
        "image": {"repository": image, "tag": f"2.{minor}.0"},
        "service": {"enabled": True, "port": 80},
        "configuration": {"create": True, "data": data},
    }
    chart = {"spec": {"chart": "web-app", "version": "0.14.2", "sourceRef": {"kind": "HelmRepository", "name": "corp"}}}
    meta = {"namespace": namespace, "name": name}
    version = {"apiVersion": f"{HELM}/v1", "kind": "HelmRelease", "metadata": meta}
    await lab.apply({**version, "spec": {"interval": "10m", "chart": chart, "values": values}})
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await lab.until(lambda: backends(lab.world, namespace, name))
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 6))
        await change_page(lab, namespace, front)

    async def sets(change: Json) -> None:
        await lab.edit("flux", "HelmRelease", namespace, name, {"spec": {"values": change}})

    await sets({"image": {"tag": f"2.{minor}.1"}})
    await lab.pause(lab.rng.uniform(9, 14))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 7))
    moved: Json = (
        {"service": None, "networking": {"service": values["service"]}}
        if is_service
        else {"configuration": None, "config": values["configuration"]}
    )
    await lab.culprit("flux", "update", "HelmRelease", namespace, name, {"spec": {"values": moved}})
    lab.start(afterwards())


@dataclass
class _Operator:
    """Keeps what a kind's objects ask for; its next version also asks for another kind, or for another version."""

    lab: Lab
    kind: Kind
    later: str
    asks: str
    """The path that the later one asks at its start."""
    message: str

    async def run(self, process: Process) -> None:
        if process.tag == self.later:
            await self._start(process)
        while True:
            await self._look(process)
            await asyncio.sleep(1.5 * process.rng.uniform(0.9, 1.1))

    async def _start(self, process: Process) -> None:
        """It tries some times, as the API server may know of it in a moment."""
        for _ in range(4):
            if (await process.api.call("GET", self.asks)).status != 404:
                return
            await asyncio.sleep(0.8)
        raise CrashError(self.message)

    async def _look(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", ()):
            namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
            if not _is_ready(one):
                data = {"bootstrap.servers": "kafka.platform:9092", "topic": f"{namespace}.{name}"}
                body = objects.config_map(namespace, f"{name}-topic", **data)
                await process.api.call("POST", path("ConfigMap", namespace), body)
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": f"{stamp(now())[:19]}Z"}
                status = {"status": {"conditions": [ready], "partitions": one["spec"]["partitions"]}}
                await process.api.call("PATCH", self.kind.path(namespace, name), status)


def _is_ready(one: Json) -> bool:
    return any(each["status"] == "True" for each in one.get("status", {}).get("conditions", ()))


@family(
    "An operator is upgraded by its chart, and the definitions of its kinds are not, as Helm only ever installs those."
    " The new version looks for a kind, or for a version of one, that the cluster does not have, and ends at each"
    " start.",
    joined=87,
)
async def ahead_of_its_kinds(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of *no matches for kind*, and of the folder crds/."""
    name, minor = lab.rng.choice(("topic-operator", "stream-operator", "kafka-topics")), lab.rng.randrange(20, 40)
    by, is_kind = lab.rng.choice(("ci", "argocd", "flux", *TEAMS)), lab.rng.random() < 0.6
    earlier, later, place = f"0.{minor}.1", f"0.{minor + 1}.0", ("platform", name)
    kind = await lab.custom("Topic", BROKERS, ANY)
    await lab.served(kind)
    new, version, plural = ("TopicRetention", "v1", "topicretentions") if is_kind else ("Topic", "v2", "topics")
    why = f'no matches for kind "{new}" in version "{BROKERS}/{version}"'
    message = f"problem running manager: failed to wait for {new.lower()} caches to sync: {why}"
    operator = _Operator(lab, kind, later, f"/apis/{BROKERS}/{version}/{plural}", message)
    rules = (
        (BROKERS, "topics", "get,list,watch,patch"),
        ("", "configmaps", "get,list,watch,create,patch"),
    )
    await lab.controller(*place, operator.run, *rules, replicas=1, tag=earlier)
    await rolled(lab, *place, earlier)

    def topic(namespace: str, one: str) -> Json:
        spec = {"partitions": lab.rng.choice((6, 12, 24)), "replicas": 3, "config": {"retention.ms": "604800000"}}
        meta = {"namespace": namespace, "name": one}
        return {"apiVersion": f"{BROKERS}/v1", "kind": "Topic", "metadata": meta, "spec": spec}

    for namespace, one in (("shop", "orders"), ("payments", "settlements"), ("media", "uploads-done")):
        await lab.apply(topic(namespace, one))
    await lab.until(lambda: all(map(_is_ready, lab.world["Topic"].values())))
    crashes = lambda: restarts(lab.world, *place) > 2  # noqa: E731
    summary = f"containers of platform/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace="platform", deployment=name)
    lab.alert_stuck(*place)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.who["ci"].call("POST", path("Topic", "search"), topic("search", "queries-asked"))

    yield
    await lab.edit(lab.rng.choice(TEAMS), "Topic", "shop", "orders", {"spec": {"config": {"retention.ms": "86400000"}}})
    await lab.pause(lab.rng.uniform(4, 9))
    listed: list[Json] = [
        {"apiGroups": groups.split(","), "resources": resources.split(","), "verbs": verbs.split(",")}
        for groups, resources, verbs in ((BROKERS, "topics,topicretentions", rules[0][2]), rules[1])
    ]
    await lab.edit(by, "ClusterRole", "", name, {"rules": listed})
    await lab.pause(lab.rng.uniform(0.5, 1.5))
    await lab.roll(by, *place, later, culprit=True)
    lab.start(afterwards())


@dataclass
class _Keeper:
    """A controller that lists what it is to keep, and keeps it; how it goes on without a right, ``ends`` says."""

    ends: bool
    copied: list[float] = field(default_factory=list)
    """When it was last through."""

    async def run(self, process: Process) -> None:
        """Lists are asked for again, with a longer pause each time, until the time for that is up."""
        began, pause = now().timestamp(), 0.8
        while True:
            listed = await process.api.call("GET", path("ConfigMap"))
            if listed.ok:
                self.copied, pause = [now().timestamp()], 0.8
                await asyncio.sleep(2 * process.rng.uniform(0.9, 1.1))
                began = now().timestamp()
            elif self.ends and now().timestamp() - began > 6:
                why = "timed out waiting for cache to be synced"
                raise CrashError(f"problem running manager: failed to wait for configmap caches to sync: {why}")
            else:
                await asyncio.sleep(pause * process.rng.uniform(0.9, 1.1))
                pause = min(pause * 1.6, 4.0)


@family(
    "A chart's new version gives the ServiceAccount of a controller the name of its release. What binds it to its role"
    " is not of the chart, and still names the old one: the controller is forbidden to read what it keeps.",
    joined=87,
)
async def account_renamed(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *cannot list resource* for an account that was new to them."""
    name, prefix = lab.rng.choice(
        (("settings-copier", "platform"), ("banner-sync", "corp"), ("limits-keeper", "prod"), ("dashboard-sync", "obs"))
    )
    by, ends, minor = lab.rng.choice(("ci", "ci", "argocd", "flux")), lab.rng.random() < 0.6, lab.rng.randrange(2, 30)
    place, keeper, renamed = ("platform", name), _Keeper(ends), f"{prefix}-{name}"
    rule = ("", "configmaps,namespaces", "get,list,watch,create,update,patch")
    await lab.controller(*place, keeper.run, rule, replicas=1, tag=f"1.{minor}.0")
    await rolled(lab, *place, f"1.{minor}.0")
    since: Callable[[], float] = lambda: now().timestamp() - keeper.copied[0] if keeper.copied else 0.0  # noqa: E731
    told: Any = {"namespace": "platform", "service": name}
    lab.measure("seconds_since_last_sync", since, **told)
    if ends:
        crashes = lambda: restarts(lab.world, *place) > 1  # noqa: E731
        summary = f"containers of platform/{name} are restarted again and again"
        lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace="platform", deployment=name)
    stale = lambda: since() > 25  # noqa: E731
    lab.alert("SyncStale", stale, f"platform/{name} has not been through for a while", 3, **told)
    await lab.until(lambda: keeper.copied)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 5))
        data = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "media", "uploads", data)

    yield
    await lab.roll(by, *place, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(10, 15))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "650"}})
    await lab.pause(lab.rng.uniform(3, 7))
    why = "of the same upgrade, which makes the account anew under its new name"
    await lab.also(why, by, "create", "ServiceAccount", "platform", renamed, objects.account("platform", renamed))
    container = lab.world["Deployment"][place]["spec"]["template"]["spec"]["containers"][0]
    image = f"{container['image'].rsplit(':', 1)[0]}:2.0.0"
    spec = {"serviceAccountName": renamed, "containers": [{**container, "image": image}]}
    await lab.culprit(by, "update", "Deployment", *place, {"spec": {"template": {"spec": spec}}})
    await lab.pause(lab.rng.uniform(0.5, 1.5))
    await lab.also("of the same upgrade, which deletes the old account", by, "delete", "ServiceAccount", *place)
    lab.start(afterwards())
