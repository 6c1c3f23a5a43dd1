"""What two keepers do not agree on: which image an app has, and whose an operator's objects are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import stuck
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

IN_GIT, NEWEST = "3.4.1", "3.5.0"
POLICY = "keel.sh/policy"
TRACKED, PART = "app.kubernetes.io/instance", "data-services"
"""The label by which an agent knows what belongs to one of its applications, and the name of that one."""
COPIES = "2."
"""From this version on an operator hands the labels of what it is told on to what it makes."""


def _tagged(found: Json, tag: str) -> Json:
    """A Deployment's change of its container's tag."""
    [container] = found["spec"]["template"]["spec"]["containers"]
    image = f"{container['image'].rsplit(':', 1)[0]}:{tag}"
    return {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}


async def _update(process: Process) -> None:
    """Whoever asks for it by an annotation gets the newest image that the registry has."""
    listed = await process.api.call("GET", path("Deployment"))
    for one in listed.body.get("items", []):
        meta = one["metadata"]
        is_old = images(one["spec"]["template"]) != [
            f"registry.corp.example/{meta['namespace']}/{meta['name']}:{NEWEST}"
        ]
        if POLICY in meta.get("annotations", {}) and is_old:
            where = path("Deployment", meta["namespace"], meta["name"])
            await process.api.call("PATCH", where, _tagged(one, NEWEST))


@family(
    "Somebody asks by an annotation for every newer image of an app as soon as there is one, whose tag is declared in"
    " Git: one writes the newest, the other what Git says, and no rollout comes to its end.",
    joined=25,
)
async def image_fight(lab: Lab) -> AsyncIterator[None]:
    """As users of Keel tell of it beside Argo CD and Flux."""
    namespace, name, caller = lab.rng.choice(
        (("shop", "wishlists", "accounts"), ("search", "facets", "listing"), ("media", "playlists", "player"))
    )

    async def heal() -> None:
        """What differs from Git is written back."""
        while True:
            await asyncio.sleep(2)
            found = lab.world["Deployment"][namespace, name]
            if not images(found["spec"]["template"])[0].endswith(f":{IN_GIT}"):
                await lab.edit("argocd", "Deployment", namespace, name, _tagged(found, IN_GIT))

    await lab.app(namespace, name, like=App("", start_seconds=2), replicas=4, tag=IN_GIT)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.controller("platform", "keel", every(3, _update), ("apps", "deployments", "get,list,patch"), replicas=1)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    summary = f"the rollout of {namespace}/{name} has not ended for a while"
    labels = {"namespace": namespace, "deployment": name}
    lab.alert("KubeDeploymentRolloutStuck", lambda: stuck(lab.world, namespace, name), summary, 25, **labels)
    lab.start(heal())
    yield
    body = {"metadata": {"annotations": {POLICY: "minor", "keel.sh/trigger": "poll"}}}
    by = lab.rng.choice(("alice", "bob", "carol"))
    await lab.culprit(by, "update", "Deployment", namespace, name, body)


@dataclass(frozen=True)
class _Caches:
    """An operator's: for each object of its kind a Deployment and a Service, in the namespace that it names."""

    kind: Kind

    def keeping(self) -> Callable[[Process], Awaitable[None]]:
        async def keep(process: Process) -> None:
            listed = await process.api.call("GET", self.kind.path())
            for one in listed.body.get("items", []):
                await self._make(process, one)

        return keep

    async def _make(self, process: Process, one: Json) -> None:
        """What is not there is made, and what has not its labels gets them."""
        namespace, name = one["spec"]["namespace"], one["metadata"]["name"]
        handed = one["metadata"].get("labels", {}) if process.tag.startswith(COPIES) else {}
        made = objects.deployment(namespace, name, f"registry.corp.example/{namespace}/{name}:7.2.5", replicas=2)
        for thing in (made, objects.service(namespace, name)):
            thing["metadata"].setdefault("labels", {}).update(handed)
            where = path(thing["kind"], namespace)
            found = await process.api.call("GET", f"{where}/{name}")
            if found.status == 404:
                await process.api.call("POST", where, thing)
            elif found.ok and not handed.items() <= found.body["metadata"].get("labels", {}).items():
                await process.api.call("PATCH", f"{where}/{name}", {"metadata": {"labels": handed}})


@family(
    "A new version of an operator hands the labels of its objects on to what it makes of them, also the one by which an"
    " agent knows what is of Git: that one removes it, as it is not there, and the operator makes it anew each time.",
    joined=25,
)
async def label_handed_on(lab: Lab) -> AsyncIterator[None]:
    """As users of Argo CD tell of operators that copy labels, where what is made is in another namespace."""
    namespace, name, caller = lab.rng.choice(
        (("shop", "basket-cache", "baskets"), ("search", "facet-cache", "facets"), ("media", "cover-cache", "covers"))
    )
    group = "cache.corp.example"
    cache = await lab.custom("Cache", group, ANY)

    async def prune() -> None:
        """Of what has the application's label only the objects of the operator's kind are in Git."""
        label = f"?labelSelector={TRACKED}={PART}"
        while True:
            await asyncio.sleep(3)
            for kind in ("Deployment", "Service"):
                listed = await lab.who["argocd"].call("GET", f"{path(kind)}{label}")
                for one in listed.body.get("items", []):
                    meta = one["metadata"]
                    await lab.who["argocd"].call("DELETE", path(kind, meta["namespace"], meta["name"]))

    await lab.served(cache)
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, start_seconds=2, serves=False)
    meta = {"namespace": "platform", "name": name, "labels": {TRACKED: PART}}
    spec = {"namespace": namespace, "replicas": 2}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "Cache", "metadata": meta, "spec": spec})
    rules = (
        (group, "caches", "get,list,watch"),
        ("", "services", "get,create,patch"),
        ("apps", "deployments", "get,create,patch"),
    )
    keep = _Caches(cache).keeping()
    await lab.controller("platform", "cache-operator", every(2.5, keep), *rules, replicas=1, tag="1.9.2")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 2)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 3)
    await publish(lab, namespace, caller)
    lab.alert_lacking(namespace, caller)
    lab.start(prune())
    yield
    by = lab.rng.choice(("flux", "ci"))
    await lab.roll(by, "platform", "cache-operator", f"{COPIES}0.0", culprit=True)
