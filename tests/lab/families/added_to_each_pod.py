"""What is added to each pod as it is made: the proxy of a mesh, as a template has it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

HOME, INJECTED = "istio-system", "istio-injection"
PILOT, TEMPLATE = (HOME, "istiod"), (HOME, "istio-sidecar-injector")
HUB, TAG, AUTHORITY = "registry.corp.example/mirror", "1.27.1", f"istiod.{HOME}.svc:15012"
PROXY_MIB = 74
"""What a proxy needs that knows all services of this mesh."""


def _values(*, tag: str = TAG, memory: tuple[str, str] = ("128Mi", "1Gi"), authority: str = AUTHORITY) -> Json:
    """The part of the template's ConfigMap that says what is filled in; of memory the request and the limit."""
    room = {"requests": {"cpu": "20m", "memory": memory[0]}, "limits": {"memory": memory[1]}}
    proxy = {"image": "proxyv2", "logLevel": "warning", "resources": room}
    shared = {"caAddress": authority, "hub": HUB, "tag": tag, "proxy": proxy}
    return {"data": {"values": json.dumps({"global": shared}, indent=2)}}


@dataclass
class _Injector:
    """Adds the proxy to each new pod of a namespace that has the label, as the template says now."""

    lab: Lab

    async def review(self, request: Json) -> list[Json] | None:
        if not backends(self.lab.world, *PILOT):
            raise ConnectionError("no pod is behind it")
        if any(one["name"] == "istio-proxy" for one in request["object"]["spec"]["containers"]):
            return None
        told = json.loads(self.lab.world["ConfigMap"][TEMPLATE]["data"]["values"])["global"]
        env = [{"name": "CA_ADDR", "value": told["caAddress"]}, {"name": "ISTIO_META_MESH_ID", "value": "corp"}]
        proxy = {
            "name": "istio-proxy",
            "image": f"{told['hub']}/{told['proxy']['image']}:{told['tag']}",
            "args": ["proxy", "sidecar", "--domain", f"{request['namespace']}.svc.cluster.local"],
            "env": env,
            "resources": told["proxy"]["resources"],
            "readinessProbe": {"httpGet": {"path": "/healthz/ready", "port": 15021}, "periodSeconds": 15},
        }
        return [{"op": "add", "path": "/spec/containers/-", "value": proxy}]


def _misses_its_authority(container: Container) -> Problem | None:
    """A proxy that gets no certificate of its own is never ready."""
    told = {one["name"]: one.get("value") for one in container.spec.get("env", ())}
    if told.get("CA_ADDR") == AUTHORITY:
        return None
    return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503", at_once=True)


async def _mesh(lab: Lab, namespace: str) -> None:
    """With what adds its proxies, in this namespace alone. Raises RefusedError."""
    proxy = f"{HUB}/proxyv2"
    lab.apps[proxy] = App(
        proxy, serves=False, memory_mi=PROXY_MIB, path="/healthz/ready", port=15021, check=_misses_its_authority
    )
    lab.outside.missing.add(f"{proxy}:{TAG}-distroless")
    await lab.namespace(HOME)
    await lab.apply(objects.config_map(*TEMPLATE, **_values()["data"]))
    await lab.app(*PILOT, like=App("", serves=False), tag=TAG, config=TEMPLATE[1])
    await rolled(lab, *PILOT, TAG)
    await lab.until(lambda: len(backends(lab.world, *PILOT)) == 2)
    webhook = Webhook(_Injector(lab).review, service=PILOT)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {INJECTED: "enabled"}}})
    made = {**configuration(TEMPLATE[1], webhook, seconds=10, only=INJECTED), "kind": "MutatingWebhookConfiguration"}
    made["webhooks"][0]["name"] = "namespace.sidecar-injector.istio.io"
    await lab.apply(made)
    await lab.pause(2)  # until the API server asks it


@family(
    "The template by which a mesh adds its proxy to each new pod is changed: the proxy gets another address to ask for"
    " its certificate, little memory, or an image that is not in the registry. All that runs has its proxy of before;"
    " the next pods of an app do not come up.",
    joined=97,
)
async def template_of_the_proxy(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods were 1/2 ready, and who had released one line."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "warranties", "warranty-page", "warranty-mails"),
            ("payments", "instalments", "instalment-page", "instalment-report"),
            ("media", "storyboards", "board-page", "board-sync"),
            ("search", "autocomplete", "complete-page", "complete-feed"),
        )
    )
    what = lab.rng.choice(("address", "memory", "image"))
    by, minor, is_release = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.random() < 0.6
    changed = {
        "address": _values(authority=lab.rng.choice((f"istiod-eu2.{HOME}.svc:15012", f"istiod.{HOME}.svc:15010"))),
        "memory": _values(memory=lab.rng.choice((("32Mi", "40Mi"), ("48Mi", "64Mi")))),
        "image": _values(tag=f"{TAG}-distroless"),
    }[what]
    await _mesh(lab, namespace)
    await lab.app(namespace, name, like=App("", asked=lambda: 19.0), replicas=3, tag=f"3.{minor}.0")
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.6.4", config=other)
    await rolled(lab, namespace, other, "1.6.4")
    await set_before(lab, namespace, front, name)
    await lab.until(
        lambda: all(len(images(one)) == 2 for place in (name, front) for one in pods(lab.world, namespace, place))
    )
    for one in (name, front):
        lab.alert_stuck(namespace, one)
        lab.alert_lacking(namespace, one, seconds=12)
    many = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    summary = f"containers of {namespace}/{name} restart again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container="istio-proxy")
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
        await lab.pause(lab.rng.uniform(3, 7))
        if is_release:
            await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"3.{minor}.1")
        else:
            await lab.edit(lab.rng.choice(TEAMS), "Deployment", namespace, name, {"spec": {"replicas": 6}})
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(9, 13))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", "ConfigMap", *TEMPLATE, changed)
    lab.start(afterwards())
