"""What a chart does where nobody says anything: its next major version keeps nothing on a disk by itself any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.nodes import provide
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.volumes import claims

OLD_CHART, NEW_CHART = "search-engine-7.4.2", "search-engine-8.0.1"
OLD_TAG, NEW_TAG = "1.11.3", "1.13.0"
STARTS_SECONDS = 2.0
ASKED = 24.0
SEARCHES = (0.5, 0.75)
"""The share of an app's requests, at least and at most, that asks its index."""


@dataclass
class _Engine:
    """An engine that has its index where its data is: on the disk that it had, or nowhere yet."""

    lab: Lab
    namespace: str
    name: str
    searches: float

    def has_index(self) -> bool:
        """Whether the pod that answers has the disk on which the index was made; there is none while none answers."""
        return all(claims(pod) for pod in backends(self.lab.world, self.namespace, self.name))

    def documents(self) -> float | None:
        there = backends(self.lab.world, self.namespace, self.name)
        return (48213.0 if self.has_index() else 0.0) if there else None

    def failing(self, _: Container) -> float:
        return 0.0 if self.has_index() else self.searches


def _release(name: str, revision: int, chart: str) -> Json:
    """What Helm keeps of one."""
    labels = {"owner": "helm", "name": name, "version": str(revision), "status": "deployed"}
    meta = {"name": f"sh.helm.release.v1.{name}.v{revision}", "labels": labels}
    return {"metadata": meta, "type": "helm.sh/release.v1", "stringData": {"release": f"H4sIAAAA{chart}"}}


@family(
    "A chart of others is updated to its next major version, with the values that it has always had, for what is new in"
    " it. That one keeps data on a disk only where the values say so, which was what came by itself until now: the"
    " engine starts with an empty folder, is ready, and has no index. Helm deletes the claim, and nothing is left.",
    joined=57,
)
async def disk_by_default(lab: Lab) -> AsyncIterator[None]:
    """As one tells of upgrades whose values stayed and whose defaults did not (devopsaitoolkit.com)."""
    namespace, name = lab.rng.choice(
        (("shop", "product-finder"), ("media", "clip-finder"), ("payments", "order-finder"))
    )
    engine, by, team = f"{name}-engine", lab.rng.choice(("ci", "bob", "alice")), lab.rng.choice(("argocd", "flux"))
    revision, minor = lab.rng.randrange(3, 20), lab.rng.randrange(2, 30)
    index = _Engine(lab, namespace, engine, lab.rng.uniform(*SEARCHES))
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "standard"}, "provisioner": "disk.csi.example"})
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "standard",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    meta = {"namespace": namespace, "name": engine, "labels": {"helm.sh/chart": OLD_CHART}}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    disk = {"name": "data", "persistentVolumeClaim": {"claimName": engine}}
    like = App("", serves=False, start_seconds=STARTS_SECONDS)
    await lab.app(namespace, engine, like=like, replicas=1, tag=OLD_TAG, volumes=[disk])
    once = {"strategy": {"type": "Recreate", "rollingUpdate": None}}
    await lab.edit("admin", "Deployment", namespace, engine, {"spec": once})
    await rolled(lab, namespace, engine, OLD_TAG)
    like = App("", upstreams=((namespace, engine),), asked=lambda: ASKED, failing=index.failing)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{minor}.0")
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await publish(lab, namespace, name)
    lab.reserve(namespace, engine)
    lab.measure("engine_documents", index.documents, namespace=namespace, service=engine)
    summary = f"more than 10% of the requests to {namespace}/{name} are answered with 5xx"
    failed = lambda: lab.traffic.of_app(namespace, name, 8.0).failed > 0.1  # noqa: E731
    lab.alert("HighErrorRate", failed, summary, 20, namespace=namespace, service=name)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll(team, namespace, name, f"2.{minor}.1")
    await rolled(lab, namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 10))
    there = lab.world["Deployment"][namespace, engine]["spec"]["template"]["spec"]["containers"][0]
    containers = [{**there, "image": there["image"].replace(OLD_TAG, NEW_TAG)}]
    pod = {"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}]}
    body = {"metadata": {"labels": {"helm.sh/chart": NEW_CHART}}, "spec": {"template": {"spec": pod}}}
    await lab.culprit(by, "update", "Deployment", namespace, engine, body)
    await lab.culprit(by, "delete", "PersistentVolumeClaim", namespace, engine)
    await lab.culprit(by, "create", "Secret", namespace, engine, _release(engine, revision, NEW_CHART))
