"""Who is promoted and brings something of old along: a database's operator that has a password of its own."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.api import path
from tests.lab.apps import App, Container, Process
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every, tell
from tests.lab.scenario import family

GROUP = "postgresql.cnpg.io"


@family(
    "A database gets replicas, and as its primary's node is still cordoned, its operator promotes one at once: it"
    " writes the password of its own Secret there, from the beginning; apps have the rotated one of another Secret.",
    joined=21,
)
async def promoted_password(lab: Lab) -> AsyncIterator[None]:
    """As devantler-tech tells of its analytics (9 June 2026, platform 1959)."""
    namespace, name, apps = lab.rng.choice(
        (
            ("platform", "analytics", ("collector", "dashboards")),
            ("shop", "vouchers", ("redeem", "campaigns")),
            ("media", "comments", ("threads", "moderation")),
            ("payments", "mandates", ("debits", "consents")),
        )
    )
    database, operator = f"{name}-db", ("cnpg-system", "cnpg-controller-manager")
    first, rotated = (base64.b64encode(f"{lab.rng.getrandbits(96):024x}".encode()).decode() for _ in range(2))
    knows, primary = [rotated], [f"{database}-0"]
    cluster = await lab.custom("Cluster", GROUP, ANY)

    async def reconcile(process: Process) -> None:
        """As many instances as are declared; and a primary does not stay on a node that is to be emptied."""
        found = await process.api.call("GET", cluster.path(namespace, database))
        where = path("StatefulSet", namespace, database)
        there = await process.api.call("GET", where)
        if not found.ok or not there.ok:
            return
        if there.body["spec"]["replicas"] != found.body["spec"]["instances"]:
            await process.api.call("PATCH", where, {"spec": {"replicas": found.body["spec"]["instances"]}})
        listed = await process.api.call(
            "GET", f"{path('Pod', namespace)}?labelSelector=app.kubernetes.io/name={database}"
        )
        instances = {one["metadata"]["name"]: one for one in listed.body.get("items", [])}
        others = sorted(each for each, pod in instances.items() if is_ready(pod) and each != primary[0])
        if not others or primary[0] not in instances:
            return
        node = await process.api.call("GET", path("Node", None, instances[primary[0]]["spec"]["nodeName"]))
        if not node.ok or not node.body["spec"].get("unschedulable"):
            return
        secret = await process.api.call("GET", path("Secret", namespace, f"{database}-app"))
        primary[0], knows[0] = others[0], secret.body["data"]["password"]
        status = {"status": {"currentPrimary": primary[0]}}
        await process.api.call("PATCH", cluster.path(namespace, database), status)
        about = {"kind": "Cluster", **found.body}
        await tell(process, about, "Normal", "SwitchoverCompleted", f"promoted {primary[0]}", by="cloudnative-pg")

    def refused(container: Container) -> float:
        """Each connection is a new one once the primary is another."""
        return 0.0 if container.secret.get("password") == knows[0] else 1.0

    await lab.namespace(operator[0])
    await lab.served(cluster)
    for secret, value in ((f"{database}-app", first), (f"{database}-rotated", rotated)):
        meta = {"namespace": namespace, "name": secret}
        await lab.apply({"kind": "Secret", "metadata": meta, "data": {"password": value}})
    meta, spec = {"namespace": namespace, "name": database}, {"instances": 1, "storage": {"size": "10Gi"}}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": "Cluster", "metadata": meta, "spec": spec})
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    for app in apps:
        like = App("", upstreams=((namespace, database),), failing=refused)
        await lab.app(namespace, app, like=like, replicas=2, secret=f"{database}-rotated")
        lab.alert_errors(namespace, app)
    await lab.until(lambda: [pod for pod in pods(lab.world, namespace, database) if is_ready(pod)])
    [pod] = pods(lab.world, namespace, database)
    await lab.edit("admin", "Node", "", pod["spec"]["nodeName"], {"spec": {"unschedulable": True}})
    rules = (
        (GROUP, "clusters", "get,patch"),
        ("apps", "statefulsets", "get,patch"),
        ("", "pods,nodes,secrets", "get,list"),
        ("", "events", "create"),
    )
    await lab.controller(*operator, every(2, reconcile), *rules, replicas=1)
    yield
    by = lab.rng.choice(("flux", "argocd", "alice"))
    await lab.culprit(by, "update", "Cluster", namespace, database, {"spec": {"instances": lab.rng.choice((2, 3))}})
