"""A release that gets to a few pods first, by a controller that looks how these do before it goes on."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from zlib import crc32

from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

ROLLOUTS, HASH = "argoproj.io", "rollouts-pod-template-hash"
REPLICAS, WEIGHTS = 10, (10, 20, 100)
"""Pods of an app, and the shares of them in percent that are of the new version, step by step."""
WAITS_SECONDS, LOOKS_SECONDS = 3.0, 6.0
"""Between a step and its analysis, and how long that one looks back."""
MAY_FAIL = 0.05


@dataclass
class _Rollouts:
    """A controller of releases by steps: its Rollouts own ReplicaSets, and an analysis says whether it goes on."""

    lab: Lab
    rollout: Kind
    analysis: Kind
    namespace: str
    name: str
    step: int = 0
    since: float = 0.0
    """When all pods of the step were ready."""

    async def see(self, process: Process) -> None:
        where = self.rollout.path(self.namespace, self.name)
        found = await process.api.call("GET", where)
        if not found.ok:
            return
        status, new = found.body.get("status", {}), _hash(found.body["spec"]["template"])
        stable = status.get("stableRS") or new
        if status.get("currentPodHash") != new:
            self.step, self.since = 0, 0.0
            first = {"currentPodHash": new, "stableRS": stable, "phase": "Progressing", "currentStepIndex": 0}
            await process.api.call("PATCH", where, {"status": first})
        if new == stable:
            await self._have(process, found.body, new, REPLICAS)
            return
        if status.get("phase") == "Degraded":  # it was given up
            await self._have(process, found.body, stable, REPLICAS)
            await self._have(process, found.body, new, 0)
            return
        wanted = math.ceil(REPLICAS * WEIGHTS[self.step] / 100)
        await self._have(process, found.body, new, wanted)
        there = [one for one in pods(self.lab.world, self.namespace, self.name) if is_ready(one)]
        if sum(one["metadata"]["labels"].get(HASH) == new for one in there) < wanted:
            return
        await self._have(process, found.body, stable, REPLICAS - wanted)
        self.since = self.since or now().timestamp()
        if now().timestamp() - self.since >= WAITS_SECONDS + LOOKS_SECONDS:
            await self._go_on(process, found.body, new)

    async def _go_on(self, process: Process, about: Json, new: str) -> None:
        where = self.rollout.path(self.namespace, self.name)
        if WEIGHTS[self.step] == 100:
            await process.api.call("PATCH", where, {"status": {"stableRS": new, "phase": "Healthy"}})
            return
        failed = self.lab.traffic.of_app(self.namespace, self.name, LOOKS_SECONDS).failed
        phase = "Successful" if failed < MAY_FAIL else "Failed"
        meta = {"name": f"{self.name}-{new}-{self.step + 1}", "ownerReferences": [_owner(about)]}
        measured = {
            "phase": phase,
            "metricResults": [{"name": "error-rate", "phase": phase, "value": f"[{failed:.4f}]"}],
        }
        run = {"apiVersion": f"{ROLLOUTS}/v1", "kind": self.analysis.name, "metadata": meta, "status": measured}
        await process.api.call("POST", self.analysis.path(self.namespace), run)
        await tell(
            process,
            about,
            "Normal",
            f"AnalysisRun{phase}",
            f"Step Analysis Run {meta['name']}",
            by="rollouts-controller",
        )
        self.step, self.since = self.step + (phase == "Successful"), 0.0
        told = {"currentStepIndex": self.step} if phase == "Successful" else {"phase": "Degraded", "abort": True}
        await process.api.call("PATCH", where, {"status": told})

    async def _have(self, process: Process, about: Json, mark: str, wanted: int) -> None:
        """So many pods of one version."""
        name = f"{self.name}-{mark}"
        where = path("ReplicaSet", self.namespace, name)
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})
        elif found.status == 404 and wanted:
            template: Json = about["spec"]["template"]
            labels = {**template["metadata"]["labels"], HASH: mark}
            spec: Json = {"replicas": wanted, "selector": {"matchLabels": labels}}
            spec["template"] = {**template, "metadata": {"labels": labels}}
            meta = {"name": name, "labels": labels, "ownerReferences": [_owner(about)]}
            await process.api.call("POST", path("ReplicaSet", self.namespace), {"metadata": meta, "spec": spec})


def _hash(template: Json) -> str:
    return f"{crc32(repr(template['spec']).encode()):08x}"


def _owner(about: Json) -> Json:
    named = {"name": about["metadata"]["name"], "uid": about["metadata"]["uid"], "controller": True}
    return {"apiVersion": about["apiVersion"], "kind": about["kind"], **named}


@family(
    "A release goes to a tenth of an app's pods, then to a fifth, and then to all, while an analysis looks at the share"
    " of the app's requests that fail. It looks at all pods, whatever version they are of: what the new ones fail is"
    " thinned out by the old ones, and the release is well until there are no old ones any more.",
    joined=55,
)
async def thinned_out(lab: Lab) -> AsyncIterator[None]:
    """As one tells how to ship with Argo Rollouts, with a query over the whole app (how2.sh)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "price-quotes", "basket-page"),
            ("media", "subtitles", "player-page"),
            ("search", "synonyms", "results-page"),
        )
    )
    by, number = lab.rng.choice(("ci", "argocd", "alice")), lab.rng.randrange(20, 60)
    old, new = f"2026.{number}.0", f"2026.{number + 1}.0"
    wrong = lab.rng.uniform(0.14, 0.18)
    rollout, analysis = await lab.custom("Rollout", ROLLOUTS, ANY), await lab.custom("AnalysisRun", ROLLOUTS, ANY)
    template = await lab.custom("AnalysisTemplate", ROLLOUTS, ANY)
    await lab.served(rollout, analysis, template)
    chosen = f'app="{name}"'
    query = (
        f'sum(rate(http_requests_total{{{chosen},code=~"5.."}}[5m])) / sum(rate(http_requests_total{{{chosen}}}[5m]))'
    )
    metric = {
        "name": "error-rate",
        "successCondition": f"result[0] < {MAY_FAIL}",
        "provider": {"prometheus": {"query": query}},
    }
    meta = {"namespace": namespace, "name": f"{name}-slo"}
    await lab.apply({"kind": template.name, "metadata": meta, "spec": {"metrics": [metric]}})
    rollouts = _Rollouts(lab, rollout, analysis, namespace, name)
    rules = (ROLLOUTS, "*", "*"), ("apps", "replicasets", "*"), ("", "events", "create")
    await lab.controller("platform", "argo-rollouts", every(1, rollouts.see), *rules, replicas=1, tag="1.8.3")
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.8")
    like = App("", upstreams=((namespace, f"{name}-db"),), asked=lambda: 150.0)
    like.failing = lambda one: wrong if one.tag == new and one.seconds >= lab.lag else 0.0
    await lab.app(namespace, name, like=like, kind=rollout.name, replicas=REPLICAS, tag=old)
    looked = {"analysis": {"templates": [{"templateName": meta["name"]}]}}
    steps = [
        {"setWeight": 10},
        {"pause": {"duration": "3m"}},
        looked,
        {"setWeight": 20},
        {"pause": {"duration": "3m"}},
        looked,
    ]
    await lab.edit("admin", rollout.name, namespace, name, {"spec": {"strategy": {"canary": {"steps": steps}}}})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == REPLICAS)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="7.0.3")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name, 0.08)
    lab.alert_ingress_errors(namespace, namespace, 0.08)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 5))
    there = lab.world[rollout.name][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    containers = [{**there, "image": f"{like.image}:{new}"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    await lab.culprit(by, "update", rollout.name, namespace, name, body)
