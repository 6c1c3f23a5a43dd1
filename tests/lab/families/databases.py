"""What happens to databases: a backup that locks one, a primary that becomes another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.api import Json, now, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family

COPY_SECONDS, PAUSE_SECONDS = 22.0, 8.0
"""How long the copy of a volume takes, and until the next backup: one begins every thirty seconds, as is declared."""
PROMOTED_SECONDS = 6.0
"""Until the replica takes writes."""
POOLED_SECONDS = (35.0, 60.0)
"""For how long a pool keeps a connection that nobody closed."""
ANY: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
LOCK = "FLUSH TABLES WITH READ LOCK"


@family(
    "The hook of a backup takes a read lock, for a copy that is consistent, and nothing gives it back before the copy"
    " is through: when the next backup runs, whoever writes to the database waits.",
    joined=9,
)
async def backup_hook(lab: Lab) -> AsyncIterator[None]:
    namespace, database, writer = lab.rng.choice(
        (("shop", "orders-db", "orders"), ("media", "comments-db", "comments"), ("payments", "invoices-db", "invoices"))
    )
    group = "velero.io"
    schedule, backup = await lab.custom("Schedule", group, ANY), await lab.custom("Backup", group, ANY)

    def hooks(*commands: str) -> Json:
        """In a pod of the database, before its volume is copied."""
        run = [{"exec": {"container": database, "command": ["mysql", "-e", one]}} for one in commands]
        selector = {"matchLabels": {"app.kubernetes.io/name": database}}
        return {"resources": [{"name": database, "labelSelector": selector, "pre": run}]}

    def locked() -> bool:
        """The session of a hook ends, and with it its lock, as the backup does."""
        return any(
            one.get("status", {}).get("phase") == "InProgress" and LOCK in str(one["spec"]["hooks"])
            for (_, name), one in lab.world["Backup"].items()
        )

    async def copy(process: Process) -> None:
        """What the Schedule says now, once; the one before the last is forgotten."""
        listed = await process.api.call("GET", schedule.path("platform"))
        for one in listed.body.get("items", []):
            name = f"{one['metadata']['name']}-{now():%Y%m%d%H%M%S}"
            body = {
                "apiVersion": f"{group}/v1",
                "kind": "Backup",
                "metadata": {"name": name, "labels": {"velero.io/schedule-name": one["metadata"]["name"]}},
                "spec": one["spec"]["template"],
                "status": {"phase": "InProgress", "startTimestamp": stamp(now())},
            }
            if not (await process.api.call("POST", backup.path("platform"), body)).ok:
                continue
            await asyncio.sleep(COPY_SECONDS)
            done = {"status": {"phase": "Completed", "completionTimestamp": stamp(now())}}
            await process.api.call("PATCH", backup.path("platform", name), done)
        kept = await process.api.call("GET", backup.path("platform"))
        for old in kept.body.get("items", [])[:-2]:
            await process.api.call("DELETE", backup.path("platform", old["metadata"]["name"]))

    def check(container: Container) -> Problem | None:
        if not locked():
            return None
        waits = "Error 1205: Lock wait timeout exceeded; try restarting transaction"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({database}: {waits})")

    await lab.app(namespace, database, replicas=1, kind="StatefulSet")
    await lab.app(namespace, writer, like=App("", check=check, upstreams=((namespace, database),)), replicas=3)
    rules = (group, "schedules,backups", "*")
    await lab.controller("platform", "velero", every(PAUSE_SECONDS, copy), rules, replicas=1)
    await lab.served(schedule, backup)
    meta = {"namespace": "platform", "name": f"{database}-backup"}
    template = {"includedNamespaces": [namespace], "hooks": hooks("FLUSH BINARY LOGS"), "ttl": "72h0m0s"}
    spec = {"schedule": "*/30 * * * *", "template": template}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "Schedule", "metadata": meta, "spec": spec})
    lab.alert_lacking(namespace, writer)
    yield
    by, command = lab.rng.choice(("alice", "argocd")), lab.rng.choice((LOCK, f"{LOCK}; DO SLEEP(86400)"))
    body = {"spec": {"template": {"hooks": hooks(command)}}}
    await lab.culprit(by, "update", "Schedule", "platform", meta["name"], body)


@family(
    "The provider of a database fails it over to its replica: pools keep their connections to what was the primary, and"
    " it answers every write that it only reads, until each of them is too old and made anew.",
    culprit=False,
    joined=9,
)
async def database_failover(lab: Lab) -> AsyncIterator[None]:
    host = "accounts.db.cloud.example"
    moved: list[datetime] = []
    writers = (("payments", "ledger"), ("shop", "customers"), ("media", "uploads"))
    lifetimes: dict[str, float] = {}

    def check(container: Container) -> Problem | None:
        """Connected since it was started, or since its pool made its connections anew."""
        if not moved:
            return None
        since = (now() - moved[0]).total_seconds()
        kept = lifetimes.setdefault(container.pod["metadata"]["uid"], lab.rng.uniform(*POOLED_SECONDS))
        if since > PROMOTED_SECONDS and (container.seconds < since - PROMOTED_SECONDS or since > kept):
            return None
        refused = "cannot execute UPDATE in a read-only transaction (SQLSTATE 25006)"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({host}: {refused})")

    for namespace, name in writers:
        image = f"registry.corp.example/{namespace}/{name}"
        if image in lab.apps:
            lab.reserve(namespace, name)
            lab.apps[image].check = check
        else:
            await lab.app(namespace, name, like=App("", check=check), replicas=3)
        lab.alert_lacking(namespace, name)
    yield
    moved.append(now())
