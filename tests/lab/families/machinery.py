"""What serves and tends the cluster: conversions of an API, an aggregated one, a descheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.programs import both, every, leading
from tests.lab.scenario import family


@family(
    "A chart brings a new version of an API and a webhook that converts to it, under a name that no Service has: what"
    " is written in the old version cannot be stored any more.",
    joined=6,
)
async def conversion_webhook(lab: Lab) -> AsyncIterator[None]:
    group = "mesh.corp.example"
    kind = await lab.custom(lab.rng.choice(("Listener", "Upstream", "Circuit")), group, LOOSE)
    await lab.served(kind)
    name = f"{kind.name.lower()}-operator"
    for number in range(lab.rng.randrange(3, 6)):
        meta = {"namespace": "platform", "name": f"{kind.name.lower()}-{number}"}
        body: Json = {"apiVersion": f"{group}/v1", "kind": kind.name, "metadata": meta, "spec": {"seen": ""}}
        await lab.who["argocd"].must("POST", kind.path("platform"), body)

    async def reconcile(process: Process) -> None:
        """Writes into each when it was there last."""
        listed = await process.api.call("GET", kind.path())
        for one in listed.body.get("items", []):
            body = {"spec": {"seen": now().isoformat(timespec="seconds")}}
            await process.api.call("PATCH", kind.path("platform", one["metadata"]["name"]), body)

    app = await lab.controller("platform", name, every(3, reconcile), (group, kind.plural, "*"), replicas=1)
    failing = lab.rate(lab.refused(app.image, 500), 0.4)
    lab.alert("ReconcileErrorsHigh", failing, f"{name} fails to reconcile", namespace="platform", deployment=name)
    yield
    version = {"served": True, "schema": {"openAPIV3Schema": LOOSE}}
    service = {"namespace": "platform", "name": f"{kind.name.lower()}-conversion", "path": "/convert", "port": 443}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
    spec = {
        "versions": [{"name": "v2", "storage": True, **version}, {"name": "v1", "storage": False, **version}],
        "conversion": {"strategy": "Webhook", "webhook": webhook},
    }
    place = f"{kind.plural}.{group}"
    by = lab.rng.choice(("ci", "argocd"))
    await lab.culprit(by, "update", "CustomResourceDefinition", "", place, {"spec": spec})


@family(
    "A chart for metrics of a queue registers an API of its own, but what should serve it is not there: nobody can"
    " tell any more what kinds there are, and a namespace that somebody deletes stays.",
    joined=6,
)
async def aggregated_api(lab: Lab) -> AsyncIterator[None]:
    going = f"review-{lab.rng.randrange(100, 999)}"
    await lab.namespace(going)
    await lab.app(going, "web")

    def stays() -> bool:
        """Longer than it takes to end what is in it."""
        told = lab.world["Namespace"].get(("", going), {}).get("metadata", {}).get("deletionTimestamp")
        return bool(told) and (now() - datetime.fromisoformat(told)).total_seconds() > 12

    lab.alert("KubeNamespaceTerminating", stays, f"namespace {going} does not go", 4, namespace=going)
    yield
    group = lab.rng.choice(("external.metrics.k8s.io", "custom.metrics.k8s.io"))
    spec = {
        "group": group,
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "monitoring", "name": "queue-metrics-apiserver", "port": 443},
    }
    body = {"metadata": {"name": f"v1beta1.{group}"}, "spec": spec}
    await lab.culprit(lab.rng.choice(("ci", "flux")), "create", "APIService", "", f"v1beta1.{group}", body)
    await lab.pause(8)
    await lab.who["alice"].must("DELETE", path("Namespace", None, going))


@family(
    "The longest life of a pod is given in hours where a descheduler reads seconds: it evicts what has hardly come"
    " up, again and again.",
    joined=6,
)
async def pod_lifetime(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("search", "suggest"), ("media", "transcoder"), ("shop", "warehouse")))

    async def deschedule(process: Process) -> None:
        """Evicts what is older than its policy allows, as its PodLifeTime strategy does."""
        listed = await process.api.call("GET", path("Pod", namespace))
        for pod in listed.body.get("items", []):
            meta = pod["metadata"]
            age = (now() - datetime.fromisoformat(meta["creationTimestamp"])).total_seconds()
            if "deletionTimestamp" not in meta and age > float(process.config["MAX_POD_LIFE_SECONDS"]):
                own = {"namespace": namespace, "name": meta["name"]}
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": own}
                await process.api.call("POST", f"{path('Pod', namespace, meta['name'])}/eviction", body)

    await lab.apply(objects.config_map("kube-system", "descheduler", MAX_POD_LIFE_SECONDS="604800"))
    rules = ("", "pods", "get,list,watch"), ("", "pods/eviction", "create"), ("coordination.k8s.io", "leases", "*")
    program = both(every(3, deschedule), leading("kube-system", "descheduler"))
    await lab.controller("kube-system", "descheduler", program, *rules, replicas=1, config="descheduler")
    await lab.app(namespace, name, like=App("", start_seconds=16), replicas=3)
    lab.alert_lacking(namespace, name)
    yield
    body = {"data": {"MAX_POD_LIFE_SECONDS": lab.rng.choice(("24", "12"))}}
    by = lab.rng.choice(("bob", "flux"))
    await lab.culprit(by, "update", "ConfigMap", "kube-system", "descheduler", body)
