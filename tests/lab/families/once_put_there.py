"""What somebody once put there and counts on: a setting, a label by hand, a status that is written no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import every, getting
from tests.lab.scenario import family

KEPT_ELSEWHERE = 0.6
"""The share of requests to a service that are about what its migration moved to another store."""
SERVERS, START_SECONDS = 4, 15.0
"""Of a product whose operator updates one after the other, and how long one takes to start."""
BOOT_SECONDS, LONGER_SECONDS = 6.0, 18.0
"""Until a machine that was replaced is up with a new system, and what nobody is told of as long as it is replaced."""


@family(
    "An installer writes the settings of all that it installs as it starts. Once a migration has put a further one"
    " there, and as the installer is started again it is gone: a service looks into the store of old, which is empty.",
    joined=22,
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


def _version(status: Json) -> Json:
    """A definition whose only version has this schema of the status."""
    schema = {**ANY, "properties": {"status": status}}
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"spec": {"versions": [{**one, "subresources": {"status": {}}}]}}


@dataclass
class _Operator:
    """What is declared, what there is, and one server of an old version at a time while the status calls all well."""

    made: Kind
    namespace: str
    name: str

    async def reconcile(self, process: Process) -> None:
        pods_of = f"{path('Pod', self.namespace)}?labelSelector=app.kubernetes.io/name={self.name}"
        declared = await process.api.call("GET", self.made.path(self.namespace, self.name))
        listed = await process.api.call("GET", pods_of)
        if declared.ok and listed.ok:
            servers = [pod for pod in listed.body["items"] if "deletionTimestamp" not in pod["metadata"]]
            known = await self._tell(process, declared.body, sum(map(is_ready, servers)))
            image = f"registry.corp.example/{self.namespace}/{self.name}:{declared.body['spec']['version']}"
            await self._template(process, image)
            old = [pod for pod in servers if image not in images(pod)]
            if old and known.get("status", {}).get("phase") == "Available":
                await process.api.call("DELETE", path("Pod", self.namespace, old[-1]["metadata"]["name"]))

    async def _tell(self, process: Process, declared: Json, ready: int) -> Json:
        """Write what is news of the status; what it goes by is the object as it is then."""
        phase = "Available" if ready == SERVERS else "Restarting"
        status = {"phase": phase, "ready": ready, "observedGeneration": declared["metadata"]["generation"]}
        if declared.get("status") == status:
            return declared
        where = f"{self.made.path(self.namespace, self.name)}/status"
        told = await process.api.call("PATCH", where, {"status": status})
        return told.body if told.ok else declared

    async def _template(self, process: Process, image: str) -> None:
        where = path("StatefulSet", self.namespace, self.name)
        found = await process.api.call("GET", where)
        for container in found.body["spec"]["template"]["spec"]["containers"] if found.ok else ():
            if container["image"] != image:
                template = {"spec": {"containers": [{**container, "image": image}]}}
                await process.api.call("PATCH", where, {"spec": {"template": template}})


@family(
    "A chart's new CustomResourceDefinition names the phases of an object in another way than the operator that is"
    " there: what that one writes while a server restarts is refused. It goes by the status, which still calls all of"
    " them well, and at the next, harmless update it ends one after another without waiting for any.",
    joined=22,
)
async def stale_status(lab: Lab) -> AsyncIterator[None]:
    """As the operator for WebLogic tells (weblogic-kubernetes-operator 782)."""
    kind, namespace, name, front = lab.rng.choice(
        (
            ("Domain", "payments", "accounts", "banking"),
            ("ServerGroup", "shop", "orders", "checkout-page"),
            ("SiteCluster", "media", "articles", "reader"),
        )
    )
    group, operator = "servers.corp.example", f"{kind.lower()}-operator"
    made = await lab.custom(kind, group, ANY)
    definition, keeper = f"{made.plural}.{group}", _Operator(made, namespace, name)

    def ready() -> int:
        return len(backends(lab.world, namespace, name))

    status = {**ANY, "properties": {"ready": {"type": "integer"}, "phase": {"type": "string"}}}
    await lab.edit("admin", "CustomResourceDefinition", "", definition, _version(status))
    await lab.served(made)
    like = App("", start_seconds=START_SECONDS)
    await lab.app(namespace, name, like=like, kind="StatefulSet", replicas=SERVERS, tag="1.4.0")
    by_hand = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    await lab.edit("admin", "StatefulSet", namespace, name, by_hand)
    meta = {"namespace": namespace, "name": name}
    body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": {"version": "1.4.0"}}
    await lab.apply(body)
    rules = (
        (group, f"{made.plural},{made.plural}/status", "get,list,watch,patch"),
        ("", "pods", "get,list,watch,delete"),
        ("apps", "statefulsets", "get,list,patch"),
    )
    await lab.controller("platform", operator, every(1.5, keeper.reconcile), *rules, replicas=1)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: ready() == SERVERS and len(backends(lab.world, namespace, front)) == 3)
    await lab.until(lambda: lab.world[kind][namespace, name].get("status", {}).get("ready") == SERVERS)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    phases = {"type": "string", "enum": ["Available", "Progressing", "Failed"]}
    known = {**status, "properties": {**status["properties"], "phase": phases}}
    by = lab.rng.choice(("argocd", "flux", "ci"))
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, _version(known))
    await lab.pause(lab.rng.uniform(7, 12))
    team = lab.rng.choice(("argocd", "bob", "alice"))
    await lab.edit(team, kind, namespace, name, {"spec": {"version": "1.4.1"}})


@family(
    "A machine is replaced for one with a newer system, and its node is made anew: the label that somebody once gave it"
    " by hand is not there any more, and what selects it finds no node.",
    joined=22,
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
