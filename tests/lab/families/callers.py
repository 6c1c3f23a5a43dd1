"""Who calls the API server more than before: by version, by number of clients, by what each asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import Process
from tests.lab.company import APPS, SYSTEM
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.programs import every, getting, informer, lagging
from tests.lab.scenario import family


async def _set_env(lab: Lab, by: str, namespace: str, name: str, **values: str) -> None:
    """The culprit: its container's environment, and nothing else of it."""
    container = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    env = [{"name": key, "value": value} for key, value in values.items()]
    body: Json = {"spec": {"template": {"spec": {"containers": [{**container, "env": env}]}}}}
    await lab.culprit(by, "update", "Deployment", namespace, name, body)


@family(
    "The new version of an agent on every node has a read timeout that its watch runs into: it opens it anew without"
    " a version, and is sent everything, again and again.",
    joined=2,
)
async def watch_reopened(lab: Lab) -> AsyncIterator[None]:
    watching = informer(path("ConfigMap"))

    async def reopen(process: Process) -> None:
        try:
            async with (
                asyncio.timeout(0.2),
                process.api.client.stream(
                    "GET", path("ConfigMap"), params={"watch": "1"}, headers=process.api.headers, timeout=None
                ) as lines,
            ):
                process.api.counts[lines.status_code] += 1
                await lines.aread()
        except TimeoutError:
            pass  # as its client ends a request that reads for too long

    async def program(process: Process) -> None:
        if process.tag.startswith("1."):
            await watching(process)
        await lagging(process)
        await every(0.02, reopen)(process)

    app = await lab.controller(
        "platform", "config-reloader", program, ("", "configmaps", "list,watch"), kind="DaemonSet"
    )
    alert_on_load(lab)
    yield
    made = objects.deployment(
        "platform", "config-reloader", f"{app.image}:2.0.0", account="config-reloader", kind="DaemonSet"
    )
    await lab.culprit("flux", "update", "DaemonSet", "platform", "config-reloader", {"spec": made["spec"]})


@family(
    "An exporter's page size is set to none to make it simpler: it asks as often as before, but every LIST has it all.",
    joined=2,
)
async def list_unpaginated(lab: Lab) -> AsyncIterator[None]:
    await lab.namespace("dashboards")
    for number in range(100):
        await lab.apply(objects.config_map("dashboards", f"board-{number}", panels="rate by verb and code; " * 260))

    async def program(process: Process) -> None:
        """A page at a time; after the last one the first again."""
        token = ""
        limit = process.env["PAGE_SIZE"]
        while True:
            where = path("ConfigMap", "dashboards")
            listed = await process.api.call("GET", f"{where}?limit={limit}&continue={token}")
            token = listed.body.get("metadata", {}).get("continue", "")
            await asyncio.sleep(0.35 * process.rng.uniform(0.9, 1.1))

    page = [{"name": "PAGE_SIZE", "value": "10"}]
    await lab.controller("monitoring", "board-exporter", program, ("", "configmaps", "list"), replicas=3, env=page)
    lab.alert(
        "KubeAPIResponseBytesHigh",
        lab.rate(lab.received, 2_500_000),
        "the API server sends far more than usual",
        4,
        job="apiserver",
    )
    yield
    await _set_env(lab, "alice", "monitoring", "board-exporter", PAGE_SIZE="0")


@family(
    "The lifetime of tokens is cut to less than the margin at which their keeper renews them: it renews them for ever.",
    joined=2,
)
async def token_renewal(lab: Lab) -> AsyncIterator[None]:
    margin = 600.0

    async def program(process: Process) -> None:
        """As a keeper of workload identities: a token for each, kept until it has ``margin`` seconds left."""
        kept: dict[str, tuple[str, datetime]] = {}
        while True:
            lifetime = process.config["TOKEN_SECONDS"]
            for namespace in (*SYSTEM, *APPS):
                asked_for, expires = kept.get(namespace, ("", now()))
                if asked_for == lifetime and (expires - now()).total_seconds() >= margin:
                    continue
                where = f"{path('ServiceAccount', namespace, 'default')}/token"
                given = await process.api.call("POST", where, {"spec": {"expirationSeconds": int(lifetime)}})
                if given.ok:
                    kept[namespace] = lifetime, datetime.fromisoformat(given.body["status"]["expirationTimestamp"])
            await asyncio.sleep(process.rng.uniform(0.8, 1.2))

    await lab.apply(objects.config_map("platform", "workload-identity", TOKEN_SECONDS="3600", AUDIENCE="vault"))
    rules = ("", "serviceaccounts/token", "create")
    await lab.controller("platform", "workload-identity", program, rules, replicas=3, config="workload-identity")
    alert_on_load(lab)
    yield
    body = {"data": {"TOKEN_SECONDS": "600"}}
    await lab.culprit("carol", "update", "ConfigMap", "platform", "workload-identity", body)


@family(
    "A chart's values turn leader election off: every replica of an operator does what only one of them did.",
    joined=2,
)
async def leader_election(lab: Lab) -> AsyncIterator[None]:
    leases, name = path("Lease", "platform"), "tenant-operator"
    work = getting(f"{path('RoleBinding', 'shop')}?limit=5")

    async def leads(process: Process) -> bool:
        """Whether it holds the Lease, or takes it over from one that renews it no more."""
        me, at = process.see().pod["metadata"]["name"], now()
        spec = {"holderIdentity": me, "renewTime": f"{stamp(at)[:-1]}000Z", "leaseDurationSeconds": 8}
        found = await process.api.call("GET", f"{leases}/{name}")
        if found.status == 404:
            return (await process.api.call("POST", leases, {"metadata": {"name": name}, "spec": spec})).ok
        if not found.ok:
            return False
        held = found.body["spec"]
        age = (at - datetime.fromisoformat(held["renewTime"])).total_seconds()
        if held["holderIdentity"] != me and age < held["leaseDurationSeconds"]:
            return False
        meta = {"resourceVersion": found.body["metadata"]["resourceVersion"]}
        return (await process.api.call("PATCH", f"{leases}/{name}", {"metadata": meta, "spec": spec})).ok

    async def program(process: Process) -> None:
        await lagging(process)
        alone = process.env["LEADER_ELECT"] == "false"
        while True:
            if alone or await leads(process):
                for _ in range(12):
                    await work(process)
                    await asyncio.sleep(0.3)
            else:
                await asyncio.sleep(4)

    rules = (("coordination.k8s.io", "leases", "*"), ("rbac.authorization.k8s.io", "rolebindings", "list"))
    elect = [{"name": "LEADER_ELECT", "value": "true"}]
    await lab.controller("platform", name, program, *rules, replicas=8, env=elect)
    alert_on_load(lab)
    yield
    await _set_env(lab, "argocd", "platform", name, LEADER_ELECT="false")
