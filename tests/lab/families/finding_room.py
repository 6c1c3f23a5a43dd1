"""What is not let in or finds no room: pods that do not say enough, the run of a week."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

BEFORE_SECONDS = 15.0
"""How long before a full minute all has to be prepared, for a run at the next one but one."""
RUN_SECONDS = 20.0
WEEK = timedelta(days=7)


@family(
    "A quota of limits is made for a namespace, far above what runs there, and so every pod has to say a limit for the"
    " processor, which none of them does: the next, harmless release ends the old pods first and may make none.",
    joined=19,
)
async def limits_demanded(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("payments", "vouchers"), ("media", "gallery"), ("search", "facets")))
    body = objects.deployment(namespace, name, f"registry.corp.example/{namespace}/{name}:1.4.0", replicas=3)
    body["spec"]["strategy"] = {"type": "Recreate"}  # two versions at once would not get along
    lab.apps[f"registry.corp.example/{namespace}/{name}"] = App(f"registry.corp.example/{namespace}/{name}")
    await lab.apply(body)
    await lab.apply(objects.service(namespace, name))
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    by, share = lab.rng.choice(("carol", "flux", "alice")), lab.rng.choice(("32", "40", "48"))
    hard = {"requests.cpu": share, "limits.cpu": share, "limits.memory": "96Gi"}
    quota: Json = {"metadata": {"name": "fair-share"}, "spec": {"hard": hard}}
    await lab.culprit(by, "create", "ResourceQuota", namespace, "fair-share", quota)
    await lab.pause(lab.rng.uniform(7, 14))
    await lab.roll(lab.rng.choice(("argocd", "ci")), namespace, name, "1.4.1")
