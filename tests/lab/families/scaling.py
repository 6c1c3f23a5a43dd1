"""What was told of those that scale: one that comes back while its data is on the move, one that a quota stops."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import unserved
from tests.lab.programs import every
from tests.lab.scenario import family

SCALING = ("apps", "deployments/scale", "get,patch")


@family(
    "An autoscaler is scaled to nothing by hand while the data that it reads is moved, and an agent writes back what"
    " Git says: it is there again, takes what is not moved yet for what nobody needs, and ends it.",
    joined=13,
)
async def half_migrated(lab: Lab) -> AsyncIterator[None]:
    """As Reddit tells of 11 August 2016."""
    home, name = "platform", "fleet-autoscaler"
    apps = APPS["shop"]
    missing = lab.rng.sample(apps, 2)

    async def scale(process: Process) -> None:
        """As many of each app as the registry says; what is not in it is not needed."""
        found = await process.api.call("GET", path("ConfigMap", home, process.config["REGISTRY"]))
        for app in apps if found.ok else ():
            where = f"{path('Deployment', 'shop', app)}/scale"
            wanted = int(found.body["data"].get(f"shop.{app}", "0"))
            now_is = await process.api.call("GET", where)
            if now_is.ok and now_is.body["spec"].get("replicas", 0) != wanted:
                await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    lab.reserve("shop", *apps)
    registered = {f"shop.{app}": "3" for app in apps}
    await lab.apply(objects.config_map(home, "fleet-registry", **registered))
    await lab.apply(objects.config_map(home, name, REGISTRY="fleet-registry"))
    rules = (("", "configmaps", "get"), SCALING)
    await lab.controller(home, name, every(2, scale), *rules, replicas=1, config=name)
    host = await publish(lab, "shop", "frontend")
    await lab.until(lambda: all(sum(map(is_ready, pods(lab.world, "shop", app))) == 3 for app in apps))
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 4, job="blackbox", instance=f"https://{host}")
    yield
    by = lab.rng.choice(("alice", "bob"))
    await lab.edit(by, "Deployment", home, name, {"spec": {"replicas": 0}})
    await lab.pause(lab.rng.uniform(3, 5))
    moved = {key: value for key, value in registered.items() if key not in {f"shop.{app}" for app in missing}}
    await lab.apply(objects.config_map(home, "fleet-registry-v2", **moved), by)
    why = "the autoscaler reads another registry from then on, in which half of the apps are not yet"
    body = {"data": {"REGISTRY": "fleet-registry-v2"}}
    await lab.also(why, by, "update", "ConfigMap", home, name, body)
    await lab.pause(lab.rng.uniform(6, 12))
    await lab.culprit("argocd", "update", "Deployment", home, name, {"spec": {"replicas": 1}})


@family(
    "A special offer brings far more traffic than anybody expected. The nodes have plenty of room, but a quota of old"
    " counts what pods ask for: an autoscaler wants many more of an app and gets hardly any.",
    culprit=False,
    joined=13,
)
async def quota_at_peak(lab: Lab) -> AsyncIterator[None]:
    """As Allegro tells of 18 July 2018."""
    namespace, name = lab.rng.choice((("shop", "item"), ("search", "offers"), ("payments", "basket-pay")))
    app, usual = App("", capacity=60, load=150), 4

    async def scale(process: Process) -> None:
        """So many that each gets two thirds of what it stands."""
        wanted = min(24, max(usual, math.ceil(app.load / app.capacity * 1.5)))
        where = f"{path('Deployment', namespace, name)}/scale"
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    await lab.app(namespace, name, like=app, replicas=usual)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    resources = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    await lab.roll("admin", namespace, name, "1.0.0", resources=resources)
    await lab.until(lambda: [_asks(pod) for pod in pods(lab.world, namespace, name)] == ["500m"] * usual)
    meta = {"namespace": namespace, "name": "team"}
    await lab.apply({"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"requests.cpu": "4500m"}}})
    await lab.controller("platform", "traffic-scaler", every(3, scale), SCALING, replicas=1)
    lab.alert_lacking(namespace, name)
    yield
    app.load = lab.rng.choice((650.0, 800.0, 950.0))


def _asks(pod: Json) -> str:
    """Of its node's processors, by its first container."""
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
