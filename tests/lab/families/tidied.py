"""What was tidied up: a right that nobody seemed to use, ReplicaSets of old, a Secret that was made by hand."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

Work = Callable[[Process], Awaitable[None]]
RBAC = "rbac.authorization.k8s.io"
WORKSPACES = "workspaces"
"""The namespace where they all are."""


@family(
    "The rights of an operator are cut to what it was seen to do, and it never reads a log: but it lets each new"
    " workspace read its own, and nobody may give a right away that he does not have.",
    joined=20,
)
async def unheld_rights(lab: Lab) -> AsyncIterator[None]:
    """As a user of Kurtosis tells of its engine (August 2025, kurtosis 2794)."""
    group, name = "workspaces.corp.example", lab.rng.choice(("workspace-operator", "sandbox-engine", "lab-provisioner"))
    workspace = await lab.custom("Workspace", group, ANY)

    def waits() -> bool:
        since = stamp(now() - timedelta(seconds=6))
        found = lab.world["Workspace"].values()
        return any("status" not in one and one["metadata"]["creationTimestamp"] < since for one in found)

    await lab.namespace(WORKSPACES)
    await lab.served(workspace)
    may = (
        ("", "pods", "get,list,watch"),
        ("", "serviceaccounts", "get,create"),
        (RBAC, "roles,rolebindings", "get,list,create"),
        (group, "workspaces", "*"),
    )
    logs = ("", "pods/log", "get")
    await lab.controller("platform", name, every(2, _providing(workspace)), *may, logs, replicas=1)
    opening = every(6, _opening(workspace))
    await lab.controller("platform", "portal", opening, (group, "workspaces", "create"), replicas=1)
    await lab.until(lambda: any("status" in one for one in lab.world["Workspace"].values()))
    summary = "a new workspace has been waiting for a while"
    lab.alert("WorkspacesNotProvisioned", waits, summary, 4, namespace="platform", service=name)
    yield
    by = lab.rng.choice(("carol", "alice", "flux"))
    await lab.culprit(by, "update", "ClusterRole", "", name, {"rules": objects.cluster_role(name, *may)["rules"]})


def _opening(workspace: Kind) -> Work:
    async def open_one(process: Process) -> None:
        """Somebody wants one now and then."""
        meta = {"name": f"ws-{process.rng.randrange(16**5):05x}"}
        body = {"apiVersion": f"{workspace.group}/v1", "kind": "Workspace", "metadata": meta, "spec": {"size": "small"}}
        await process.api.call("POST", workspace.path(WORKSPACES), body)

    return open_one


def _providing(workspace: Kind) -> Work:
    async def provide(process: Process) -> None:
        """Each workspace that is not ready gets an account that may read pods and their logs, step by step."""
        listed = await process.api.call("GET", workspace.path(WORKSPACES))
        for one in listed.body.get("items", []):
            name = one["metadata"]["name"]
            if one.get("status", {}).get("phase") == "Ready":
                continue
            steps: tuple[tuple[str, Json], ...] = (
                ("ServiceAccount", objects.account(WORKSPACES, name)),
                ("Role", _role(name)),
                ("RoleBinding", _binding(name)),
            )
            for kind, body in steps:
                if (await process.api.call("POST", path(kind, WORKSPACES), body)).status not in (201, 409):
                    break
            else:
                await process.api.call("PATCH", workspace.path(WORKSPACES, name), {"status": {"phase": "Ready"}})

    return provide


def _role(name: str) -> Json:
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]
    return {"metadata": {"name": name}, "rules": rules}


def _binding(name: str) -> Json:
    subject = {"kind": "ServiceAccount", "namespace": WORKSPACES, "name": name}
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [subject],
    }


@family(
    "Somebody clears ReplicaSets of old versions away, and takes all that have the label of an app: the one in use is"
    " among them, its pods go with their owner all at once, and those that are made anew are slow to start.",
    joined=20,
)
async def replicasets_cleared(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, name, caller = lab.rng.choice(
        (("payments", "tariffs", "quotes"), ("search", "facets", "listing"), ("media", "captions", "player"))
    )
    replicas, slow = lab.rng.choice((4, 5)), lab.rng.choice((22.0, 26.0, 30.0))
    tags = lab.rng.choice((("2.3.0", "2.3.1", "2.4.0"), ("1.8.4", "1.8.5", "1.9.0")))

    def is_rolled_out() -> bool:
        there = pods(lab.world, namespace, name)
        new = [is_ready(pod) and pod["spec"]["containers"][0]["image"].endswith(f":{tags[-1]}") for pod in there]
        return all(new) and len(new) == replicas

    await lab.app(namespace, name, tag=tags[0], like=App("", start_seconds=slow), replicas=replicas)
    rolling = {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": rolling}})
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    for tag in tags[1:]:
        await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
        await lab.roll("ci", namespace, name, tag)
        await lab.pause(2)
    await lab.until(is_rolled_out)
    lab.alert_lacking(namespace, name)
    lab.alert_errors(namespace, caller)
    yield
    by = lab.rng.choice(("alice", "bob", "carol"))
    label = {"app.kubernetes.io/name": name}.items()
    found = [one for one in lab.world["ReplicaSet"].values() if label <= one["metadata"].get("labels", {}).items()]
    for one in sorted(found, key=lambda one: str(one["metadata"]["name"])):
        which = one["metadata"]["name"]
        background = {"propagationPolicy": "Background"}
        if one["metadata"]["namespace"] == namespace and one["spec"]["replicas"]:
            await lab.culprit(by, "delete", "ReplicaSet", namespace, which, background)
        elif one["metadata"]["namespace"] == namespace:
            await lab.who[by].must("DELETE", path("ReplicaSet", namespace, which), background)


@family(
    "The Secret by which one hub knows itself at who logs its users in was set by hand, and what Git has is of old: the"
    " next deployment of all hubs writes it over, and the new pods of that hub answer each login with 500.",
    joined=20,
)
async def secret_overwritten(lab: Lab) -> AsyncIterator[None]:
    """As 2i2c tells of the hub of a university (September 2022, infrastructure 1687)."""
    hubs = lab.rng.sample(("hub-lakeside", "hub-northgate", "hub-harbour", "hub-midtown", "hub-riverside"), 3)
    by_hand, secret, name = lab.rng.choice(hubs), "hub-oauth", "hub"
    git = {hub: f"{lab.rng.getrandbits(64):016x}" for hub in hubs}
    known = {**git, by_hand: f"{lab.rng.getrandbits(64):016x}"}
    logins = lab.rng.uniform(0.4, 0.7)
    read: dict[str, str] = {}

    def failing(container: Container) -> float:
        """A process has what it read as it started."""
        meta = container.pod["metadata"]
        has = read.setdefault(meta["uid"], container.secret.get("client_secret", ""))
        return 0.0 if has == base64.b64encode(known[meta["namespace"]].encode()).decode() else logins

    for hub in hubs:
        await lab.namespace(hub)
        meta = {"namespace": hub, "name": secret}
        data = {"client_id": hub, "client_secret": known[hub]}
        await lab.apply({"kind": "Secret", "metadata": meta, "stringData": data})
        like = App("", failing=failing, abroad=("login.university.example",))
        await lab.app(hub, name, tag="2.1.0", like=like, secret=secret)
    await lab.until(lambda: all(len(backends(lab.world, hub, name)) == 2 for hub in hubs))
    for hub in hubs:
        await publish(lab, hub, name)
        lab.alert_errors(hub, name)
        lab.alert_ingress_errors(hub, hub)
    yield
    by = lab.rng.choice(("ci", "ci", "flux"))
    for hub in hubs:
        body = {"stringData": {"client_id": hub, "client_secret": git[hub]}}
        if hub == by_hand:
            await lab.culprit(by, "update", "Secret", hub, secret, body)
        else:
            await lab.edit(by, "Secret", hub, secret, body)
        await lab.roll(by, hub, name, "2.2.0")
        await lab.pause(lab.rng.uniform(1, 3))
