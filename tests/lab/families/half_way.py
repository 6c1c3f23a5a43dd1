"""What does not get through: a container beside an app that crashes in each pod, and a migration that ends half way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import images, uid_of
from tests.lab.scenario import family


def _crash_looping(lab: Lab, namespace: str, name: str, container: str) -> None:
    holds = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    summary = f"container {container} of {namespace}/{name} is in a crash loop"
    lab.alert("KubePodCrashLooping", holds, summary, 3, namespace=namespace, container=container)


# -- beside


@dataclass(frozen=True)
class _Sidecar:
    """A container beside an app, and what its next version says as it ends, so many seconds after its start."""

    name: str
    before: str
    after: str
    args: tuple[str, ...]
    says: str
    seconds: float = 0.0


INSTANCE = "-instances=corp-prod:europe-west1:main=tcp:5432"
SIDECARS = (
    _Sidecar("cloud-sql-proxy", "1.37.7", "2.15.2", (INSTANCE,), f"Error: unknown shorthand flag: 'i' in {INSTANCE}"),
    _Sidecar(
        "otel-collector",
        "0.110.0",
        "0.111.0",
        ("--config=/etc/otel/config.yaml",),
        "Error: failed to get config: cannot unmarshal the configuration: decoding failed due to the following"
        ' error(s): error decoding \'exporters\': unknown type: "logging" for id: "logging"',
    ),
    _Sidecar("fluent-bit", "3.2.10", "4.0.1", ("-c", "/etc/fluent-bit.conf"), "[engine] caught signal (SIGSEGV)", 11),
)


@family(
    "A container beside an app, which ships its logs or gets it to its database, is upgraded in the app's own manifest."
    " The new version does not know a flag or a setting of old, or ends after a while, and does so in every pod.",
    joined=96,
)
async def beside_every_pod(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had changed nothing but a version that is not their own."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "promo-codes", "promo-page", "promo-mails"),
            ("payments", "limits-check", "limits-page", "limits-report"),
            ("media", "cover-art", "cover-page", "cover-import"),
            ("search", "typo-model", "typo-page", "typo-trainer"),
        )
    )
    by, minor, replicas = (
        lab.rng.choice(("ci", "argocd", "flux", *TEAMS)),
        lab.rng.randrange(2, 40),
        lab.rng.choice((3, 4)),
    )
    beside, tag = lab.rng.choice(SIDECARS), f"6.{minor}.1"
    image = f"registry.corp.example/platform/{beside.name}"

    def check(container: Container) -> Problem | None:
        if container.tag != beside.after:
            return None
        if not beside.seconds:
            return Problem("crash", beside.says, at_once=True)
        lasts = beside.seconds + crc32(uid_of(container.pod).encode()) % 7
        return Problem("crash", beside.says) if container.seconds >= lasts else None

    lab.apps[image] = App(image, serves=False, check=check, memory_mi=40)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    await lab.app(namespace, name, like=App("", asked=lambda: 19.0), replicas=replicas, tag=tag, config=name)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    [own] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    room = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}

    def with_sidecar(version: str) -> Json:
        added = {"name": beside.name, "image": f"{image}:{version}", "args": [*beside.args], "resources": room}
        return {"spec": {"template": {"spec": {"containers": [own, added]}}}}

    await lab.edit("admin", "Deployment", namespace, name, with_sidecar(beside.before))
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.8.4", config=other)
    await lab.until(lambda: all(len(images(one)) == 2 for one in pods(lab.world, namespace, name)))
    await rolled(lab, namespace, name, tag)
    await rolled(lab, namespace, other, "1.8.4")
    await set_before(lab, namespace, front, name)
    _crash_looping(lab, namespace, name, beside.name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "30"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.8.5")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.culprit(by, "update", "Deployment", namespace, name, with_sidecar(beside.after))
    lab.start(afterwards())


# -- a migration


@dataclass(frozen=True)
class _Migrator:
    """What applies the steps of a schema: what it says as one of them fails, and whenever it is asked afterwards."""

    fails: str
    afterwards: str
    behind: str
    """What the new version says at its start as long as the step is not through."""


MIGRATORS = (
    _Migrator(
        "error: migration failed in line 0: ALTER TABLE {table} ADD UNIQUE KEY uq_external_id (external_id);"
        " (details: Error 1062 (23000): Duplicate entry '' for key '{table}.uq_external_id')",
        "error: Dirty database version {step}. Fix and force version.",
        "schema is at version {before}, this version needs {step}",
    ),
    _Migrator(
        'Migration of schema `{schema}` to version "{step} - external ids" failed! Please restore backups and roll back'
        " database and code!",
        "Validate failed: Migrations have failed validation. Detected failed migration to version {step} (external"
        " ids). Please remove any half-completed changes then run repair to fix the schema history.",
        "Validate failed: Migrations have failed validation. Detected resolved migration not applied to database:"
        " {step}.",
    ),
)


def _job(namespace: str, name: str, image: str, again: int) -> Json:
    """As a pipeline makes it of the release's own image; ``again`` is how often it is tried once more."""
    made = objects.deployment(namespace, name, image, restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = ["migrate", "up"]
    spec = {"template": made["spec"]["template"], "backoffLimit": again}
    return {"kind": "Job", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


@family(
    "A release of an app comes with a migration. It fails half way, at a row that nobody had expected, and some of its"
    " steps are done and others not. The pods of the new version look at the schema as they start, and refuse to.",
    joined=96,
)
async def half_of_the_migration(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose database was dirty at version 57."""
    namespace, name, front, other, table = lab.rng.choice(
        (
            ("shop", "supplier-orders", "supplier-page", "supplier-feed", "supplier_orders"),
            ("payments", "direct-debits", "debit-page", "debit-files", "debits"),
            ("media", "rentals", "rental-page", "rental-mails", "rentals"),
            ("search", "site-registry", "sites-page", "sites-crawl", "sites"),
        )
    )
    by, minor, step = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.randrange(31, 90)
    old, new, half = f"4.{minor}.3", f"4.{minor + 1}.0", lab.rng.uniform(3, 8)
    words = {"table": table, "schema": name.replace("-", "_"), "step": step, "before": step - 1}
    says, migration, db = lab.rng.choice(MIGRATORS), f"{name}-migrate-{step}", f"{name}-db"
    tool = f"registry.corp.example/{namespace}/{name}-migrations"

    def is_dirty() -> bool:
        found = pods(lab.world, namespace, migration)
        return any(one.get("status", {}).get("phase") == "Failed" for one in found)

    def breaks(container: Container) -> Problem | None:
        """The first that comes gets to the middle, and those after it no further."""
        if container.seconds < (1 if is_dirty() else half):
            return None
        return Problem("crash", (says.afterwards if is_dirty() else says.fails).format(**words), at_once=True)

    def refuses(container: Container) -> Problem | None:
        if container.tag != new or container.seconds < 1:
            return None
        return Problem("crash", (says.afterwards if is_dirty() else says.behind).format(**words), at_once=True)

    def is_failed() -> bool:
        conditions = lab.world["Job"].get((namespace, migration), {}).get("status", {}).get("conditions", ())
        return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)

    await stored(lab, namespace, db)
    lab.apps[tool] = App(tool, upstreams=((namespace, db),), check=breaks, serves=False, ends_after=600)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
    like = App("", upstreams=((namespace, db),), asked=lambda: 20.0, check=refuses)
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.4.4", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.4.4")
    await set_before(lab, namespace, front, name)
    lab.alert(
        "KubeJobFailed", is_failed, f"Job {namespace}/{migration} failed", 2, namespace=namespace, job_name=migration
    )
    _crash_looping(lab, namespace, name, name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.4.5")
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"POOL_SIZE": lab.rng.choice(("15", "25"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(4, 9))
    body = _job(namespace, migration, f"{tool}:{new}", lab.rng.choice((1, 2)))
    await lab.culprit(by, "create", "Job", namespace, migration, body)
    await lab.pause(lab.rng.uniform(0.5, 3))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())
