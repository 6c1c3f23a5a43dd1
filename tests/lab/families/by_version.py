"""New versions: one that asks for each object alone, one of three that undoes the others, one of a refused API."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.load import alert_on_load
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.programs import both, every, informer, lagging
from tests.lab.scenario import family

OWNERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job")
QUERIES = 20.0
"""How often a second the client of a controller lets it ask, as most are built."""
ENTRIES = {"ca.crt": "corp-root-2024", "allowed-names": "front-proxy", "username-headers": "X-Remote-User"}
MORE = {"uid-headers": "X-Remote-Uid"}
RELOAD_SECONDS, DROPPED = 5.0, 0.08
"""For how long a reload is felt, and the share of the requests that each costs meanwhile."""


@family(
    "A new version of what reports costs does without its caches, to save memory: for each pod it asks for its owner"
    " and its namespace, one by one and again at each look, and the API server gets many times the requests.",
    joined=19,
)
async def owner_lookups(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    name = lab.rng.choice(("cost-reporter", "usage-exporter", "chargeback"))
    watching = both(informer(path("Pod")), informer(path("ReplicaSet")), informer(path("Namespace")))

    async def look(process: Process) -> None:
        listed = await process.api.call("GET", path("Pod"))
        for pod in listed.body.get("items", []):
            namespace, owners = pod["metadata"]["namespace"], pod["metadata"].get("ownerReferences", ())
            places = [path(one["kind"], namespace, one["name"]) for one in owners if one["kind"] in OWNERS]
            for place in (*places, path("Namespace", None, namespace)):
                await process.api.call("GET", place)
                await asyncio.sleep(1 / QUERIES)

    async def program(process: Process) -> None:
        if process.tag.startswith("1."):
            await watching(process)
        await lagging(process)
        await every(1, look)(process)

    rules = (
        ("", "pods,namespaces", "get,list,watch"),
        ("apps", "replicasets,statefulsets,daemonsets", "get,list,watch"),
        ("batch", "jobs", "get"),
    )
    await lab.controller("platform", name, program, *rules, tag="1.7.2")
    alert_on_load(lab)
    yield
    await lab.roll(lab.rng.choice(("argocd", "ci", "bob")), "platform", name, "2.0.0", culprit=True)


@family(
    "One of three that keep a ConfigMap of whom to trust gets the new version first, which writes an entry more: those"
    " of the old one take it out again, without end, and whoever reads it drops what is under way each time.",
    joined=19,
)
async def dueling_versions(lab: Lab) -> AsyncIterator[None]:
    """As told of API servers of two versions (November 2024, kubernetes 128986)."""
    namespace, name, readers = lab.rng.choice(
        (
            ("payments", "keyring", ("signing", "mandates")),
            ("media", "origin-trust", ("delivery", "previews")),
            ("search", "peer-trust", ("gateway", "suggest")),
        )
    )
    bundle, old, new = f"{name}-bundle", "3.4.1", "3.5.0"
    written: dict[str, datetime] = {}
    """When each version of the ConfigMap was first seen."""

    async def keep(process: Process) -> None:
        """What it does not know is not as it should be."""
        wanted = ENTRIES if process.tag == old else {**ENTRIES, **MORE}
        found = await process.api.call("GET", path("ConfigMap", namespace, bundle))
        if found.ok and (has := found.body.get("data", {})) != wanted:
            body = {"data": {**dict.fromkeys(has), **wanted}}
            await process.api.call("PATCH", path("ConfigMap", namespace, bundle), body)

    def dropping(_: Container) -> float:
        """The share that is under way as it is read anew, which takes its time."""
        meta = lab.world["ConfigMap"][namespace, bundle]["metadata"]
        written.setdefault(meta["resourceVersion"], now())
        lately = sum((now() - at).total_seconds() < RELOAD_SECONDS for at in written.values())
        return min(0.6, DROPPED * (lately - 1)) if lately > 1 else 0.0

    await lab.apply(objects.config_map(namespace, bundle, **ENTRIES))
    rule = ("", "configmaps", "get,patch")
    await lab.controller(namespace, name, every(0.9, keep), rule, kind="StatefulSet", replicas=3, tag=old)
    for reader in readers:
        await lab.app(namespace, reader, like=App("", failing=dropping), replicas=3, config=bundle)
        lab.alert_errors(namespace, reader)
    yield
    there = lab.world["StatefulSet"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    one = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:{new}"}
    first = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    body = {"spec": {"updateStrategy": first, "template": {"spec": {"containers": [one]}}}}
    await lab.culprit(lab.rng.choice(("ci", "argocd", "alice")), "update", "StatefulSet", namespace, name, body)


@family(
    "A release brings an operator and the next version of its API, whose definition is refused, as it leaves out one"
    " that objects were once stored in: the operator comes up all the same, and what it asks for is not found.",
    joined=19,
)
async def stored_version(lab: Lab) -> AsyncIterator[None]:
    """As a user of Flux tells of an upgrade (August 2025, flux2 5479)."""
    kind, name, alertname = lab.rng.choice(
        (
            ("Pipeline", "pipeline-operator", "PipelinesNotStarted"),
            ("Topic", "topic-operator", "TopicsNotReconciled"),
            ("Bucket", "bucket-operator", "BucketsNotReconciled"),
        )
    )
    group, schema = f"{kind.lower()}s.corp.example", {"schema": {"openAPIV3Schema": LOOSE}}
    made = await lab.custom(kind, group, LOOSE)
    definition, seen = f"{made.plural}.{group}", [now()]

    def served(*versions: str) -> Json:
        """The last of them is what objects are stored in."""
        listed = [{"name": one, "served": True, "storage": one == versions[-1], **schema} for one in versions]
        return {"spec": {"versions": listed}}

    async def reconcile(process: Process) -> None:
        """It looks at each object, and notes that it has."""
        version = "v2" if process.tag.startswith("2.") else "v3"
        where = f"/apis/{group}/{version}/{made.plural}"
        listed = await process.api.call("GET", where)
        for one in listed.body.get("items", []) if listed.ok else ():
            place = f"/apis/{group}/{version}/namespaces/{one['metadata']['namespace']}/{made.plural}"
            note = {"metadata": {"annotations": {f"{group}/seen": stamp(now())}}}
            done = await process.api.call("PATCH", f"{place}/{one['metadata']['name']}", note)
            if done.ok:
                seen[0] = now()

    await lab.served(made)
    await lab.edit("admin", "CustomResourceDefinition", "", definition, served("v1", "v2"))
    for namespace in ("shop", "payments", "media"):
        meta = {"namespace": namespace, "name": "main"}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": {"size": 3}})
    await lab.controller("platform", name, every(2, reconcile), (group, "*", "*"), replicas=1, tag="2.6.0")
    late = lambda: (now() - seen[0]).total_seconds() > 7  # noqa: E731
    lab.alert(alertname, late, f"{name} has looked at nothing for a while", 4, namespace="platform", service=name)
    yield
    by = lab.rng.choice(("argocd", "flux", "ci"))
    where, body = path("CustomResourceDefinition", None, definition), served("v2", "v3")

    async def try_again() -> None:
        """An agent that syncs, and not a pipeline, tries what failed again."""
        for pause in itertools.repeat(5):
            await asyncio.sleep(pause)
            await lab.who[by].call("PATCH", where, body)

    await lab.who[by].call("PATCH", where, body)
    await lab.roll(by, "platform", name, "3.0.0", culprit=True)
    if by != "ci":
        lab.start(try_again())
