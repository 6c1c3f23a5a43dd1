"""What a script of somebody's own asks of the API server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import httpx2

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.company import APPS
from tests.lab.families.agents_and_callers import level
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.programs import every, lagging
from tests.lab.scenario import family

HOME, LEVEL = "platform", "in-cluster-tools"
ASKED_FOR = ("Pod", "Secret")
PAUSE_SECONDS, LATE_SECONDS = 1.0, 2.5
"""Between two looks of the script; and what a pass of a controller may take, which is done in a moment."""
REVISIONS, MANIFEST_BYTES = 10, 60_000
"""Of how many releases of an app Helm keeps what it had rendered, and how much that is, in a Secret each."""


@dataclass
class _Passes:
    """A controller goes through what each namespace has, again and again."""

    began: float = 0.0
    took: float = 0.0

    async def run(self, process: Process) -> None:
        began = self.began = now().timestamp()
        for namespace in APPS:
            for kind in ("ConfigMap", "Service", "Deployment"):
                await process.api.call("GET", f"{path(kind, namespace)}?limit=10")
        self.took, self.began = now().timestamp() - began, 0.0

    def seconds(self) -> float:
        """Of the last pass, or of the one under way if that takes longer."""
        return max(self.took, now().timestamp() - self.began if self.began else 0.0)


@dataclass
class _Script:
    """For each app that there is it asks for all there is in the cluster, and picks out what is that app's."""

    apps: int

    async def run(self, process: Process) -> None:
        await lagging(process)
        await asyncio.gather(*(self._look(process, kind) for _ in range(self.apps) for kind in ASKED_FOR))

    async def _look(self, process: Process, kind: str) -> None:
        """What comes is read, and next to all of it thrown away."""
        api = process.api
        while True:
            with suppress(httpx2.TransportError):
                async with api.client.stream("GET", path(kind), headers=api.headers, timeout=60) as answer:
                    api.counts[answer.status_code] += 1
                    async for piece in answer.aiter_raw():
                        api.received += len(piece)
            await asyncio.sleep(PAUSE_SECONDS * process.rng.uniform(0.9, 1.1))


async def _keep_releases(lab: Lab) -> None:
    """What Helm has in Secrets of each app: its last revisions, with all that was rendered."""
    admin = lab.who["admin"]
    for namespace, names in APPS.items():
        for name in names:
            await asyncio.gather(
                *(
                    admin.must("POST", path("Secret", namespace), _release(lab, name, number))
                    for number in range(1, REVISIONS + 1)
                )
            )


def _release(lab: Lab, name: str, number: int) -> Json:
    labels = {"owner": "helm", "name": name, "version": str(number)}
    meta = {"name": f"sh.helm.release.v1.{name}.v{number}", "labels": labels}
    rendered = base64.b64encode(lab.rng.randbytes(MANIFEST_BYTES)).decode()
    return {"metadata": meta, "type": "helm.sh/release.v1", "data": {"release": rendered}}


@family(
    "Somebody deploys a script of their own, which is to show on a screen how all apps are. Each second it asks the API"
    " server for all pods and all Secrets of the cluster, once for each app, and Helm keeps much in Secrets. The tools"
    " of the cluster share what they may ask at once: each of their requests waits for its turn, and whatever they do"
    " takes long.",
    flags=("--max-requests-inflight=80", "--max-mutating-requests-inflight=40"),
    joined=86,
)
async def list_each_second(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found kubectl in a loop of a shell."""
    script = lab.rng.choice(("wallboard", "pod-census", "status-screen", "app-overview"))
    by, script_is = lab.rng.choice(TEAMS), _Script(lab.rng.randrange(20, 26))
    others = lab.rng.sample(("dns-sync", "quota-reporter", "backup-planner", "secret-copier"), 2)
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    subjects = [{"kind": "Group", "group": {"name": f"system:serviceaccounts:{HOME}"}}]
    spec = {
        "priorityLevelConfiguration": {"name": LEVEL},
        "matchingPrecedence": 800,
        "rules": [{"subjects": subjects, "resourceRules": [rule]}],
    }
    shares = {"nominalConcurrencyShares": 2, "lendablePercent": 0, "borrowingLimitPercent": 0}
    queuing = {"queues": 8, "handSize": 2, "queueLengthLimit": 80}
    meta = {"metadata": {"name": LEVEL}}
    await lab.apply(
        {"kind": "PriorityLevelConfiguration", **meta, **level(shares, {"type": "Queue", "queuing": queuing})}
    )
    await lab.apply({"kind": "FlowSchema", **meta, "spec": spec})
    await _keep_releases(lab)
    passes = {one: _Passes() for one in others}
    reads = ("*", "configmaps,services,deployments,secrets", "get,list")
    for one in others:
        await lab.controller(HOME, one, every(1.0, passes[one].run), reads, replicas=1, tag="1.4.0")
        await rolled(lab, HOME, one, "1.4.0")
        lab.measure("controller_pass_duration_seconds", passes[one].seconds, namespace=HOME, service=one)
    slow = lab.rng.choice(others)
    holds = lambda: passes[slow].seconds() > LATE_SECONDS  # noqa: E731
    summary = f"{HOME}/{slow} takes longer than {LATE_SECONDS:g}s for a pass, as its requests to the API server wait"
    lab.alert("ControllerPassSlow", holds, summary, 8, namespace=HOME, service=slow)
    await lab.until(lab.is_well)
    image = f"registry.corp.example/{HOME}/{script}"
    lab.apps[image] = App(image, program=script_is.run, serves=False)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), HOME, slow, "1.4.1")
    await lab.pause(lab.rng.uniform(5, 9))
    admin, rules = lab.who[by], ("", "pods,secrets,deployments", "get,list,watch")
    await admin.must("POST", path("ServiceAccount", HOME), objects.account(HOME, script))
    await admin.must("POST", path("ClusterRole"), objects.cluster_role(script, rules))
    why = "of the same hand and for the same purpose: without it the script would be refused"
    bound = objects.binding(script, script, HOME, script)
    await lab.also(why, by, "create", "ClusterRoleBinding", "", script, bound)
    manifest = objects.deployment(HOME, script, f"{image}:0.1.0", replicas=1, account=script)
    await lab.pause(lab.rng.uniform(0.5, 2))
    await lab.culprit(by, "create", "Deployment", HOME, script, manifest)
    await lab.pause(lab.rng.uniform(2, 5))
    other = next(one for one in others if one != slow)
    await lab.roll(lab.rng.choice(("ci", "flux")), HOME, other, "1.4.1")
