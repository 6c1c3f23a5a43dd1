"""What is not as somebody said: an account that is still named, a certificate that is not good yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

OLD, FAULTY, NEXT = "5.1.3", "5.2.0", "5.2.1"
MESH, INJECTOR, LABEL = "istio-system", "istiod", "istio-injection"
PROXY, ISTIO = "registry.corp.example/istio/proxyv2", "1.26.4"
RENEWED_EVERY, AHEAD = 24.0, timedelta(seconds=74)
"""Seconds between two certificates, and by how much a clock is ahead."""


@family(
    "A release that came with an account of its own was faulty and was put back. Whoever leaves out of a manifest whose"
    " account pods have does not take it out of the object, which names it in a field of old too. Nothing in Git names"
    " the account any more, and it is deleted: no pod of the next, harmless release is made.",
    joined=38,
)
async def account_left(lab: Lab) -> AsyncIterator[None]:
    """As told of the two fields for an account, and of a change that is not undone (blog.uppuiu.com, May 2026)."""
    namespace, name, account = lab.rng.choice(
        (
            ("media", "transcoder", "transcoder-storage"),
            ("shop", "catalog-export", "export-writer"),
            ("payments", "reports", "reports-reader"),
        )
    )
    place = ("Deployment", namespace, name)
    by, team = lab.rng.choice(("ci", "argocd")), lab.rng.choice(("alice", "carol", "flux"))
    like = App("", failing=lambda container: 0.4 if container.tag == FAULTY else 0.0)
    await lab.app(namespace, name, like=like, replicas=4, tag=OLD)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_lacking(namespace, name)
    lab.alert_stuck(namespace, name)
    await lab.until(lab.is_well)

    def released(tag: str, account: str | None) -> Json:
        """A part of its manifest, in which an account is named or not."""
        [container] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
        image = f"{container['image'].rsplit(':', 1)[0]}:{tag}"
        spec = {"serviceAccountName": account, "containers": [{**container, "image": image}]}
        return {"spec": {"template": {"spec": spec}}}

    async with before(lab, days=lab.rng.randrange(2, 9)) as then:
        await lab.who[by].must("POST", path("ServiceAccount", namespace), objects.account(namespace, account))
        answer = await lab.edit(by, *place, released(FAULTY, account))
        await then.fires()
        await lab.edit(by, *place, released(OLD, None))
        await then.is_well()
        then.judge(answer, "it")
    await rolled(lab, namespace, name, OLD)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(team, "delete", "ServiceAccount", namespace, account)
    await lab.pause(lab.rng.uniform(8, 15))
    await lab.roll(by, namespace, name, NEXT)


@family(
    "The clock of one machine is ahead. What injects the proxies of a mesh runs there and gives itself another"
    " certificate each day, which is good from what it takes for now: to the API server it is not good yet, and no pod"
    " that gets a proxy is made.",
    culprit=False,
    joined=38,
)
async def not_yet_valid(lab: Lab) -> AsyncIterator[None]:
    """As told of an injector whose certificate began an hour later (kubernetes/kubectl 1307)."""
    namespace, name = lab.rng.choice((("shop", "catalog"), ("payments", "ledger"), ("media", "uploads")))
    ahead, renewed = set[str](), [now()]

    async def inject(request: Json) -> list[Json] | None:
        if not any(is_ready(pod) for pod in pods(lab.world, MESH, INJECTOR)):
            raise ConnectionError("no pod is behind it")
        if request["object"]["metadata"].get("annotations"):
            return None
        noted = {"sidecar.istio.io/status": '{"containers":["istio-proxy"]}'}
        resources = {"requests": {"cpu": "10m", "memory": "40Mi"}}
        proxy = {"name": "istio-proxy", "image": f"{PROXY}:{ISTIO}", "resources": resources}
        return [
            {"op": "add", "path": "/metadata/annotations", "value": noted},
            {"op": "add", "path": "/spec/containers/-", "value": proxy},
        ]

    webhook = Webhook(inject, service=(MESH, INJECTOR))

    async def renew(process: Process) -> None:
        """As istiod: a certificate of its own authority, by the clock of its machine."""
        is_ahead = process.see().pod["spec"]["nodeName"] in ahead
        since = now() + AHEAD if is_ahead else now()
        webhook.renew(since=since)
        renewed[0] = since
        told = {"tls.crt": f"{INJECTOR}.{MESH}.svc, from {stamp(since)[:19]}Z"}
        await process.api.call("PATCH", path("Secret", MESH, "istiod-tls"), {"stringData": told})

    lab.apps[PROXY] = App(PROXY)
    await lab.namespace(MESH)
    await webhook.start()
    lab.servers.append(webhook)
    secret = {"namespace": MESH, "name": "istiod-tls"}
    await lab.apply({"kind": "Secret", "metadata": secret, "type": "Opaque", "stringData": {"tls.crt": ""}})
    rights = ("", "secrets", "get,patch")
    await lab.controller(MESH, INJECTOR, every(RENEWED_EVERY, renew), rights, replicas=1, tag=ISTIO)
    await lab.until(lambda: backends(lab.world, MESH, INJECTOR))
    for one in APPS:
        await lab.edit("admin", "Namespace", "", one, {"metadata": {"labels": {LABEL: "enabled"}}})
    made = configuration(INJECTOR, webhook, only=LABEL)
    hooks = [{**made["webhooks"][0], "name": "namespace.sidecar-injector.istio.io"}]
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration", "webhooks": hooks})
    lab.reserve(namespace, name)
    for node in NODES:
        is_synced = partial(lambda node: float(node not in ahead), node)
        lab.measure("node_timex_sync_status", is_synced, namespace="monitoring", service="node-exporter", instance=node)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    by, tag = lab.rng.choice(("ci", "argocd")), f"1.{lab.rng.randrange(41, 60)}.0"

    async def go_on() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        [pod] = pods(lab.world, MESH, INJECTOR)
        ahead.add(pod["spec"]["nodeName"])
        await lab.until(lambda: renewed[0] > now())
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.roll(by, namespace, name, tag)

    yield
    lab.start(go_on())
