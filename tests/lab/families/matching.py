"""Names that no longer meet: a selector that few pods fit, nodes that are marked anew, a key that nobody finds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.api import now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

REPLICAS, CAPACITY = 8, 60.0
"""Of those that take everything in; in the usual they have half of what they stand."""
FILLS_SECONDS = 2.5
"""For how long one that gets far too much has room to keep what waits."""


@family(
    "What takes all writes in moves to another way to find its peers, and the members of that get a label: the Service"
    " selects it too, so only the few new pods of the rollout get the calls of all, and are killed for memory.",
    joined=19,
)
async def narrowed_selector(lab: Lab) -> AsyncIterator[None]:
    """As Grafana tells of its logs (August 2022, loki 6626)."""
    namespace, name, caller = lab.rng.choice(
        (("search", "distributor", "intake"), ("media", "receiver", "ingest"), ("payments", "collector", "events"))
    )
    calls, over = REPLICAS * CAPACITY / 2, dict[str, datetime]()
    """Since when one gets more than it stands, by its pod and restarts."""

    def check(container: Container) -> Problem | None:
        there = backends(lab.world, namespace, name)
        me, told = container.pod["metadata"]["name"], container.pod["status"].get("containerStatuses", ())
        process = f"{me} {sum(one['restartCount'] for one in told)}"
        if me not in [one["metadata"]["name"] for one in there] or calls / len(there) <= CAPACITY:
            over.pop(process, None)
            return None
        waited = (now() - over.setdefault(process, now())).total_seconds()
        if waited < FILLS_SECONDS + lab.lag:
            return None
        return Problem("oom", f"needs more than {container.spec['resources']['limits']['memory']}")

    like = App("", check=check, start_seconds=3, capacity=CAPACITY, asked=lambda: calls)
    await lab.app(namespace, name, tag="2.5.0", like=like, replicas=REPLICAS)
    careful = {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": careful})
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == REPLICAS)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 3)
    await publish(lab, namespace, caller)
    lab.alert_errors(namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    label = {f"{name}.corp.example/gossip-member": "true"}
    by = lab.rng.choice(("flux", "ci", "argocd"))
    await lab.culprit(by, "update", "Service", namespace, name, {"spec": {"selector": label}})
    template = {"metadata": {"labels": label}}
    await lab.edit(by, "Deployment", namespace, name, {"spec": {"template": template}})
