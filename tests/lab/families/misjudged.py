"""What was told of programs that misjudge what they keep: a machine that never came, pods that differ in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from tests.lab import objects
from tests.lab.alerts import is_lost, pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.families.databases import ANY
from tests.lab.families.joining import AUTOSCALER, autoscaled, enlarging, forgetting, large, say
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

STARTS_SECONDS = 20.0
"""What an app that is slow to start takes for it."""
SYNC_SECONDS, PG_SECONDS = 12.0, 4.0
"""From one sync of an operator to the next, and until a database has started."""


@family(
    "The cloud has no machine left when an autoscaler wants one more: it takes its own placeholder back by asking for"
    " one machine less, and the cloud, where no placeholder is known, ends one that is in use.",
    culprit=False,
    joined=15,
)
async def placeholder_node(lab: Lab) -> AsyncIterator[None]:
    """As users of the autoscaler on AWS tell (June 2023, autoscaler 5829)."""
    busy = lab.rng.choice((("search", "offers"), ("shop", "availability"), ("media", "galleries")))
    slow = lab.rng.choice((("payments", "risk"), ("search", "models"), ("media", "player")))
    traffic, where, ended = [130.0], f"{path('Deployment', *busy)}/scale", set[str]()
    group = "eks-main-0ec41f2a"

    async def scale(process: Process) -> None:
        """Each pod takes ten."""
        found, wanted = await process.api.call("GET", where), int(traffic[0] / 10)
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def shrink(process: Process, waiting: Sequence[Json]) -> None:
        """Its words: clusterstate/clusterstate.go. Which machine goes, the cloud says: it knows of no pods."""
        found = await process.api.call("GET", path("ConfigMap", AUTOSCALER[0], f"{AUTOSCALER[1]}-status"))
        code = "OutOfResource.placeholder-cannot-be-fulfilled"
        why = "source errors: AWS cannot provision any more instances for this node group"
        words = f"Failed adding 1 nodes to group {group} due to {code}; {why}"
        await say(process, {"kind": "ConfigMap", **found.body}, "Warning", "ScaleUpFailed", words)
        node = lab.rng.choice(sorted(_homes(lab, *slow) - _keepers(lab)))
        ended.add(node)
        lab.kubelets.crash(node)

    async def grow() -> None:
        while traffic[0] < 210:
            traffic[0] += 10
            await asyncio.sleep(1)

    await autoscaled(lab, enlarging(group, shrink, patience=2))
    may = ("apps", "deployments/scale", "get,patch")
    await large(lab, *busy, 13)
    await lab.controller("platform", "traffic-scaler", every(2, scale), may, replicas=1)
    gone = lambda: {node for node in ended if is_lost(lab.world, node)}  # noqa: E731
    rights = ("", "nodes", "get,list,delete")
    await lab.controller("kube-system", "cloud-controller-manager", forgetting(gone), rights, replicas=1)
    await lab.app(*slow, like=App("", start_seconds=STARTS_SECONDS), replicas=6)
    lab.alert_lacking(*slow, seconds=8)
    yield
    lab.start(grow())


def _homes(lab: Lab, namespace: str, name: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name) if "nodeName" in pod["spec"]}


def _keepers(lab: Lab) -> set[str]:
    """Nodes of those that keep the token of their pod, or what happens going."""
    places = (
        ("argocd", "argocd-application-controller"),
        ("flux-system", "kustomize-controller"),
        ("platform", "traffic-scaler"),
        ("kube-system", "cloud-controller-manager"),
        AUTOSCALER,
    )
    return {node for place in places for node in _homes(lab, *place)}


@family(
    "A new version of an operator puts the variables of its databases in another order each time that it looks, and"
    " takes the order for a difference: at every sync it makes all their pods anew.",
    joined=15,
)
async def every_sync(lab: Lab) -> AsyncIterator[None]:
    """As users of Zalando's Postgres operator tell of its version 1.6 (March 2021, postgres-operator 1390)."""
    namespace, name = lab.rng.choice((("shop", "customers"), ("payments", "mandates"), ("media", "albums")))
    database, operator, group = f"{name}-db", "postgres-operator", "acid.zalan.do"
    made, replaced = set[str](), [0]
    postgresql = await lab.custom("Postgresql", group, ANY)

    async def sync(process: Process) -> None:
        """What is declared, and the variables that are the same for all; since 1.6 as a map gives them."""
        listed = await process.api.call("GET", postgresql.path(namespace))
        for one in listed.body.get("items", []):
            where = path("StatefulSet", namespace, one["metadata"]["name"])
            found = await process.api.call("GET", where)
            if not found.ok:
                continue
            names = sorted(process.config)
            if process.tag.startswith("1.6"):
                process.rng.shuffle(names)
            env = [{"name": key, "value": process.config[key]} for key in names]
            [container] = found.body["spec"]["template"]["spec"]["containers"]
            spec = {"replicas": one["spec"]["numberOfInstances"]}
            if container.get("env") != env:
                spec["template"] = {"spec": {"containers": [{**container, "env": env}]}}
            if "template" in spec or found.body["spec"]["replicas"] != spec["replicas"]:
                await process.api.call("PATCH", where, {"spec": spec})

    async def count() -> None:
        """How many pods of the database were made beside the first three."""
        while True:
            made.update(pod["metadata"]["uid"] for pod in pods(lab.world, namespace, database))
            replaced[0] = len(made) - 3
            await asyncio.sleep(0.5)

    shared = {"AWS_REGION": "eu-central-1", "BACKUP_SCHEDULE": "0 4 * * *", "WAL_S3_BUCKET": "corp-pg-backups"}
    shared |= {"BACKUP_NUM_TO_RETAIN": "5", "USE_WALG_BACKUP": "true", "USE_WALG_RESTORE": "true"}
    await lab.apply(objects.config_map("platform", operator, **shared))
    env = [{"name": key, "value": shared[key]} for key in sorted(shared)]
    like = App("", start_seconds=PG_SECONDS, serves=False)
    await lab.app(namespace, database, tag="13.2", like=like, kind="StatefulSet", replicas=3, env=env)
    rules = ((group, "postgresqls", "get,list"), ("apps", "statefulsets", "get,patch"))
    await lab.controller(
        "platform", operator, every(SYNC_SECONDS, sync), *rules, tag="1.5.0", replicas=1, config=operator
    )
    await lab.served(postgresql)
    meta = {"namespace": namespace, "name": database}
    declared = {"teamId": name, "numberOfInstances": 3, "postgresql": {"version": "13"}}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "Postgresql", "metadata": meta, "spec": declared})
    broken = lambda container: 1 - len(backends(lab.world, namespace, database)) / 3  # noqa: E731
    like = App("", upstreams=((namespace, database),), failing=broken)  # those whose connection has just ended
    await lab.app(namespace, name, like=like, replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, database)) == 3)
    lab.start(count())
    often = lambda: replaced[0] > 4  # noqa: E731
    summary = f"pods of {namespace}/{database} have been made anew again and again"
    lab.alert("PostgresPodsRecreated", often, summary, 6, namespace=namespace, statefulset=database)
    yield
    await lab.roll(lab.rng.choice(("argocd", "ci", "carol")), "platform", operator, "1.6.1", culprit=True)
