"""What a webhook holds up: more is asked of it than it stands, or it is asked of what it does not know."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import BrokenError, Webhook, configuration

GUARD = "config-policy"
REVIEW_SECONDS, AT_ONCE, TIMEOUT_SECONDS = 0.2, 2, 1
"""For how long a webhook looks at a ConfigMap, at how many in the same moment, and how long it is waited for."""
COMPARING, APPLYING = "1.12.2", "2.0.0"
SETTINGS, AT_A_TIME, ROUND_SECONDS = 44, 8, 2.0
WORKERS, JOBS, TRIES, AGAIN_SECONDS = 8, 30, 5, 0.05
"""Of a process and of an app that note how far they are, and how often that is tried, with which pause."""
LATELY = timedelta(seconds=6)
ADMITTED = "admission.corp.example/sessions"
LASTS, ROOM = (24.0, 31.0), 14
"""Seconds of a session until nobody uses it any more, and how many there may be."""


@dataclass
class _Notes:
    """An app whose workers note how far each of its jobs is, in a ConfigMap of that job."""

    namespace: str
    name: str
    seconds: float
    failed: int = 0
    ends: deque[tuple[datetime, bool]] = field(default_factory=deque)

    async def run(self, process: Process) -> None:
        await asyncio.gather(*(self._work(process) for _ in range(WORKERS)))

    async def _work(self, process: Process) -> None:
        await asyncio.sleep(process.rng.uniform(0, self.seconds))
        while True:
            job = f"{self.name}-job-{process.rng.randrange(JOBS):02}"
            self.ends.append((now(), await self._note(process, path("ConfigMap", self.namespace, job))))
            await asyncio.sleep(self.seconds * process.rng.uniform(0.9, 1.1))

    async def _note(self, process: Process, where: str) -> bool:
        for _ in range(TRIES):
            if (await process.api.call("PATCH", where, {"data": {"at": stamp(now())}})).ok:
                return True
            self.failed += 1
            await asyncio.sleep(AGAIN_SECONDS)
        return False

    def lacking(self, _: Container) -> float:
        """The share of what it gives up lately."""
        while self.ends and now() - self.ends[0][0] > LATELY:
            self.ends.popleft()
        return sum(not done for _, done in self.ends) / len(self.ends) if self.ends else 0.0


async def _settings(process: Process, *, namespace: str) -> None:
    """Everybody's settings as they are declared: what is as it should be is left, but for the newer one."""
    turns = asyncio.Semaphore(AT_A_TIME)

    async def keep(number: int) -> None:
        where, wanted = path("ConfigMap", namespace, f"tenant-{number:02}"), {"plan": "team", "region": "eu"}
        async with turns:
            if process.tag == COMPARING:
                found = await process.api.call("GET", where)
                if found.ok and found.body["data"] == wanted:
                    return
            await process.api.call("PATCH", where, {"data": wanted})

    shown = range(0, SETTINGS, 6) if process.tag == COMPARING else range(SETTINGS)
    await asyncio.gather(*map(keep, shown))


@family(
    "A new version of what keeps everybody's settings writes all of them at each look and no longer compares first. A"
    " webhook looks at each ConfigMap that is written and does not stand that: others, who note how far they are"
    " in some, wait until their time is up and try again at once, and are louder than the one that began it.",
    joined=41,
)
async def crowded_out(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: a write that changes nothing is reviewed all the same, and all writers share a webhook."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "bulk-orders", "order-desk"),
            ("media", "transcodes", "upload-page"),
            ("payments", "batch-payouts", "payout-desk"),
        )
    )
    keeper, by = lab.rng.choice(("tenant-settings", "settings-sync")), lab.rng.choice(("argocd", "flux", "ci"))
    turns = asyncio.Semaphore(AT_ONCE)

    async def review(request: Json) -> str | None:
        if not backends(lab.world, "platform", GUARD):
            raise ConnectionError("no pod is behind it")
        since = now()
        async with turns:
            if now() - since < timedelta(seconds=TIMEOUT_SECONDS):  # whoever asked is still there
                await asyncio.sleep(REVIEW_SECONDS)
        return None if len(request["object"].get("data", {})) < 100 else "a ConfigMap may have 100 keys at most"

    webhook = Webhook(review, service=("platform", GUARD))
    await webhook.start()
    lab.servers.append(webhook)
    for number in range(SETTINGS):
        await lab.apply(objects.config_map("platform", f"tenant-{number:02}", plan="team", region="eu"))
    jobs = _Notes(namespace, name, 6.4), _Notes("search", "reindexer", 8.8)
    for one in jobs:
        for number in range(JOBS):
            await lab.apply(objects.config_map(one.namespace, f"{one.name}-job-{number:02}", done="0"))
    await lab.app("platform", GUARD, like=App("", serves=False), tag="1.4.0")
    await lab.until(lambda: len(backends(lab.world, "platform", GUARD)) == 2)
    made = configuration(GUARD, webhook, seconds=TIMEOUT_SECONDS)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}
    made["webhooks"][0]["rules"] = [rule]
    await lab.apply(made)
    rights = ("", "configmaps", "get,list,patch")
    program = every(ROUND_SECONDS, partial(_settings, namespace="platform"))
    await lab.controller("platform", keeper, program, rights, replicas=1, tag=COMPARING)
    for one, replicas in zip(jobs, (3, 2), strict=True):
        app = await lab.controller(one.namespace, one.name, one.run, rights, replicas=replicas, tag="5.2.0")
        app.serves, app.failing = True, one.lacking
        failures = partial(lambda one: one.failed, one)
        measured = {"namespace": one.namespace, "service": one.name}
        lab.measure("progress_write_failures_total", failures, "counter", **measured)
        lab.alert_errors(one.namespace, one.name, 0.1)
        failing, summary = lab.rate(failures, 1, seconds=6), f"{one.namespace}/{one.name} cannot save its progress"
        lab.alert("ProgressNotSaved", failing, summary, 5, **measured)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.0.17")
    await rolled(lab, "platform", keeper, COMPARING)
    await lab.until(lambda: backends(lab.world, namespace, front) and backends(lab.world, "search", "reindexer"))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, front)
    await lab.pause(4)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, "platform", keeper, APPLYING, culprit=True)


@dataclass
class _Sessions:
    """A hub that starts a pod for whoever comes, and deletes those that nobody uses any more."""

    lab: Lab
    namespace: str
    name: str
    image: str
    until: dict[str, float] = field(default_factory=dict)
    outcomes: deque[bool] = field(default_factory=lambda: deque(maxlen=5))
    failed: int = 0
    number: int = 0

    async def run(self, process: Process) -> None:
        where = path("Pod", self.namespace)
        for name, until in list(self.until.items()):
            if now().timestamp() < until:
                continue
            answer = await process.api.call("DELETE", f"{where}/{name}", {"gracePeriodSeconds": 1})
            if answer.ok or answer.status == 404:
                del self.until[name]
        whole = objects.deployment(self.namespace, "session", f"{self.image}:2.3.1", restartPolicy="Never")
        made = whole["spec"]["template"]
        self.number += 1
        meta = {**made["metadata"], "name": f"session-{self.number:05}"}
        answer = await process.api.call("POST", where, {**made, "metadata": meta})
        self.outcomes.append(answer.ok)
        if answer.ok:
            self.until[meta["name"]] = now().timestamp() + process.rng.uniform(*LASTS)
        else:
            self.failed += 1

    def lacking(self, _: Container) -> float:
        """The share of those who got no session of late, among all that it is asked."""
        return 0.5 * self.outcomes.count(False) / len(self.outcomes) if self.outcomes else 0.0


@family(
    "A webhook that looks at new pods of sessions is to be asked for whatever is done with a pod, so that nothing gets"
    " by it. Of what is deleted there is no object in the request, which its program does not expect: no pod can be"
    " deleted any more, and once those of old sessions fill the quota nobody gets a new one.",
    joined=41,
)
async def kept_for_good(lab: Lab) -> AsyncIterator[None]:
    """Of the API of webhooks: as something is deleted, the object in the request is null."""
    namespace, hub = lab.rng.choice(
        (("labs", "lab-hub"), ("workspaces", "workspace-hub"), ("notebooks", "notebook-hub"))
    )
    guard = lab.rng.choice(("session-policy", "session-guard"))
    by = lab.rng.choice(("carol", "bob", "flux"))
    image = f"registry.corp.example/{namespace}/session"

    async def review(request: Json) -> str | None:
        if not backends(lab.world, "platform", guard):
            raise ConnectionError("no pod is behind it")
        if request["object"] is None:
            raise BrokenError("panic: runtime error: invalid memory address or nil pointer dereference [recovered]")
        found = [str(one["image"]) for one in request["object"]["spec"]["containers"]]
        return None if all(one.startswith("registry.corp.example/") for one in found) else "not one of our images"

    webhook = Webhook(review, service=("platform", guard))
    await webhook.start()
    lab.servers.append(webhook)
    sessions = _Sessions(lab, namespace, hub, image)
    lab.apps[image] = App(image, serves=False)
    await lab.namespace(namespace)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {ADMITTED: "enabled"}}})
    quota = {"kind": "ResourceQuota", "metadata": {"namespace": namespace, "name": "sessions"}}
    await lab.apply({**quota, "spec": {"hard": {"pods": str(ROOM)}}})
    await lab.app("platform", guard, like=App("", serves=False), tag="0.7.4")
    await lab.until(lambda: len(backends(lab.world, "platform", guard)) == 2)
    made = configuration(guard, webhook, seconds=3, only=ADMITTED)
    await lab.apply(made)
    rights = ("", "pods", "get,list,watch,create,delete")
    app = await lab.controller("platform", hub, every(2.5, sessions.run), rights, replicas=1, tag="4.1.6")
    app.serves, app.failing, app.fails_with = True, sessions.lacking, lambda _: "503"
    await lab.until(lambda: backends(lab.world, "platform", hub))
    await publish(lab, "platform", hub)
    failures = lambda: sessions.failed  # noqa: E731
    labels = {"namespace": "platform", "service": hub}
    lab.measure("session_start_failures_total", failures, "counter", **labels)
    lab.measure("sessions_open", lambda: len(sessions.until), "gauge", **labels)
    summary = f"{hub} cannot start sessions"
    lab.alert("SessionStartsFailing", lab.rate(failures, 0.25, seconds=9), summary, 4, **labels)
    lab.alert_errors("platform", hub, 0.1)
    await lab.pause(30)
    await lab.until(lab.is_well)
    yield
    [hook] = made["webhooks"]
    rule = {**hook["rules"][0], "operations": ["*"]}
    body = {"webhooks": [{**hook, "rules": [rule]}]}
    await lab.culprit(by, "update", "ValidatingWebhookConfiguration", "", guard, body)
