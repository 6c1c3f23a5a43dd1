"""Operators that do as they are told: the change is what they follow, not what they write."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.company import APPS
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every
from tests.lab.scenario import family


@family(
    "The autoscaler of the cluster's DNS is told that a server stands more nodes: it scales the servers down, those"
    " that are left are overloaded, and no name is resolved in time.",
    joined=4,
)
async def dns_autoscaler(lab: Lab) -> AsyncIterator[None]:
    servers = path("Deployment", "kube-system", "kube-dns")

    async def scale(process: Process) -> None:
        """In proportion to the nodes of the cluster."""
        settings = json.loads(process.config["linear"])
        nodes = await process.api.call("GET", path("Node"))
        found = await process.api.call("GET", f"{servers}/scale")
        if nodes.ok and found.ok:
            wanted = max(settings["min"], math.ceil(len(nodes.body["items"]) / settings["nodesPerReplica"]))
            if found.body["spec"]["replicas"] != wanted:
                await process.api.call("PATCH", f"{servers}/scale", {"spec": {"replicas": wanted}})

    few = {"nodesPerReplica": 1.5, "min": 2}
    await lab.apply(objects.config_map("kube-system", "dns-autoscaler", linear=json.dumps(few)))
    rules = (("", "nodes", "list"), ("apps", "deployments/scale", "get,patch"))
    await lab.controller("kube-system", "dns-autoscaler", every(5, scale), *rules, replicas=1, config="dns-autoscaler")
    await lab.until(lambda: sum(is_ready(pod) for pod in pods(lab.world, "kube-system", "kube-dns")) == 4)
    lab.apps["registry.corp.example/kube-system/kube-dns"].load = 250
    for namespace, name in (("shop", "frontend"), ("search", "query")):
        lab.reserve(namespace, name)
        lab.alert_lacking(namespace, name)
    yield
    many = {"nodesPerReplica": lab.rng.choice((4, 6, 16)), "min": 1}
    body = {"data": {"linear": json.dumps(many)}}
    await lab.culprit("alice", "update", "ConfigMap", "kube-system", "dns-autoscaler", body)


@family(
    "Finished runs of a pipeline are kept for a day so that their logs can be read: they fill the namespace's quota of"
    " Jobs, and no further run is made.",
    joined=4,
)
async def jobs_kept(lab: Lab) -> AsyncIterator[None]:
    group, namespace = "pipelines.corp.example", lab.rng.choice(("media", "search", "payments"))
    image = f"registry.corp.example/{namespace}/nightly"
    pipeline = await lab.custom("Pipeline", group, LOOSE)
    template = objects.deployment(namespace, "nightly", f"{image}:1.0.0", restartPolicy="Never")["spec"]["template"]

    async def run(process: Process) -> None:
        """A Job for every Pipeline whose turn it is, which is always."""
        listed = await process.api.call("GET", pipeline.path())
        for one in listed.body.get("items", []):
            spec = {"template": template, "ttlSecondsAfterFinished": one["spec"]["keepSeconds"], "backoffLimit": 1}
            body = {"metadata": {"generateName": f"{one['metadata']['name']}-"}, "spec": spec}
            await process.api.call("POST", path("Job", one["metadata"]["namespace"]), body)

    lab.apps[image] = App(image, ends_after=1)
    hard = {"count/jobs.batch": "18"}
    meta = {"namespace": namespace, "name": "objects"}
    await lab.apply({"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    rules = ((group, "pipelines", "list"), ("batch", "jobs", "create"))
    app = await lab.controller("platform", "pipeline-operator", every(1.5, run), *rules, replicas=1)
    await lab.served(pipeline)
    meta = {"namespace": namespace, "name": "nightly"}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "Pipeline", "metadata": meta, "spec": {"keepSeconds": 2}})
    refused = lab.rate(lab.refused(app.image, 403), 0.3)
    lab.alert("PipelineRunsMissing", refused, "runs of nightly are missing", namespace=namespace, pipeline="nightly")
    yield
    await lab.culprit("bob", "update", "Pipeline", namespace, "nightly", {"spec": {"keepSeconds": 86400}})


@family(
    "A Kustomization gets another path, in which one app is not: the controller that syncs it removes the app, and"
    " what called it is not ready.",
    joined=4,
)
async def gitops_prune(lab: Lab) -> AsyncIterator[None]:
    namespace, gone, *caller = lab.rng.choice(
        (
            ("shop", "cart", "shop", "frontend"),
            ("payments", "ledger", "payments", "checkout"),
            ("payments", "checkout", "shop", "cart"),
            ("search", "indexer", "search", "query"),
        )
    )
    group = "kustomize.toolkit.fluxcd.io"
    mark = f"{group}/name"
    apps = APPS[namespace]
    repository = {"./apps/production": set(apps), "./apps/production/base": set(apps) - {gone}}
    kustomization = await lab.custom("Kustomization", group, LOOSE)

    async def sync(process: Process) -> None:
        """What has its mark and is not in the repository is removed."""
        listed = await process.api.call("GET", kustomization.path(namespace))
        for one in listed.body.get("items", []):
            wanted = repository[one["spec"]["path"]]
            for kind in ("Deployment", "Service"):
                marked = f"{path(kind, namespace)}?labelSelector={mark}={one['metadata']['name']}"
                found = await process.api.call("GET", marked)
                for thing in found.body.get("items", []):
                    name = thing["metadata"]["name"]
                    if one["spec"]["prune"] and name not in wanted:
                        await process.api.call("DELETE", path(kind, namespace, name))

    lab.reserve(namespace, *apps)
    lab.reserve(*caller)
    for name in apps:
        for kind in ("Deployment", "Service"):
            await lab.edit("admin", kind, namespace, name, {"metadata": {"labels": {mark: "apps"}}})
    rules = ((group, "kustomizations", "list"), ("", "services", "list,delete"), ("apps", "deployments", "list,delete"))
    await lab.controller("flux-system", "kustomize-controller-apps", every(4, sync), *rules, replicas=1)
    await lab.served(kustomization)
    meta = {"namespace": namespace, "name": "apps"}
    spec = {"path": "./apps/production", "prune": True, "interval": "5m"}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "Kustomization", "metadata": meta, "spec": spec})
    lab.alert_lacking(*caller)
    yield
    by = lab.rng.choice(("alice", "carol", "ci"))
    body = {"spec": {"path": "./apps/production/base"}}
    await lab.culprit(by, "update", "Kustomization", namespace, "apps", body)


@family(
    "A bundle of trusted roots loses the old one before every server has a certificate of the new one: an operator"
    " writes it into every namespace, and whoever calls such a server trusts it no more.",
    joined=4,
)
async def trust_bundle(lab: Lab) -> AsyncIterator[None]:
    group, old, new = "trust.corp.example", "root of 2021", "root of 2026"
    bundle = await lab.custom("Bundle", group, LOOSE)

    async def distribute(process: Process) -> None:
        listed = await process.api.call("GET", bundle.path())
        for one in listed.body.get("items", []):
            data = {"ca.crt": "\n".join(one["spec"]["roots"])}
            for namespace in APPS:
                where = path("ConfigMap", namespace, one["metadata"]["name"])
                found = await process.api.call("GET", where)
                if found.ok and found.body.get("data") != data:
                    await process.api.call("PATCH", where, {"data": data})

    def calling(root: str) -> App:
        """Its server's certificate was issued by this root."""

        def check(container: Container) -> Problem | None:
            trusted = root in container.config["ca.crt"]
            message = "probe failed: x509: certificate signed by unknown authority"
            return None if trusted else Problem("unready", message)

        return App("", check=check)

    for namespace in APPS:
        await lab.apply(objects.config_map(namespace, "ca-bundle", **{"ca.crt": f"{old}\n{new}"}))
    places = [("payments", "payouts"), ("media", "importer"), ("search", "crawler"), ("shop", "reviews")]
    lab.rng.shuffle(places)
    for (namespace, name), root in zip(places, (old, new, new, new), strict=True):
        await lab.app(namespace, name, like=calling(root), config="ca-bundle")
    rules = ((group, "bundles", "list"), ("", "configmaps", "get,patch"))
    await lab.controller("cert-manager", "trust-manager", every(3, distribute), *rules, replicas=1)
    await lab.served(bundle)
    meta = {"namespace": "cert-manager", "name": "ca-bundle"}
    spec: Json = {"roots": [old, new]}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "Bundle", "metadata": meta, "spec": spec})
    lab.alert_lacking(*places[0])
    yield
    await lab.culprit("flux", "update", "Bundle", "cert-manager", "ca-bundle", {"spec": {"roots": [new]}})
