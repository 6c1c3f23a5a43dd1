"""Who asks more than others, and who only looks so: a comparison by dry runs, and a lock that is never given back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import Process
from tests.lab.before import before
from tests.lab.company import APPS, SYSTEM
from tests.lab.families.by_annotation import rolled
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.programs import every, getting, lagging
from tests.lab.scenario import family

BY_HASH, BY_DRY_RUN = "0.14.2", "0.15.0"
"""How a report of drifts compares what is there: by itself, or as the API server would have it."""
APPLY = "application/apply-patch+yaml"
REPORTED = "drift.corp.example/report"
COMPARED = ("Deployment", "Service", "ConfigMap", "ServiceAccount", "PodDisruptionBudget")


@family(
    "A new version of what reports drifts from Git does not compare by itself any more: it applies each object as a dry"
    " run and looks what the API server would make of it. Nothing is changed, and the API server gets many times the"
    " requests.",
    joined=33,
)
async def dry_run_diff(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: those who compare by server-side dry runs say themselves what that costs."""
    namespace, name = lab.rng.choice(
        (("argocd", "drift-report"), ("platform", "config-audit"), ("flux-system", "diff-exporter"))
    )
    by = lab.rng.choice(("argocd", "flux", "ci"))

    async def look(process: Process) -> None:
        """All of each kind, in the namespaces that are to be reported."""
        listed = await process.api.call("GET", f"{path('Namespace')}?labelSelector={REPORTED}=true")
        places = {one["metadata"]["name"] for one in listed.body.get("items", [])}
        for kind in COMPARED:
            listed = await process.api.call("GET", path(kind))
            there = [one for one in listed.body.get("items", []) if one["metadata"]["namespace"] in places]
            for one in there if process.tag == BY_DRY_RUN else ():
                await _try(process, kind, listed.body["apiVersion"], one)

    async def program(process: Process) -> None:
        if process.tag == BY_DRY_RUN:
            await lagging(process)
        await every(1.5, look)(process)

    async def report(*places: str) -> None:
        """Only these are to be reported."""
        for one in (*SYSTEM, *APPS):
            label = "true" if one in places else None
            await lab.edit("admin", "Namespace", "", one, {"metadata": {"labels": {REPORTED: label}}})

    await report("media")
    rules = (
        ("", "namespaces", "list"),
        ("apps", "deployments", "list,patch,create"),
        ("", "services,configmaps,serviceaccounts", "list,patch,create"),
        ("policy", "poddisruptionbudgets", "list,patch,create"),
    )
    await lab.controller(namespace, name, program, *rules, replicas=1, tag=BY_HASH)
    await rolled(lab, namespace, name, BY_HASH)
    alert_on_load(lab)
    async with before(lab, hours=lab.rng.randrange(20, 50), cluster=lab.rng.choice(("staging", "eu-2"))):
        await lab.pause(3)
        await lab.roll(by, namespace, name, BY_DRY_RUN)
        await rolled(lab, namespace, name, BY_DRY_RUN)
        await lab.pause(6)
    await lab.roll("admin", namespace, name, BY_HASH)
    await rolled(lab, namespace, name, BY_HASH)
    await report(*SYSTEM, *APPS)
    yield
    await lab.roll(by, namespace, name, BY_DRY_RUN, culprit=True)


async def _try(process: Process, kind: str, version: str, one: Json) -> None:
    """Apply it as it is declared, without doing so."""
    meta = {key: one["metadata"][key] for key in ("namespace", "name", "labels") if key in one["metadata"]}
    said = {key: one[key] for key in ("spec", "data") if key in one}
    where = f"{path(kind, meta['namespace'], meta['name'])}?dryRun=All&force=true&fieldManager=drift"
    await process.api.call("PATCH", where, {"apiVersion": version, "kind": kind, "metadata": meta, **said}, patch=APPLY)


LOCK = "maintenance"
AGAIN_SECONDS, WORK_SECONDS, STALE_SECONDS = 0.11, 0.5, 18.0
"""Until whoever did not get the lock tries again, what a turn takes, and after how long without one it is told."""
GIVES_BACK, KEEPS = "1.6.4", "1.7.0"


@dataclass
class _Turns:
    """Several that take turns by one Lease: it is there while somebody has it, and nobody looks how old it is."""

    first: str
    """Whose new version goes on with what it has already, and gives nothing back."""
    done: dict[str, float] = field(default_factory=dict)

    async def take(self, process: Process) -> None:
        """Make it, work, delete it; who finds it there tries again."""
        me, leases = process.see().pod["metadata"]["labels"]["app.kubernetes.io/name"], path("Lease", "platform")
        keeps = me == self.first and process.tag == KEEPS
        if keeps and (await self._holder(process)) == me:
            await self._work(process, me)
            return
        spec = {"holderIdentity": me, "acquireTime": f"{stamp(now())[:-1]}000Z", "leaseDurationSeconds": 3600}
        for pause in itertools.repeat(AGAIN_SECONDS):
            if (await process.api.call("POST", leases, {"metadata": {"name": LOCK}, "spec": spec})).ok:
                break
            await asyncio.sleep(pause)
        await self._work(process, me)
        if not keeps:
            await process.api.call("DELETE", f"{leases}/{LOCK}")

    async def _holder(self, process: Process) -> str:
        found = await process.api.call("GET", path("Lease", "platform", LOCK))
        return str(found.body.get("spec", {}).get("holderIdentity", ""))

    async def _work(self, process: Process, me: str) -> None:
        await getting(f"{path('Node')}?limit=3")(process)
        await asyncio.sleep(WORK_SECONDS)
        self.done[me] = now().timestamp()


@family(
    "Three tools take turns by one Lease, which whoever has it deletes when it is through. The new version of one goes"
    " on with the Lease that it has and never deletes it: the others try to make it, again and again at once, and are"
    " louder than it is.",
    joined=33,
)
async def lock_kept(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: whoever takes turns by a lock gets there that knows no end of it."""
    tools = ["image-prewarmer", "node-patcher", "volume-snapshots", "registry-cleaner"]
    first, *others = lab.rng.sample(tools, 3)
    turns, by = _Turns(first), lab.rng.choice(("ci", "argocd", "bob"))
    rules = ("coordination.k8s.io", "leases", "get,create,delete"), ("", "nodes", "list")
    for name in (first, *others):
        pause = lab.rng.uniform(4, 6)
        await lab.controller("platform", name, every(pause, turns.take), *rules, replicas=1, tag=GIVES_BACK)
    await lab.until(lambda: len(turns.done) == len(others) + 1)

    def age(name: str) -> float:
        return now().timestamp() - turns.done[name]

    for name in others:
        value = lambda name=name: age(name)  # noqa: E731
        lab.measure("last_success_age_seconds", value, namespace="platform", service=name)
        holds = lambda name=name: age(name) > STALE_SECONDS  # noqa: E731
        summary = f"{name} has not been through for {STALE_SECONDS:.0f}s"
        lab.alert("MaintenanceStale", holds, summary, 3, namespace="platform", service=name)
    alert_on_load(lab)
    yield
    await lab.roll(by, "platform", first, KEEPS, culprit=True)
