"""What apps of one namespace share: labels, names in the environment, the pods behind a Service."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, World, now
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.scenario import family

WRONG_SHARE = 0.25
"""Of its calls that may fail before an app gives up on whom it calls."""
QUEUE_SECONDS = 3.0
"""For which a container takes more than it stands, until its probes wait too."""


@family(
    "A back office is made of a copy of another app's manifest, with the label by which that one's Service finds its"
    " pods: a share of the calls is answered by the wrong app.",
    joined=8,
)
async def copied_labels(lab: Lab) -> AsyncIterator[None]:
    namespace, name, caller = lab.rng.choice(
        (("shop", "reviews", "product-pages"), ("search", "synonyms", "suggest"), ("media", "subtitles", "player"))
    )

    def check(container: Container) -> Problem | None:
        """Its calls are spread over all that the Service has: another image knows nothing of what is asked for."""
        found = backends(lab.world, namespace, name)
        strange = [pod for pod in found if images(pod)[0].rsplit(":", 1)[0] != callee.image]
        if not found or len(strange) / len(found) < WRONG_SHARE:
            return None
        where = strange[0]["status"].get("podIP")
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({where}: 404 Not Found)")

    callee = await lab.app(namespace, name, replicas=3)
    await lab.app(namespace, caller, like=App("", check=check, upstreams=((namespace, name),)), replicas=3)
    lab.alert_lacking(namespace, caller)
    yield
    copy = f"{name}-{lab.rng.choice(('admin', 'backoffice', 'import'))}"
    image = f"registry.corp.example/{namespace}/{copy}"
    lab.apps[image] = App(image, failing=lambda container: 1.0, fails_with=lambda container: "404")
    body = objects.deployment(namespace, copy, f"{image}:1.0.0")
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": copy}
    body["metadata"]["labels"] = body["spec"]["template"]["metadata"]["labels"] = labels
    body["spec"]["selector"] = {"matchLabels": labels}
    await lab.culprit(lab.rng.choice(("alice", "argocd")), "create", "Deployment", namespace, copy, body)


def linked(world: World, container: Container) -> dict[str, str]:
    """The variables that a kubelet gives a container for the Services that its namespace has as it starts."""
    if not container.pod["spec"].get("enableServiceLinks", True):
        return {}
    began = now() - timedelta(seconds=container.seconds)
    found = {}
    for (namespace, name), service in world["Service"].items():
        made = datetime.fromisoformat(service["metadata"]["creationTimestamp"])
        if namespace == container.pod["metadata"]["namespace"] and made < began:
            address = f"{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
            found[f"{re.sub('[^A-Z0-9]', '_', name.upper())}_PORT"] = f"tcp://{address}"
    return found


@family(
    "A Service gets a short name beside that of its version, and kubelets give its address to every container that"
    " starts there: an app reads the variable as the number of a port, and crashes at its next, harmless rollout.",
    joined=8,
)
async def service_links(lab: Lab) -> AsyncIterator[None]:
    namespace, name, short, port = lab.rng.choice(
        (
            ("shop", "wishlist", "cache", 6379),
            ("search", "crawl", "broker", 9092),
            ("media", "encoder", "queue", 5672),
        )
    )
    variable = f"{short.upper()}_PORT"

    def check(container: Container) -> Problem | None:
        value = linked(lab.world, container).get(variable, str(port))
        return None if value.isdecimal() else Problem("crash", f'{variable}: parsing "{value}": invalid syntax')

    versioned = f"{short}-v{lab.rng.randrange(3, 9)}"
    await lab.app(namespace, versioned)
    await lab.app(namespace, name, like=App("", check=check), replicas=3)
    lab.alert_stuck(namespace, name)
    yield
    spec = {"selector": {"app.kubernetes.io/name": versioned}, "ports": [{"port": port, "targetPort": 8080}]}
    body: Json = {"metadata": {"name": short}, "spec": spec}
    await lab.culprit(lab.rng.choice(("bob", "flux")), "create", "Service", namespace, short, body)
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.roll("argocd", namespace, name, "1.0.1")


@family(
    "A Service is told to keep each client at the same pod: its clients are a few proxies, and the pods that have them"
    " get more than they stand, one after another.",
    joined=8,
)
async def session_affinity(lab: Lab) -> AsyncIterator[None]:
    namespace, name, proxy = lab.rng.choice(
        (("shop", "prices", "edge"), ("search", "autocomplete", "edge"), ("media", "playlists", "edge"))
    )
    each = lab.rng.choice((130.0, 150.0, 170.0))
    kept: dict[str, tuple[str, datetime]] = {}  # a proxy's pod: whom its calls go to, and since when

    def check(container: Container) -> Problem | None:
        """A client goes elsewhere when its pod is not ready any more."""
        if lab.world["Service"][namespace, name]["spec"].get("sessionAffinity") != "ClientIP":
            return None
        ready = sorted(pod["metadata"]["name"] for pod in backends(lab.world, namespace, name))
        clients = [pod["metadata"]["name"] for pod in pods(lab.world, namespace, proxy)]
        for client in clients:
            if ready and (client not in kept or kept[client][0] not in ready):
                kept[client] = lab.rng.choice(ready), now()
        me = container.pod["metadata"]["name"]
        since = [kept[client][1] for client in clients if client in kept and kept[client][0] == me and me in ready]
        if each * len(since) <= app.capacity or (now() - min(since)).total_seconds() < QUEUE_SECONDS:
            return None
        return Problem("unready", "probe failed: context deadline exceeded while awaiting headers")

    app = await lab.app(namespace, name, like=App("", check=check), replicas=6)
    app.load = 2 * each
    await lab.app(namespace, proxy, like=App("", upstreams=((namespace, name),)))
    lab.alert_lacking(namespace, name)
    yield
    body = {"spec": {"sessionAffinity": "ClientIP"}}
    await lab.culprit(lab.rng.choice(("alice", "argocd", "flux")), "update", "Service", namespace, name, body)
