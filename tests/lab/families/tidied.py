"""What was tidied up: a right that nobody seemed to use, ReplicaSets of old, a Secret that was made by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import Process
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
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
