"""What is unlike before though nobody meant it: in which order webhooks are asked, how often settings are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import both, every, getting, informer, lagging
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

MESH, INJECTOR, LABEL = "istio-system", "istiod", "istio-injection"
PROXY, ISTIO = "registry.corp.example/istio/proxyv2", "1.26.4"
DEFAULTS = "resource-defaults"
EACH_STANDS = 20.0
"""Requests a second of one pod."""
WATCHING, ASKING = "3.8.1", "4.0.0"
LULL, EVENING = 3.0, 21.0
"""Requests a second of an app, by the time of day."""
Patch = Callable[[Json], list[Json] | None]


def _inject(request: Json) -> list[Json] | None:
    """As what injects a mesh's proxy: it says what that needs, but not what it may have."""
    containers = request["object"]["spec"]["containers"]
    if any(one["name"] == "istio-proxy" for one in containers):
        return None
    requests = {"requests": {"cpu": "10m", "memory": "40Mi"}}
    proxy = {"name": "istio-proxy", "image": f"{PROXY}:{ISTIO}", "resources": requests}
    return [{"op": "add", "path": "/spec/containers/-", "value": proxy}]


def _limit(request: Json) -> list[Json] | None:
    """A limit for whoever says none, among those that are there as it is asked."""
    patch: list[Json] = []
    for number, one in enumerate(request["object"]["spec"]["containers"]):
        resources = one.get("resources", {})
        if "memory" not in resources.get("limits", {}):
            limits = {**resources.get("limits", {}), "memory": "256Mi"}
            whole = {**resources, "limits": limits}
            patch.append({"op": "add", "path": f"/spec/containers/{number}/resources", "value": whole})
    return patch or None


def _mutating(name: str, webhook: Webhook, hook: str) -> Json:
    made = configuration(name, webhook, only=LABEL)
    only = {"name": hook, "reinvocationPolicy": "Never"}
    return {**made, "kind": "MutatingWebhookConfiguration", "webhooks": [{**made["webhooks"][0], **only}]}


@family(
    "A chart's new version names what is in no namespace after the release too, also its webhook's configuration. By"
    " their names the API server asks webhooks: the one that gives limits to whoever says none now comes before the one"
    " that adds a mesh's proxy, and a quota refuses the pods that an app is to get in the evening.",
    joined=39,
)
async def webhook_order(lab: Lab) -> AsyncIterator[None]:
    """Of the API server: it asks the webhooks of one kind in the order of their configurations' names."""
    namespace, name, front = lab.rng.choice(
        (("accounts", "sessions", "sign-in"), ("tickets", "seats", "box-office"), ("rides", "dispatch", "rider-app"))
    )
    by, team = lab.rng.choice(("ci", "argocd")), lab.rng.choice(("alice", "bob", "flux"))
    renamed = f"{lab.rng.choice(('corp', 'cluster', 'central'))}-{DEFAULTS}"
    asked = [EACH_STANDS * 2.2]

    def answered_by(place: tuple[str, str], patch: Patch) -> Webhook:
        async def review(request: Json) -> list[Json] | None:
            if not backends(lab.world, *place):
                raise ConnectionError("no pod is behind it")
            return patch(request)

        return Webhook(review, service=place)

    injector, defaults = answered_by((MESH, INJECTOR), _inject), answered_by(("platform", DEFAULTS), _limit)
    lab.apps[PROXY] = App(PROXY)
    for one in (MESH, namespace):
        await lab.namespace(one)
    await lab.app(MESH, INJECTOR, like=App("", serves=False), tag=ISTIO)
    await lab.app("platform", DEFAULTS, like=App("", serves=False), tag="1.6.0")
    await lab.until(lambda: backends(lab.world, MESH, INJECTOR) and backends(lab.world, "platform", DEFAULTS))
    for webhook in (injector, defaults):
        await webhook.start()
        lab.servers.append(webhook)
    hook = f"{DEFAULTS}.corp.example"
    former = _mutating(DEFAULTS, defaults, hook)
    await lab.apply(_mutating("istio-sidecar-injector", injector, "namespace.sidecar-injector.istio.io"))
    await lab.apply({**former, "metadata": {"name": DEFAULTS, "labels": {"helm.sh/chart": f"{DEFAULTS}-1.6.0"}}})
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {LABEL: "enabled"}}})
    quota = {"kind": "ResourceQuota", "metadata": {"namespace": namespace, "name": "team"}}
    await lab.apply({**quota, "spec": {"hard": {"limits.memory": "32Gi", "pods": "60"}}})
    await lab.pause(2)
    like = App("", capacity=EACH_STANDS, asked=lambda: asked[0], failing=lambda _: short())
    await lab.app(namespace, name, like=like, replicas=3, tag="6.0.3")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.9.0")

    def short() -> float:
        """What its pods do not stand."""
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked[0])

    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_lacking(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    chart = {"labels": {"helm.sh/chart": f"{DEFAULTS}-2.0.0"}}
    body = {**_mutating(renamed, defaults, hook), "metadata": {"name": renamed, **chart}}
    await lab.culprit(by, "create", "MutatingWebhookConfiguration", "", renamed, body)
    await lab.culprit(by, "delete", "MutatingWebhookConfiguration", "", DEFAULTS)
    await lab.roll(by, "platform", DEFAULTS, "2.0.0")
    await rolled(lab, "platform", DEFAULTS, "2.0.0")
    await lab.pause(lab.rng.uniform(5, 12))
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": 6}})
    await lab.pause(lab.rng.uniform(2, 4))
    asked[0] = EACH_STANDS * 5.1


@family(
    "A release of an app brings a library that reads its settings by the API, for each request that it answers, where"
    " the one before watched them. It is rolled out in a lull and nobody sees it; in the evening users come as every"
    " day, the app gets some pods more, and the API server gets many times the requests.",
    joined=39,
)
async def settings_per_request(lab: Lab) -> AsyncIterator[None]:
    """Of a library's documentation: property sources may be read anew by the API where they are not watched."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "promotions", "offers-page"),
            ("payments", "quotes", "quote-page"),
            ("media", "subtitles", "watch-page"),
        )
    )
    by, team = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.choice(("alice", "carol"))
    settings = (path("ConfigMap", namespace, name), path("Secret", namespace, f"{name}-keys"))
    asked = [LULL]

    async def program(process: Process) -> None:
        if process.tag == WATCHING:
            await getting(*settings)(process)
            where = f"{path('ConfigMap', namespace)}?fieldSelector=metadata.name={name}"
            await informer(where)(process)
        await lagging(process)

        def each(process: Process) -> float:
            """Seconds between two requests that this one of its pods gets."""
            there = sum(is_ready(pod) for pod in pods(lab.world, namespace, name))
            return max(1, there) / asked[0]

        await both(every(each, getting(*settings)))(process)

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CURRENCY="EUR"))
    meta = {"namespace": namespace, "name": f"{name}-keys"}
    await lab.apply({"kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": {"signing": "k-2025-10"}})
    rights = ("", "configmaps,secrets", "get,list,watch")
    app = await lab.controller(namespace, name, program, rights, replicas=3, tag=WATCHING)
    app.serves, app.asked = True, lambda: asked[0]
    above = App("", upstreams=((namespace, name),), asked=lambda: 1.5 * asked[0])
    await lab.app(namespace, front, like=above, replicas=2, tag="7.0.0")
    await rolled(lab, namespace, name, WATCHING)
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    alert_on_load(lab)
    await lab.until(lab.is_well)

    async def evening() -> None:
        while asked[0] < EVENING:
            asked[0] = min(EVENING, asked[0] + lab.rng.uniform(1, 3))
            await lab.pause(1)

    yield
    await lab.roll(by, namespace, name, ASKING, culprit=True)
    await lab.pause(lab.rng.uniform(12, 18))
    lab.start(evening())
    await lab.pause(lab.rng.uniform(2, 4))
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": 5}})
