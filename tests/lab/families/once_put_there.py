"""What somebody once put there and counts on: a setting, a label by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, getting
from tests.lab.scenario import family

KEPT_ELSEWHERE = 0.6
"""The share of requests to a service that are about what its migration moved to another store."""
BOOT_SECONDS, LONGER_SECONDS = 6.0, 18.0
"""Until a machine that was replaced is up with a new system, and what nobody is told of as long as it is replaced."""


@family(
    "An installer writes the settings of all that it installs as it starts. Once a migration has put a further one"
    " there, and as the installer is started again it is gone: a service looks into the store of old, which is empty.",
    joined=21,
)
async def installer_again(lab: Lab) -> AsyncIterator[None]:
    """As KubeSphere tells of its installer and of what a job of the migration has configured (ks-devops 16)."""
    namespace, name, front = lab.rng.choice(
        (("platform", "pipelines", "console"), ("media", "playlists", "studio"), ("search", "saved-queries", "portal"))
    )
    installer, settings = f"{front}-installer", f"{front}-settings"
    defaults = {"LOG_LEVEL": "info", "SESSION_MINUTES": "120", "UPLOAD_LIMIT_MB": "50"}
    key, store = "RECORDS_STORE", lab.rng.choice(("postgres", "object-store"))

    async def install(process: Process) -> None:
        """What it installs is there already; the settings it writes as a whole."""
        where = path("ConfigMap", namespace)
        body = objects.config_map(namespace, settings, **defaults)
        if (await process.api.call("PUT", f"{where}/{settings}", body)).status == 404:
            await process.api.call("POST", where, body)
        await every(6, getting(path("Deployment", namespace)))(process)

    def empty(_: Container) -> float:
        """It reads its settings anew as they change; without a store it goes by that of its first release."""
        found = lab.world["ConfigMap"][namespace, settings].get("data", {})
        return 0.0 if found.get(key) == store else KEPT_ELSEWHERE

    rules = (("", "configmaps", "get,create,update"), ("apps", "deployments", "get,list"))
    await lab.controller(namespace, installer, install, *rules, replicas=1, tag="3.1.0")
    await lab.until(lambda: (namespace, settings) in lab.world["ConfigMap"])
    migrated = {"data": {key: store}, "metadata": {"annotations": {f"{front}.corp.example/migrated": "2026-06-12"}}}
    await lab.edit("admin", "ConfigMap", namespace, settings, migrated)
    await lab.app(namespace, name, like=App("", failing=empty), replicas=3, config=settings)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    by = lab.rng.choice(("alice", "argocd", "ci", "flux"))
    if by == "alice":
        again = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
        body: Json = {"spec": {"template": {"metadata": {"annotations": again}}}}
        await lab.culprit(by, "update", "Deployment", namespace, installer, body)
    else:
        await lab.roll(by, namespace, installer, "3.1.1", culprit=True)
    await lab.until(lambda: pods(lab.world, namespace, installer))


@family(
    "A machine is replaced for one with a newer system, and its node is made anew: the label that somebody once gave it"
    " by hand is not there any more, and what selects it finds no node.",
    joined=21,
)
async def label_by_hand(lab: Lab) -> AsyncIterator[None]:
    """As Rancher Desktop tells of what builds images there (rancher-desktop 667)."""
    namespace, name, caller, label = lab.rng.choice(
        (
            ("platform", "image-builder", "pipelines", "builds.corp.example/cache"),
            ("search", "embeddings", "similar-items", "hardware.corp.example/accelerator"),
            ("media", "transcoder", "clips", "hardware.corp.example/encoder"),
        )
    )
    node, by = spare(lab, 1)[0], lab.rng.choice(("alice", "bob", "carol"))
    await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {label: "true"}}})
    await lab.app(namespace, name, replicas=2, nodeSelector={label: "true"})
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 2)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 3)
    lab.reserve(namespace, name, caller)
    summary = f"a pod of {namespace} has had no node for a while"
    holds = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodPending", holds, summary, LONGER_SECONDS, namespace=namespace)
    lab.alert_lacking(namespace, name, seconds=LONGER_SECONDS)
    failing = lambda: lab.traffic.of_app(namespace, caller, 10).failed > 0.05  # noqa: E731
    summary = f"more than 5% of the requests to {namespace}/{caller} are answered with 5xx"
    lab.alert("HighErrorRate", failing, summary, LONGER_SECONDS, namespace=namespace, service=caller)
    yield
    why = "the same hand's first step of the same replacement of the machine"
    await lab.also(why, by, "update", "Node", "", node, {"spec": {"unschedulable": True}})
    await drain(lab, by, node)
    await lab.pause(1)
    lab.kubelets.crash(node)
    await lab.culprit(by, "delete", "Node", "", node)

    async def boot() -> None:
        await lab.pause(BOOT_SECONDS)
        await lab.kubelets.join(node, "v1.36.2", {})

    lab.start(boot())
