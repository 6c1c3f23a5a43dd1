"""What a release does beside what it is for: it takes hooks away once they are through."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

HOOK = "helm.sh/hook"
RUN_SECONDS = 2.5
"""For how long the migration of a release runs."""


def _hook(weight: int) -> Json:
    """How a chart marks what is to be there before all else: it goes as soon as all of them are through."""
    return {
        HOOK: "pre-upgrade,pre-install",
        f"{HOOK}-weight": str(weight),
        f"{HOOK}-delete-policy": "before-hook-creation,hook-succeeded",
    }


def _release(name: str, revision: int, chart: str) -> Json:
    """What Helm keeps of one."""
    labels = {"owner": "helm", "name": name, "version": str(revision), "status": "deployed"}
    meta = {"name": f"sh.helm.release.v1.{name}.v{revision}", "labels": labels}
    return {"metadata": meta, "type": "helm.sh/release.v1", "stringData": {"release": f"H4sIAAAA{chart}"}}


@family(
    "A chart gets a migration, which runs before each release and reads the app's ConfigMap: so that one becomes a hook"
    " too. Helm deletes hooks as soon as they are through, and what runs does not mind; pods that the app gets for the"
    " evening, as each day, have nothing to start with.",
    joined=54,
)
async def hook_settings(lab: Lab) -> AsyncIterator[None]:
    """As users of Helm tell whose ConfigMaps are gone after an upgrade, by the policy "hook-succeeded" of a hook."""
    namespace, name, store = lab.rng.choice(
        (
            ("shop", "order-history", "orders-db"),
            ("media", "captions", "captions-db"),
            ("search", "saved-searches", "searches-db"),
        )
    )
    settings, step, image = f"{name}-settings", f"{name}-migrate", f"registry.corp.example/{namespace}/{name}-migrate"
    minor, revision = lab.rng.randrange(2, 9), lab.rng.randrange(12, 40)
    chart = f"{name}-1.{minor}.0"
    team = lab.rng.choice(("alice", "bob", "carol"))
    lab.apps[image] = App(image, ends_after=RUN_SECONDS, serves=False)
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.8")
    values = {"LOG_LEVEL": "info", "PAGE_SIZE": "50", "POOL_SIZE": "8"}
    await lab.apply(objects.config_map(namespace, settings, **values))
    env = [{"name": key, "valueFrom": {"configMapKeyRef": {"name": settings, "key": key}}} for key in values]
    like = App("", upstreams=((namespace, store),), asked=lambda: 22.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="6.2.4", env=env)
    await rolled(lab, namespace, name, "6.2.4")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.reserve(namespace, store)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    there = lab.world["ConfigMap"][namespace, settings]
    meta = {"name": settings, "labels": {"helm.sh/chart": chart}, "annotations": _hook(-5)}
    await lab.culprit("ci", "delete", "ConfigMap", namespace, settings)
    await lab.culprit("ci", "create", "ConfigMap", namespace, settings, {"metadata": meta, "data": there["data"]})
    made = objects.deployment(namespace, step, f"{image}:6.2.4", env=env, restartPolicy="Never")
    job = {"metadata": {"name": step, "annotations": _hook(0)}, "spec": {"template": made["spec"]["template"]}}
    await lab.culprit("ci", "create", "Job", namespace, step, job)
    await lab.until(lambda: lab.world["Job"].get((namespace, step), {}).get("status", {}).get("succeeded"))
    await lab.culprit("ci", "delete", "ConfigMap", namespace, settings)
    away = {"propagationPolicy": "Background"}
    await lab.culprit("ci", "delete", "Job", namespace, step, away)
    marked = {"metadata": {"labels": {"helm.sh/chart": chart}}}
    await lab.culprit("ci", "update", "Deployment", namespace, name, marked)
    await lab.culprit("ci", "create", "Secret", namespace, name, _release(name, revision, chart))
    await lab.pause(lab.rng.uniform(7, 14))
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": 5}})
