"""What a process finds as it starts: a variable that nobody sets here, settings that it cannot read."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

OLD, NEW = "2.2.4", "2.3.0"
READS = 0.55
"""The share of its requests that an app only reads for."""
READ_FROM = "DATABASE_READ_URL"
FILE, ADDED_SINCE = "carriers.yaml", 0.5
"""What an app reads again as it changes, and the share of its requests for what its settings of old do not have."""
CARRIERS = "carriers:\n  north-post: {zone: eu, base: 4.90}\n  blue-van: {zone: eu, base: 6.20}\n"
AS_TEXT = "carriers: |\n  north-post: {zone: eu, base: 4.90}\n  blue-van: {zone: eu, base: 6.20}\n"
ADDED = "  night-rail: {zone: uk, base: 8.40}\n"


@family(
    "A release reads from a standby of its database, whose address it takes from a variable of its own. A sibling's"
    " values set that one, those of this cluster do not: its pods are ready, as their probe asks nothing of a database,"
    " and each request that only reads fails.",
    joined=38,
)
async def variable_unset(lab: Lab) -> AsyncIterator[None]:
    """As told of a release whose pods were all running while it had no address of its database (The DevOps guide)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "orders", "order-page"),
            ("payments", "invoices", "invoice-page"),
            ("media", "comments", "comment-page"),
        )
    )
    database, by = f"{name}-db", lab.rng.choice(("ci", "argocd", "flux"))
    user = name.replace("-", "_")
    standby = f"postgres://{user}@{database}.{namespace}.svc:5432/{user}?target_session_attrs=prefer-standby"

    def unset(container: Container) -> float:
        """What it has no address for it answers with 500."""
        given = {one["name"] for one in container.spec.get("env", ())}
        is_blind = container.tag == NEW and READ_FROM not in given and container.seconds >= lab.lag
        return READS if is_blind else 0.0

    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=2, tag="16.4")
    like = App("", upstreams=((namespace, database),), failing=unset)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    await lab.app(namespace, name, like=like, replicas=4, tag=OLD, config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.7.2")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
        lab.alert_lacking(namespace, one, seconds=20)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    as_it_is = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    async with before(lab, days=lab.rng.randrange(1, 4), cluster=lab.rng.choice(("staging", "eu-2"))):
        await lab.pause(3)
        await lab.roll(by, namespace, name, NEW, env=[{"name": READ_FROM, "value": standby}])
        await rolled(lab, namespace, name, NEW)
        await lab.pause(6)
    unlike = {"spec": {"template": {"spec": {"containers": as_it_is}}}}
    await lab.edit("admin", "Deployment", namespace, name, unlike)
    await rolled(lab, namespace, name, OLD)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, NEW, culprit=True)


def _is_readable(settings: str) -> bool:
    """A mapping, where a text of the same lines is none."""
    return bool(re.search(r"^carriers:\s*$", settings, re.MULTILINE))


@family(
    "Somebody adds an entry to a file of settings, and by one character all of it becomes a text. What runs reads the"
    " file again, cannot, and goes on with what it had. Processes that are started for the evening fall back to what"
    " their database has of before there was a file, and do not know what was added since.",
    joined=38,
)
async def settings_refused(lab: Lab) -> AsyncIterator[None]:
    """As told of settings in a ConfigMap, and of a database that was read in silence in their place (OSMO 889)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "shipping", "delivery-page"),
            ("payments", "postage", "label-page"),
            ("search", "couriers", "tracking-page"),
        )
    )
    fell_back: dict[str, bool] = {}

    def unknown(container: Container) -> float:
        """A process goes by the last settings that it could read, or by those of old."""
        told = container.pod.get("status", {}).get("containerStatuses", ())
        process = f"{uid_of(container.pod)} {sum(one['restartCount'] for one in told)}"
        if _is_readable(container.config.get(FILE, "")):
            fell_back[process] = False
        is_behind = fell_back.setdefault(process, True)
        return ADDED_SINCE if is_behind and container.seconds >= lab.lag else 0.0

    database = f"{name}-db"
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="15.9")
    await lab.apply(objects.config_map(namespace, name, **{FILE: CARRIERS, "LOG_LEVEL": "info"}))
    like = App("", upstreams=((namespace, database),), failing=unknown)
    await lab.app(namespace, name, like=like, replicas=3, tag="4.11.0", config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.0.6")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_lacking(namespace, name, seconds=20)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    by, team = lab.rng.choice(("carol", "flux", "ci")), lab.rng.choice(("alice", "bob"))
    yield
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {FILE: AS_TEXT + ADDED}})
    await lab.pause(lab.rng.uniform(9, 16))
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": 6}})
