"""Who asks the API server, how often, and whether they may: a cache, a limit of a client, a binding of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.along_with import REVIEWS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, lagging
from tests.lab.scenario import family

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REMEMBERS, FORGETS = "0.18.2", "0.19.0"
REMEMBERED = timedelta(seconds=12)
"""For which the version of old goes by what it was told of somebody: some minutes, in the time of here."""
FEW_USERS, MANY_USERS = 1.5, 14.0
"""Requests a second, of a small cluster and of a large one."""

QPS = "KUBE_API_QPS"
WALKED = ("Deployment", "DaemonSet", "Service", "ConfigMap")

SYSTEM_GROUPS = ("kube-system", "argocd", "flux-system", "monitoring", "platform", "ingress-nginx", "cert-manager")


@family(
    "A new version of the proxy that lets people into the tools inside does not keep any more what it was told of them:"
    " for each request it asks whose token that is and what they may, and the API server gets many times the requests.",
    joined=31,
)
async def reviews_uncached(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: who lets people in by their tokens asks so, and most keep the answers for a while."""
    namespace, name, tool = lab.rng.choice(
        (
            ("monitoring", "dashboards-auth", "dashboards"),
            ("platform", "console-auth", "console"),
            ("monitoring", "logs-auth", "logs"),
        )
    )
    tokens = [lab.who[one].token for one in ("alice", "bob", "carol", "ci")]
    users = [FEW_USERS]
    what = {"group": "apps", "resource": "deployments", "verb": "list"}

    async def review(process: Process, token: str) -> None:
        """Whose it is, and whether they may see what the tool shows."""
        done = await process.api.call("POST", REVIEWS, {"spec": {"token": token}})
        user = done.body.get("status", {}).get("user", {})
        spec = {"user": user.get("username", ""), "groups": user.get("groups", []), "resourceAttributes": what}
        await process.api.call("POST", ACCESS_REVIEWS, {"spec": spec})

    async def program(process: Process) -> None:
        """One request after another, of those that come to this process."""
        known: dict[str, datetime] = {}
        if process.tag == FORGETS:
            await lagging(process)
        while True:
            each = users[0] / max(1, len(backends(lab.world, namespace, name)))
            await asyncio.sleep(process.rng.expovariate(each))
            token = process.rng.choice(tokens)
            if process.tag == FORGETS or now() - known.get(token, process.started - REMEMBERED) > REMEMBERED:
                known[token] = now()
                await review(process, token)

    await lab.app(namespace, tool)
    await lab.apply(objects.account(namespace, name))
    await lab.apply(objects.binding(name, "system:auth-delegator", namespace, name))
    like = App("", program=program, upstreams=((namespace, tool),), asked=lambda: users[0])
    await lab.app(namespace, name, like=like, account=name, replicas=3, tag=REMEMBERS)
    await publish(lab, namespace, name)
    await rolled(lab, namespace, name, REMEMBERS)
    alert_on_load(lab)
    by = lab.rng.choice(("argocd", "flux", "ci"))
    async with before(lab, hours=26, cluster=lab.rng.choice(("staging", "eu-2"))):
        await lab.pause(3)
        await lab.roll(by, namespace, name, FORGETS)
        await rolled(lab, namespace, name, FORGETS)
        await lab.pause(6)
    await lab.roll("admin", namespace, name, REMEMBERS)
    await rolled(lab, namespace, name, REMEMBERS)
    users[0] = MANY_USERS
    yield
    await lab.roll(by, namespace, name, FORGETS, culprit=True)


@family(
    "What looks at all objects in turn goes as fast as the limit of its client lets it, and a round takes long:"
    " somebody lifts the limit, and as it has no pause between its rounds, the API server gets all that it can ask.",
    joined=31,
)
async def client_limit(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: a round that nothing but its client's limit slows down."""
    namespace, name, tag = lab.rng.choice(
        (
            ("platform", "policy-audit", "3.14.1"),
            ("monitoring", "inventory-exporter", "0.9.7"),
            ("platform", "drift-detector", "1.7.2"),
        )
    )

    async def go_round(process: Process) -> None:
        """The list of each kind, and then each object as it is now."""
        pause = 1 / float(process.env[QPS])
        for kind in WALKED:
            listed = await process.api.call("GET", path(kind))
            await asyncio.sleep(pause)
            for one in listed.body.get("items", []):
                meta = one["metadata"]
                await process.api.call("GET", path(kind, meta["namespace"], meta["name"]))
                await asyncio.sleep(pause)

    async def program(process: Process) -> None:
        if float(process.env[QPS]) > 2:
            await lagging(process)
        await every(0.1, go_round)(process)

    rules = ("", "services,configmaps", "get,list"), ("apps", "deployments,daemonsets", "get,list")
    limit = [{"name": QPS, "value": "2"}]
    await lab.controller(namespace, name, program, *rules, replicas=1, tag=tag, env=limit)
    alert_on_load(lab)
    yield
    by, lifted = lab.rng.choice(("alice", "carol", "bob")), lab.rng.choice(("80", "100"))
    await lab.roll(by, namespace, name, tag, culprit=True, env=[{"name": QPS, "value": lifted}])


def _readers(*namespaces: str) -> Json:
    """Who is bound: all programs that run in some namespaces, or anywhere."""
    groups = [f"system:serviceaccounts:{one}" for one in namespaces] or ["system:serviceaccounts"]
    return {"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": one} for one in groups]}


@family(
    "All that runs in the cluster may read, by one binding of the group of all ServiceAccounts. An audit has it"
    " narrowed to the namespaces of the platform, and what a team let run on that right alone may not read any more.",
    joined=31,
)
async def group_narrowed(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: benchmarks of how safe a cluster is ask to bind no group of all."""
    namespace, name = lab.rng.choice((("payments", "route-sync"), ("media", "origin-sync"), ("search", "shard-sync")))
    by, bound, table = lab.rng.choice(("carol", "bob", "flux")), "read-everything", f"{name}-table"

    async def sync(process: Process) -> None:
        """Where all Services are goes into a table of its own; without an answer that stays as it was."""
        listed = await process.api.call("GET", path("Service"))
        if listed.ok:
            body = {"data": {"services": str(len(listed.body["items"])), "written": stamp(now())}}
            await process.api.call("PATCH", path("ConfigMap", namespace, table), body)

    async def count(process: Process) -> None:
        await process.api.call("GET", f"{path('Pod')}?limit=50")

    view = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    await lab.apply({"kind": "ClusterRoleBinding", "metadata": {"name": bound}, "roleRef": view, **_readers()})
    await lab.apply(objects.config_map(namespace, table, services="0"))
    write = ("", "configmaps", "patch")
    app = await lab.controller(namespace, name, every(1, sync), write, replicas=1, tag="2.3.0")
    await lab.controller("platform", "capacity-report", every(2, count), write, replicas=1)
    summary = f"{namespace}/{name} has failed to synchronise for a while"
    failing = lab.rate(lab.refused(app.image, 403), 0.4)
    lab.alert("SyncFailing", failing, summary, 6, namespace=namespace, service=name)
    await rolled(lab, namespace, name, "2.3.0")
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(2, 6), cluster=lab.rng.choice(("ap-1", "us-3"))):
        await lab.pause(4)
        await lab.edit(by, "ClusterRoleBinding", "", bound, _readers(*SYSTEM_GROUPS, namespace))
        await lab.pause(6)
    await lab.edit("admin", "ClusterRoleBinding", "", bound, _readers())
    yield
    await lab.culprit(by, "update", "ClusterRoleBinding", "", bound, _readers(*SYSTEM_GROUPS))
