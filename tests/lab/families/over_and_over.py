"""What is written over and over: a field that two keep, a lock for each object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.as_declared import INJECT, inject_authorities
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.manifests import is_done
from tests.lab.network import backends
from tests.lab.programs import both, changes, every, lagging, leading
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

ADMITTED = "admission.corp.example/images"
RUN_SECONDS = 3.0
TRIES, AGAIN_SECONDS = 3, 0.5
ONE_LOCK, LOCKS = "1.9.4", "2.0.0"
RETRY_SECONDS, LEASE_SECONDS = 2.0, 15
"""How often a lock is renewed or tried, and for how long it is held without that; as client-go has it."""
FEW, MANY = 3, 36


@dataclass
class _Runs:
    """Whoever wants something gets a pod for it; what is done goes."""

    namespace: str
    name: str
    failed: int = 0

    @property
    def image(self) -> str:
        return f"registry.corp.example/{self.namespace}/{self.name}"

    async def start(self, process: Process) -> None:
        where = path("Pod", self.namespace)
        label = f"labelSelector=app.kubernetes.io/name={self.name}"
        listed = await process.api.call("GET", f"{where}?{label}")
        for one in filter(is_done, listed.body.get("items", [])):
            await process.api.call("DELETE", f"{where}/{one['metadata']['name']}")
        pod = objects.deployment(self.namespace, self.name, f"{self.image}:1.3.0", restartPolicy="Never")
        made = pod["spec"]["template"]
        del made["spec"]["containers"][0]["readinessProbe"]
        meta = {**made["metadata"], "generateName": f"{self.name}-"}
        for _ in range(TRIES):
            if (await process.api.call("POST", where, {**made, "metadata": meta})).ok:
                return
            self.failed += 1
            await asyncio.sleep(AGAIN_SECONDS)


@family(
    "A chart's new version has an authority of its own in its webhook's configuration, which is made as it is rendered."
    " What injects authorities keeps that field too, as an annotation says, and an agent writes back what the chart"
    " has: each time the API server does not trust the webhook for a moment, and pods are refused.",
    joined=37,
)
async def bundle_fight(lab: Lab) -> AsyncIterator[None]:
    """As users of Argo CD and cert-manager tell of charts with ``genCA``."""
    namespace, runner, name = lab.rng.choice(
        (("media", "exports", "export"), ("search", "crawler", "crawl"), ("payments", "reports", "report"))
    )
    guard = lab.rng.choice(("image-policy", "image-admission", "provenance"))
    by, serving = lab.rng.choice(("argocd", "flux")), f"{guard}-serving"
    runs = _Runs(namespace, name)

    async def review(request: Json) -> str | None:
        if not backends(lab.world, "platform", guard):
            raise ConnectionError("no pod is behind it")
        found = [str(one["image"]) for one in request["object"]["spec"]["containers"]]
        is_ours = all(one.startswith("registry.corp.example/") for one in found)
        return None if is_ours else "only images of registry.corp.example may be run"

    webhook, rendered = Webhook(review, service=("platform", guard)), Webhook(review)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.apply(
        {
            "kind": "Secret",
            "metadata": {"namespace": "platform", "name": serving},
            "data": {"ca.crt": webhook.authority},
        }
    )
    await lab.app("platform", guard, secret=serving, tag="0.9.1")
    await lab.until(lambda: backends(lab.world, "platform", guard))
    rules = (("admissionregistration.k8s.io", "validatingwebhookconfigurations", "list,patch"), ("", "secrets", "get"))
    await lab.controller("cert-manager", "cainjector", every(1.4, inject_authorities), *rules, replicas=1)
    lab.apps[runs.image] = App(runs.image, ends_after=RUN_SECONDS, serves=False)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {ADMITTED: "enabled"}}})
    made = configuration(guard, webhook, only=ADMITTED)
    made["metadata"] |= {
        "annotations": {INJECT: f"platform/{serving}"},
        "labels": {"helm.sh/chart": f"{guard}-0.9.1"},
    }
    await lab.apply(made)
    await lab.pause(1)
    app = await lab.controller(
        namespace, runner, every(1.8, runs.start), ("", "pods", "list,create,delete"), replicas=1, tag="3.2.0"
    )
    app.serves = True
    lab.measure(f"{name}_start_failures_total", lambda: runs.failed, "counter", namespace=namespace, service=runner)
    failing = lab.rate(lambda: runs.failed, 0.12, seconds=10)
    summary = f"{runner} cannot start a part of what it is asked for"
    lab.alert("RunStartsFailing", failing, summary, 4, namespace=namespace, service=runner)
    await lab.until(lambda: backends(lab.world, namespace, runner))
    await lab.until(lab.is_well)
    [hook] = made["webhooks"]
    declared = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": rendered.authority}}]

    async def sync() -> None:
        """What differs from what the chart was rendered to is written back."""
        while True:
            await asyncio.sleep(2.5 * lab.rng.uniform(0.9, 1.1))
            there = lab.world["ValidatingWebhookConfiguration"]["", guard]["webhooks"][0]
            if there["clientConfig"]["caBundle"] != rendered.authority:
                where = path("ValidatingWebhookConfiguration", None, guard)
                await lab.who[by].call("PATCH", where, {"webhooks": declared})

    yield
    body = {"metadata": {"labels": {"helm.sh/chart": f"{guard}-0.10.0"}}, "webhooks": declared}
    await lab.culprit(by, "update", "ValidatingWebhookConfiguration", "", guard, body)
    lab.start(sync())


@dataclass(frozen=True)
class _Locks:
    """Of an operator: one by which a replica leads, or one for each object, so that all of them take a share."""

    kind: Kind
    name: str

    async def run(self, process: Process) -> None:
        there: dict[str, Json] = {}

        async def watch(process: Process) -> None:
            await changes(process, self.kind.path(), lambda one: there.update({self._name(one): one}), of_all=True)

        if process.tag == ONE_LOCK:
            await both(watch, leading("platform", self.name))(process)
        await lagging(process)
        mine: set[str] = set()

        async def work(process: Process) -> None:
            await asyncio.gather(*(self._take(process, name, mine) for name in there))

        await both(watch, every(RETRY_SECONDS, work))(process)

    async def _take(self, process: Process, name: str, mine: set[str]) -> None:
        """Who holds it renews it, whoever else looks whether it is free."""
        where = path("Lease", "platform", name)
        me = process.see().pod["metadata"]["name"]
        times = {"renewTime": f"{stamp(now())[:-1]}000Z", "leaseDurationSeconds": LEASE_SECONDS}
        spec = {"holderIdentity": me, **times}
        if name not in mine:
            found = await process.api.call("GET", where)
            if found.status == 404:
                body = {"metadata": {"name": name}, "spec": spec}
                if (await process.api.call("POST", path("Lease", "platform"), body)).ok:
                    mine.add(name)
                return
            if not found.ok or not self._is_over(found.body):
                return
        done = await process.api.call("PATCH", where, {"spec": spec})
        (mine.add if done.ok else mine.discard)(name)

    def _name(self, one: Json) -> str:
        return f"{self.kind.name.lower()}-{one['metadata']['name']}"

    def _is_over(self, lease: Json) -> bool:
        renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
        return (now() - renewed).total_seconds() > LEASE_SECONDS


@family(
    "A new version of an operator shares its work among all of its replicas, by a lock for each object in place of one"
    " for all: whoever holds one renews it, whoever does not looks whether it is free. A sibling, where there are few"
    " objects, has had it for days.",
    joined=37,
)
async def lock_per_object(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: a lock costs a few requests a minute, of each replica, and there is one for each object."""
    word, operator = lab.rng.choice(
        (("Queue", "queue-operator"), ("Topic", "topic-operator"), ("Tenant", "tenant-operator"))
    )
    group, by = f"{word.lower()}s.corp.example", lab.rng.choice(("argocd", "flux", "ci"))
    kind = await lab.custom(word, group, ANY)
    await lab.served(kind)

    async def order(numbers: range) -> None:
        for number in numbers:
            meta = {"namespace": "platform", "name": f"team-{number:02}"}
            await lab.apply({"apiVersion": f"{group}/v1", "kind": word, "metadata": meta, "spec": {"size": "small"}})

    await order(range(FEW))
    rights = (group, kind.plural, "get,list,watch"), ("coordination.k8s.io", "leases", "*")
    program = _Locks(kind, operator).run
    await lab.controller("platform", operator, program, *rights, replicas=3, tag=ONE_LOCK)
    await rolled(lab, "platform", operator, ONE_LOCK)
    alert_on_load(lab)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(2, 6), cluster=lab.rng.choice(("staging", "eu-1"))):
        await lab.pause(2)
        await lab.roll(by, "platform", operator, LOCKS)
        await rolled(lab, "platform", operator, LOCKS)
        await lab.pause(6)
    await lab.roll("admin", "platform", operator, ONE_LOCK)
    await rolled(lab, "platform", operator, ONE_LOCK)
    for number in range(FEW):
        await lab.who["admin"].call("DELETE", path("Lease", "platform", f"{word.lower()}-team-{number:02}"))
    await order(range(FEW, MANY))
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, "platform", operator, LOCKS, culprit=True)
