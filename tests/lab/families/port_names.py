"""What was told of a mesh that knows a call by the name of its port."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, now, stamp
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

NAMESPACE, STORE, LABEL = "development", "sessions", "mesh.corp.example/inject"
PROXY = "registry.corp.example/platform/mesh-proxy"


@family(
    "A namespace is taken into the mesh and its pods are made anew with a proxy, which knows by the name of a Service's"
    " port what is spoken there: that of a store says HTTP, the store speaks its own, and whoever needs it crashes.",
    joined=12,
)
async def port_protocol(lab: Lab) -> AsyncIterator[None]:
    """As Exponea tells of Istio in its development environment."""
    names = lab.rng.sample(("accounts", "campaigns", "events", "reports", "segments"), 4)

    async def inject(request: Json) -> list[Json] | None:
        resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
        one = {"name": "mesh-proxy", "image": f"{PROXY}:1.3.0", "resources": resources}
        return [{"op": "add", "path": "/spec/containers/-", "value": one}]

    def check(container: Container) -> Problem | None:
        """A proxy that takes a call for HTTP answers what it cannot read."""
        [port] = lab.world["Service"][NAMESPACE, STORE]["spec"]["ports"]
        has_proxy = any(image.startswith(PROXY) for image in images(container.pod))
        if not has_proxy or not port["name"].startswith("http"):
            return None
        answer = '"HTTP/1.1 400 Bad Request"'
        return Problem("crash", f"{STORE}.{NAMESPACE}:{port['port']}: redis: can't parse reply {answer}")

    lab.apps[PROXY] = App(PROXY)
    await lab.namespace(NAMESPACE)
    await lab.app("platform", "mesh-injector")
    webhook = Webhook(inject, service=("platform", "mesh-injector"))
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration("mesh-injector", webhook, only=LABEL)
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration"})
    for name in (STORE, *names):
        image = f"registry.corp.example/{NAMESPACE}/{name}"
        lab.apps[image] = App(image) if name == STORE else App(image, check=check)
        body = objects.deployment(NAMESPACE, name, f"{image}:1.0.0", replicas=1)
        body["spec"]["strategy"] = {"type": "Recreate"}  # one of each is enough there
        await lab.apply(body)
    service = objects.service(NAMESPACE, STORE)
    service["spec"]["ports"] = [{"name": "http", "port": 6379, "targetPort": 8080}]
    await lab.apply(service)
    for name in names:
        crashing = lambda name=name: restarts(lab.world, NAMESPACE, name) >= 2  # noqa: E731
        summary = f"pods of {name} restart again and again"
        lab.alert("KubePodCrashLooping", crashing, summary, 3, namespace=NAMESPACE, deployment=name)
    yield
    by = lab.rng.choice(("alice", "bob", "carol"))
    await lab.culprit(by, "update", "Namespace", "", NAMESPACE, {"metadata": {"labels": {LABEL: "enabled"}}})
    await lab.pause(lab.rng.uniform(2, 4))
    for name in (STORE, *names):
        restarted = {"kubectl.kubernetes.io/restartedAt": f"{stamp(now())[:19]}Z"}
        template = {"metadata": {"annotations": restarted}}
        await lab.edit(by, "Deployment", NAMESPACE, name, {"spec": {"template": template}})
