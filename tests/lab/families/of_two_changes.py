"""Several changes of one app or operator within minutes, of which one hurts, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from itertools import count

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

GROUP, HOME = "platform.corp.example", "platform"


@family(
    "An app is rolled out twice within minutes. The first of the two versions brings a migration, which its first pod"
    " runs: it takes a column away that only another team's app still reads. The second one mends a text and leaves"
    " the migration out, which was not to go yet; that brings no column back. The other app fails some minutes later,"
    " as what it has cached is over. Which pod wrote down that the schema is the new one, the log says.",
    joined=84,
)
async def orders_in_steps(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose database had more readers than they knew."""
    by, other = lab.rng.choice(("ci", "argocd", "alice")), lab.rng.choice(("bob", "flux"))
    (namespace, name), (home, reader) = lab.rng.choice(
        (
            (("shop", "order-book"), ("payments", "refund-desk")),
            (("media", "title-store"), ("search", "title-page")),
            (("payments", "invoices"), ("shop", "customer-page")),
        )
    )
    database, schema, cached = f"{name}-db", f"{name}-schema", lab.rng.uniform(9, 14)
    minor, migrated = lab.rng.randrange(2, 30), [0.0]
    before, first, second = (f"3.{minor}.4", f"3.{minor + 1}.0", f"3.{minor + 1}.1")

    async def migrate(process: Process) -> None:
        """Whatever of the migrations that it brings is not applied yet, and once only; then it writes down how far."""
        applied = await process.api.call("GET", path("ConfigMap", namespace, schema))
        wanted = "42" if process.tag == first else "41"
        if applied.ok and int(applied.body["data"]["version"]) < int(wanted):
            data = {"version": wanted, "by": process.see().pod["metadata"]["name"]}
            await process.api.call("PATCH", path("ConfigMap", namespace, schema), {"data": data})
            migrated[0] = now().timestamp()

    def fails(_: Container) -> float:
        """What it reads of a column that is gone."""
        return 0.4 if migrated[0] and now().timestamp() > migrated[0] + cached + lab.lag else 0.0

    await lab.app(namespace, database, like=App("", serves=False), replicas=1, tag="17.2")
    await lab.apply(objects.config_map(namespace, schema, version="41", by=f"{name}-0"))
    rule = ("", "configmaps", "get,list,patch")
    needs = ((namespace, database),)
    app = await lab.controller(namespace, name, every(20.0, migrate), rule, upstreams=needs, replicas=3, tag=before)
    app.serves = True
    await lab.app(home, reader, like=App("", upstreams=needs, failing=fails), replicas=3, tag="1.12.0")
    await rolled(lab, namespace, name, before)
    await lab.until(lambda: backends(lab.world, home, reader))
    await publish(lab, home, reader)
    lab.reserve(namespace, schema)
    lab.alert_errors(home, reader)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, "search", "query", "1.38.2")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, name, first, culprit=True)
    await lab.until(lambda: migrated[0])
    await lab.pause(lab.rng.uniform(0.5, 2.5))
    await lab.roll(by, namespace, name, second)


@family(
    "A team rolls out a new version of its app and gives it one more pod, and has its Service send to another port,"
    " 8081, at which this version answers as little as the one before: that is in a branch that is not merged. Its pods"
    " are ready, as their probes ask at 8080, and who calls the Service is refused. With the Service as it was both"
    " versions answer.",
    joined=84,
)
async def gift_cards(lab: Lab) -> AsyncIterator[None]:
    """As those tell who changed a targetPort ahead of the release that it was for."""
    by, other = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice(("ci", "argocd"))
    namespace, name, home, caller = lab.rng.choice(
        (
            ("payments", "gift-cards", "shop", "voucher-page"),
            ("search", "synonyms", "media", "finder-page"),
            ("shop", "size-advice", "media", "outfit-page"),
        )
    )
    minor = lab.rng.randrange(2, 30)

    def deaf(_: Container) -> bool:
        """Nothing listens where its Service sends to."""
        [port] = lab.world["Service"][namespace, name]["spec"]["ports"]
        return bool(port["targetPort"] != 8080)

    await lab.app(namespace, name, like=App("", deaf=deaf), replicas=3, tag=f"5.{minor}.0")
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await lab.app(home, caller, like=App("", upstreams=((namespace, name),)), replicas=3, tag="2.2.0")
    await lab.until(lambda: backends(lab.world, home, caller))
    await publish(lab, home, caller)
    lab.alert_errors(home, caller)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, "payments", "ledger", "1.52.0")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, f"5.{minor + 1}.0", env=[{"name": "POOL_SIZE", "value": "24"}])
    await lab.pause(lab.rng.uniform(1, 2))
    await lab.edit(by, "Deployment", namespace, name, {"spec": {"replicas": 4}})
    await lab.pause(lab.rng.uniform(1, 3))
    [port] = lab.world["Service"][namespace, name]["spec"]["ports"]
    ports = [{"port": port["port"], "targetPort": 8081}]
    await lab.culprit(by, "update", "Service", namespace, name, {"spec": {"ports": ports}})


DUE_SECONDS, LATE_SECONDS = 6.0, 16.0


@family(
    "A team trims the rights of its operator to what its tests asked for, and rolls out a new version of it some"
    " minutes later, which differs by a library. The operator makes a Job for each backup that is due, and may not any"
    " more: no backup is made. Each refusal names the right that is missing, and the first came while the old version"
    " ran, or would have.",
    joined=84,
)
async def backup_plans(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose role lacked the one verb that is asked for at night."""
    by, other = lab.rng.choice(("alice", "bob", "flux")), lab.rng.choice(("ci", "argocd"))
    name, minor = lab.rng.choice(("backup-operator", "snapshot-operator", "archive-operator")), lab.rng.randrange(2, 20)
    kind = await lab.custom("BackupPlan", GROUP, ANY)
    await lab.served(kind)
    numbers, image = count(lab.rng.randrange(100, 900)), f"registry.corp.example/{HOME}/dump"

    def age(plan: Json) -> float:
        """Seconds since its last backup, or since it is there."""
        at = plan.get("status", {}).get("lastBackup") or plan["metadata"]["creationTimestamp"]
        return (now() - datetime.fromisoformat(at)).total_seconds()

    async def back_up(process: Process) -> None:
        """A Job for each plan that is due."""
        listed = await process.api.call("GET", kind.path())
        for one in listed.body.get("items", ()):
            if age(one) < DUE_SECONDS:
                continue
            meta = one["metadata"]
            container = {"name": "dump", "image": f"{image}:1.1.0"}
            template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
            spec = {"template": template, "ttlSecondsAfterFinished": 3, "backoffLimit": 1}
            job = {"metadata": {"name": f"{meta['name']}-{next(numbers)}"}, "spec": spec}
            made = await process.api.call("POST", path("Job", meta["namespace"]), job)
            if made.ok:
                body = {"status": {"lastBackup": stamp(now())}}
                await process.api.call("PATCH", kind.path(meta["namespace"], meta["name"]), body)
            else:
                about = {**one, "kind": kind.name}
                await tell(process, about, "Warning", "BackupFailed", made.body["message"], by=name)

    lab.apps[image] = App(image, ends_after=1.5, serves=False)
    for namespace, plan in (("shop", "cart-db"), ("payments", "ledger-db"), ("media", "uploads-db")):
        meta = {"namespace": namespace, "name": plan}
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": {"keep": 7}}
        await lab.apply(body)
    rules = (
        (GROUP, "backupplans", "get,list,watch,patch"),
        ("batch", "jobs", "get,list,watch,create,delete"),
        ("", "events", "create"),
    )
    await lab.controller(HOME, name, every(2.0, back_up), *rules, replicas=1, tag=f"2.{minor}.0")
    await rolled(lab, HOME, name, f"2.{minor}.0")
    late = lambda: any(age(one) > LATE_SECONDS for one in lab.world[kind.name].values())  # noqa: E731
    summary = f"a BackupPlan has had no backup for more than {LATE_SECONDS:g} minutes"
    lab.alert("BackupOverdue", late, summary, 4, namespace=HOME, service=name)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, "shop", "cart", "1.29.0")
    await lab.pause(lab.rng.uniform(4, 9))
    trimmed = objects.cluster_role(name, rules[0], ("batch", "jobs", "get,list,watch,delete"), rules[2])["rules"]
    await lab.culprit(by, "update", "ClusterRole", "", name, {"rules": trimmed})
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(by, HOME, name, f"2.{minor}.1")


@family(
    "No culprit. An app gets a new version and, some minutes later, a new value in its ConfigMap, and is well with"
    " both. Then a machine stops on which one of its pods runs.",
    culprit=False,
    joined=84,
)
async def label_printing(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it now and then, on the day of a release."""
    by, other = lab.rng.choice(("ci", "argocd", "alice")), lab.rng.choice(("bob", "flux"))
    namespace, name = lab.rng.choice((("shop", "label-printing"), ("payments", "receipts"), ("media", "subtitles")))
    minor = lab.rng.randrange(2, 30)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    await lab.app(namespace, name, replicas=4, tag=f"7.{minor}.0", config=name, topologySpreadConstraints=[spread])
    await rolled(lab, namespace, name, f"7.{minor}.0")
    lab.alert_lacking(namespace, name, seconds=12)
    await lab.until(lab.is_well)

    async def stop() -> None:
        await rolled(lab, namespace, name, f"7.{minor + 1}.0")
        await lab.pause(lab.rng.uniform(3, 7))
        nodes = sorted({pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name)})
        lab.kubelets.crash(lab.rng.choice(nodes))

    yield
    await lab.roll(other, "search", "indexer", "1.61.0")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll(by, namespace, name, f"7.{minor + 1}.0")
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit(by, "ConfigMap", namespace, name, {"data": {"BATCH": str(lab.rng.choice((30, 40, 50)))}})
    lab.start(stop())
