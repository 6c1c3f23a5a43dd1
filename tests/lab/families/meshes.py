"""What a mesh does between apps: how often it tries again, to which version it sends, where it puts its proxy."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

FAILING_SHARE = 0.25
"""Of its calls that may fail before an app gives up."""
RUN_SECONDS = 12.0
"""Longer than any run of a Job takes."""
STEP_SECONDS, STEP_SHARE = 0.5, 0.4
"""How fast load becomes what is asked for: callers find out one by one that they have to try again."""
FULL = 0.03
"""The least share of its capacity that counts as free, so that nobody waits for ever."""


def tries(late: float, retries: int) -> float:
    """How often a call is made in the mean, where so large a share of the answers is late."""
    return sum(late**number for number in range(retries + 1))


def too_late(load: float, capacity: float, takes: float, timeout: float) -> float:
    """The share of the answers that take longer than a try may; ``takes`` are seconds of an answer of an idle app."""
    return math.exp(-timeout * max(1 - load / capacity, FULL) / takes)


@family(
    "A policy of retries has each try end sooner and makes more of them, to be rid of the few slow answers: every late"
    " one is asked for again, which makes the next ones late, until the app that is called has many times its load.",
    joined=9,
)
async def retry_policy(lab: Lab) -> AsyncIterator[None]:
    namespace, called, caller = lab.rng.choice(
        (("shop", "stock", "basket"), ("payments", "fraud", "authorisation"), ("search", "ranking", "results"))
    )
    group, name = "gateway.envoyproxy.io", f"{called}-resilience"
    policy = await lab.custom("BackendTrafficPolicy", group, LOOSE)
    app = await lab.app(namespace, called, like=App("", load=150), replicas=3)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, called),)), replicas=3)
    calls = app.load

    async def traffic() -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            found = lab.world["BackendTrafficPolicy"].get((namespace, name))
            running = [one for one in pods(lab.world, namespace, called) if one["status"].get("phase") == "Running"]
            if not found or not running:
                continue
            retry = found["spec"]["retry"]
            timeout = int(retry["perRetry"]["timeout"].removesuffix("ms")) / 1000
            late = too_late(app.load, app.capacity * len(running), 0.06, timeout)
            app.load += STEP_SHARE * (calls * tries(late, retry["numRetries"]) - app.load)

    await lab.served(policy)
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": called}
    spec: Json = {"targetRefs": [target], "retry": {"numRetries": 2, "perRetry": {"timeout": "800ms"}}}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "BackendTrafficPolicy", "metadata": meta, "spec": spec})
    lab.start(traffic())
    lab.alert_lacking(namespace, called)
    yield
    retry = {"numRetries": lab.rng.choice((5, 6, 8)), "perRetry": {"timeout": lab.rng.choice(("100ms", "150ms"))}}
    by = lab.rng.choice(("alice", "argocd"))
    await lab.culprit(by, "update", "BackendTrafficPolicy", namespace, name, {"spec": {"retry": retry}})


@family(
    "The weight of a route is shifted to the new version of an app while that one has the few pods of a canary: they"
    " get far more than they stand, and who calls is not served.",
    joined=9,
)
async def traffic_weight(lab: Lab) -> AsyncIterator[None]:
    namespace, name, caller = lab.rng.choice(
        (("shop", "pricing", "storefront"), ("search", "suggest", "searchbar"), ("media", "playback", "player"))
    )
    group, calls = "networking.istio.io", lab.rng.choice((260.0, 300.0, 340.0))
    old, new = f"{name}-v1", f"{name}-v2"
    route = await lab.custom("VirtualService", group, LOOSE)

    def routes() -> dict[str, float]:
        """The share of each destination."""
        found = lab.world["VirtualService"].get((namespace, name))
        listed = found["spec"]["http"][0]["route"] if found else []
        return {one["destination"]["host"]: one["weight"] / 100 for one in listed}

    async def traffic() -> None:
        while True:
            for host, app in apps.items():
                app.load = calls * routes().get(host, 0)
            await asyncio.sleep(STEP_SECONDS)

    def check(container: Container) -> Problem | None:
        """Who calls gives up when too many of its calls are not answered."""
        failing = [host for host, share in routes().items() if share > 0 and not backends(lab.world, namespace, host)]
        if sum(routes()[host] for host in failing) < FAILING_SHARE:
            return None
        return Problem(
            "unready", f"probe failed: HTTP probe failed with statuscode: 503 ({failing[0]}: no healthy upstream)"
        )

    apps = {
        old: await lab.app(namespace, old, tag="1.9.2", replicas=5),
        new: await lab.app(namespace, new, tag="2.0.0", replicas=1),
    }
    await lab.app(namespace, caller, like=App("", check=check), replicas=3)
    await lab.served(route)

    def weights(share: int) -> Json:
        listed = [{"destination": {"host": host}, "weight": one} for host, one in ((old, 100 - share), (new, share))]
        return {"hosts": [name], "http": [{"route": listed}]}

    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "VirtualService", "metadata": meta, "spec": weights(5)})
    lab.start(traffic())
    lab.alert_lacking(namespace, caller)
    yield
    by, share = lab.rng.choice(("bob", "ci", "flux")), lab.rng.choice((50, 80, 100))
    await lab.culprit(by, "update", "VirtualService", namespace, name, {"spec": weights(share)})


@family(
    "A namespace is taken into the mesh: pods get a proxy from now on, also those of its CronJob, whose work comes to"
    " an end and whose proxy does not: no run is done, and none follows.",
    joined=9,
)
async def job_sidecar(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("media", "expiry"), ("search", "reindex"), ("payments", "settlement")))
    image, proxy = f"registry.corp.example/{namespace}/{name}", "registry.corp.example/platform/mesh-proxy"
    label = "mesh.corp.example/inject"

    async def inject(request: Json) -> list[Json] | None:
        resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
        one = {"name": "mesh-proxy", "image": f"{proxy}:1.4.0", "resources": resources}
        return [{"op": "add", "path": "/spec/containers/-", "value": one}]

    def overdue() -> bool:
        """A run that takes far longer than any did."""
        return any(
            (now() - datetime.fromisoformat(job["status"]["startTime"])).total_seconds() > RUN_SECONDS
            for (where, _), job in lab.world["Job"].items()
            if where == namespace and "startTime" in job.get("status", {}) and not job["status"].get("completionTime")
        )

    lab.apps[image], lab.apps[proxy] = App(image, ends_after=2), App(proxy)
    await lab.app("platform", "mesh-injector")
    webhook = Webhook(inject, service=("platform", "mesh-injector"))
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration("mesh-injector", webhook, only=label)
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration"})
    template = objects.deployment(namespace, name, f"{image}:1.0.0", restartPolicy="Never")["spec"]["template"]
    spec = {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": template, "backoffLimit": 1}},
    }
    await lab.apply({"kind": "CronJob", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    lab.alert("KubeJobNotCompleted", overdue, f"a run of {name} does not end", 3, namespace=namespace, cronjob=name)
    yield
    body = {"metadata": {"labels": {label: "enabled"}}}
    await lab.culprit(lab.rng.choice(("carol", "flux")), "update", "Namespace", "", namespace, body)
