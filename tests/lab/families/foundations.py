"""What others rest on: a key of a Secret, a way out, a label of a node, who removes a finalizer, who may write what."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import Process
from tests.lab.families.loops import LOOSE
from tests.lab.lab import NODES, Lab
from tests.lab.programs import every
from tests.lab.scenario import family


@family(
    "A team is kept from calling out but to those whom it needs, and DNS is not among them: no name is resolved.",
    joined=3,
)
async def egress_policy(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "frontend", "cart", "catalog")
    lab.reserve("payments", "checkout", "ledger")
    lab.alert_lacking("shop", "frontend")
    yield
    payments = {"matchLabels": {"kubernetes.io/metadata.name": "payments"}}
    egress = [{"to": [{"podSelector": {}}, {"namespaceSelector": payments}]}]
    spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": egress}
    body = {"metadata": {"name": "egress"}, "spec": spec}
    await lab.culprit("flux", "create", "NetworkPolicy", "shop", "egress", body)


@family(
    "A key of a Secret gets another name: what runs has the old one, pods of the next, harmless rollout cannot start.",
    joined=3,
)
async def secret_key(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("payments", "invoices")
    password = base64.b64encode(b"first").decode()
    meta = {"namespace": "payments", "name": "invoices-db"}
    await lab.apply({"kind": "Secret", "metadata": meta, "data": {"password": password}})
    env = [{"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "invoices-db", "key": "password"}}}]
    await lab.app("payments", "invoices", env=env)
    lab.alert_stuck("payments", "invoices")
    yield
    body = {"data": {"password": None, "db-password": password}}
    await lab.culprit("flux", "update", "Secret", "payments", "invoices-db", body)
    await lab.pause(6)
    await lab.roll("argocd", "payments", "invoices", "1.0.1")


@family(
    "An operator that looks unused is removed while Buckets have its finalizer: the next namespace that is deleted"
    " stays for ever.",
    joined=3,
)
async def finalizer(lab: Lab) -> AsyncIterator[None]:
    group = "storage.corp.example"
    bucket = await lab.custom("Bucket", group, LOOSE)

    async def release(process: Process) -> None:
        """What is to be deleted is given back outside of the cluster, and let go."""
        listed = await process.api.call("GET", bucket.path())
        for one in listed.body.get("items", []):
            meta = one["metadata"]
            if "deletionTimestamp" in meta:
                where = bucket.path(meta["namespace"], meta["name"])
                await process.api.call("PATCH", where, {"metadata": {"finalizers": None}})

    rules = (group, "buckets", "list,patch")
    await lab.controller("platform", "bucket-operator", every(1.5, release), rules, replicas=1)
    await lab.served(bucket)
    for name in ("review-118", "review-119"):
        await lab.namespace(name)
        meta = {"namespace": name, "name": "uploads", "finalizers": [f"{group}/bucket"]}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": "Bucket", "metadata": meta, "spec": {"size": "1Gi"}})
    lab.alert(
        "KubeNamespaceTerminating",
        lambda: any("deletionTimestamp" in one["metadata"] for one in lab.world["Namespace"].values()),
        "a namespace has been terminating for a while",
        14,
        namespace="review-118",
    )
    yield
    await lab.culprit("alice", "delete", "Deployment", "platform", "bucket-operator")
    await lab.pause(8)
    await lab.who["ci"].must("DELETE", path("Namespace", None, "review-118"))


@family(
    "Nodes get the new form of a label and lose the old one: the agent that selects the old one leaves every node.",
    joined=3,
)
async def node_label(lab: Lab) -> AsyncIterator[None]:
    await lab.app("monitoring", "log-shipper", kind="DaemonSet", nodeSelector={"pool": "general"})
    lab.alert(
        "LogShipperAbsent",
        lambda: not pods(lab.world, "monitoring", "log-shipper"),
        "no node ships its logs",
        6,
        namespace="monitoring",
        daemonset="log-shipper",
    )
    yield
    body = {"metadata": {"labels": {"pool": None, "node.corp.example/pool": "general"}}}
    for node in NODES:
        await lab.culprit("bob", "update", "Node", "", node, body)


@family(
    "A policy that had no binding gets one: the API server denies a controller what it writes into another namespace.",
    joined=3,
)
async def admission_policy(lab: Lab) -> AsyncIterator[None]:
    async def publish(process: Process) -> None:
        await process.api.call("PATCH", path("ConfigMap", "payments", "fx-rates"), {"data": {"at": stamp(now())}})

    await lab.apply(objects.config_map("payments", "fx-rates", at="never"))
    rules = ("", "configmaps", "get,patch")
    app = await lab.controller("platform", "fx-rates", every(1, publish), rules, replicas=1)
    what = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}
    rule = {
        "expression": "!request.userInfo.username.startsWith('system:serviceaccount:platform:')",
        "message": "what a team owns is written by the team",
    }
    policy: Json = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [what]}, "validations": [rule]}
    meta = {"name": "team-owned"}
    await lab.apply({"kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": policy})
    refused = lab.rate(lab.refused(app.image, 403, 422), 0.4)
    lab.alert("FxRatesStale", refused, "exchange rates are stale", namespace="platform", service="fx-rates")
    yield
    only = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "payments"}}}
    spec = {"policyName": "team-owned", "validationActions": ["Deny"], "matchResources": only}
    body = {"metadata": {"name": "team-owned-payments"}, "spec": spec}
    await lab.culprit("carol", "create", "ValidatingAdmissionPolicyBinding", "", "team-owned-payments", body)
