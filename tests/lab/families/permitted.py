"""Who may what: a tool with an account of its own that nothing is bound to, a webhook that asks whether one may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from tests.lab import objects
from tests.lab.api import now, path
from tests.lab.apps import App, Process, Program
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family

SHARED = "platform-tools"
SECURITY = "pod-security.kubernetes.io/"
"""How the labels of a namespace begin that say what its pods may be."""
Work = Callable[[Process], Awaitable[None]]
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@family(
    "Tools that share one ServiceAccount get one each, as an audit wants it, and for one of them nobody thinks of the"
    " binding: its new pod has an account that may nothing, and what it should keep in step is not any more.",
    joined=19,
)
async def own_account(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    name, other = lab.rng.sample(("dns-publisher", "route-exporter", "status-page-sync"), 2)
    rules = (("", "services", "list"), ("networking.k8s.io", "ingresses", "list"))
    synced = {name: now(), other: now()}

    def syncing(tool: str) -> Program:
        async def sync(process: Process) -> None:
            found = [await process.api.call("GET", f"{path(kind)}?limit=30") for kind in ("Service", "Ingress")]
            if all(one.ok for one in found):
                synced[tool] = now()

        return every(1.5, sync)

    def stale(tool: str) -> bool:
        return (now() - synced[tool]).total_seconds() > 7

    await lab.apply(objects.account("platform", SHARED))
    await lab.apply(objects.cluster_role(SHARED, *rules))
    await lab.apply(objects.binding(SHARED, SHARED, "platform", SHARED))
    for tool in (name, other):
        like = App("", program=syncing(tool), serves=False)
        await lab.app("platform", tool, tag="1.4.0", like=like, account=SHARED, replicas=1)
        summary, holds = f"{tool} has not synced for a while", lambda tool=tool: stale(tool)
        lab.alert("SyncStale", holds, summary, 4, namespace="platform", service=tool)
    yield
    by = lab.rng.choice(("carol", "ci", "alice"))
    for tool in (other, name):
        await lab.who[by].must("POST", path("ServiceAccount", "platform"), objects.account("platform", tool))
        body = {"spec": {"template": {"spec": {"serviceAccountName": tool}}}}
        if tool == name:
            await lab.culprit(by, "update", "Deployment", "platform", tool, body)
            continue
        await lab.who[by].must("POST", path("ClusterRoleBinding"), objects.binding(tool, SHARED, "platform", tool))
        await lab.edit(by, "Deployment", "platform", tool, body)
        await lab.pause(lab.rng.uniform(1, 2))
