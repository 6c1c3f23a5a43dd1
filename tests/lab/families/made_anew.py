"""What is deleted and made anew to be changed: whoever has something of it has it of one that is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import Process, Program
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family


@dataclass
class _Accounts:
    """What keeps ServiceAccounts as they are declared: one that differs is deleted and made anew."""

    kind: Kind

    async def sync(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        for definition in listed.body.get("items", []):
            for wanted in definition["spec"]["serviceAccounts"]:
                namespace, name = wanted["namespace"], wanted["name"]
                pulls = [{"name": one} for one in wanted.get("imagePullSecrets", ())]
                found = await process.api.call("GET", path("ServiceAccount", namespace, name))
                if found.ok and (found.body.get("imagePullSecrets") or []) != pulls:
                    await process.api.call("DELETE", path("ServiceAccount", namespace, name))
                    found = await process.api.call("GET", path("ServiceAccount", namespace, name))
                if found.status == 404:
                    meta = {"name": name, "labels": {"app.kubernetes.io/managed-by": "rbac-manager"}}
                    body = {"metadata": meta, "imagePullSecrets": pulls}
                    await process.api.call("POST", path("ServiceAccount", namespace), body)


@family(
    "A definition of who may what gets the name of another Secret for images, for one ServiceAccount: what keeps those"
    " deletes it and makes it anew, and the token that its program has is of one that is gone.",
    joined=22,
)
async def account_made_anew(lab: Lab) -> AsyncIterator[None]:
    """As a user of RBAC Manager tells (October 2023, rbac-manager 428)."""
    tools = lab.rng.sample(("dns-publisher", "route-exporter", "quota-reporter", "status-page-sync"), 3)
    name, group = tools[0], "rbacmanager.corp.example"
    definition = lab.rng.choice(("platform-tools", "cluster-robots", "automation"))
    made = await lab.custom("RBACDefinition", group, ANY)
    synced = dict.fromkeys(tools, now())

    def syncing(tool: str) -> Program:
        async def sync(process: Process) -> None:
            """The token among its files is written anew only as it is about to run out."""
            found = [await process.api.call("GET", f"{path(kind)}?limit=30") for kind in ("Service", "Ingress")]
            if all(one.ok for one in found):
                synced[tool] = now()

        return every(1.5, sync)

    await lab.served(made)
    rules = (("", "services", "list"), ("networking.k8s.io", "ingresses", "list"))
    for tool in tools:
        await lab.controller("platform", tool, syncing(tool), *rules, replicas=1, tag="1.4.0")
        late = lambda tool=tool: (now() - synced[tool]).total_seconds() > 7  # noqa: E731
        lab.alert("SyncStale", late, f"{tool} has not synced for a while", 4, namespace="platform", service=tool)
    accounts = [{"namespace": "platform", "name": tool} for tool in sorted(tools)]
    meta = {"namespace": "platform", "name": definition}
    spec: Json = {"serviceAccounts": accounts}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": made.name, "metadata": meta, "spec": spec})
    rules = ((group, made.plural, "get,list,watch"), ("", "serviceaccounts", "*"))
    await lab.controller("platform", "rbac-manager", every(1.5, _Accounts(made).sync), *rules, replicas=1, tag="1.6.2")
    yield
    pulls = {"imagePullSecrets": [lab.rng.choice(("registry-mirror", "registry-readonly"))]}
    wanted = [{**one, **(pulls if one["name"] == name else {})} for one in accounts]
    by = lab.rng.choice(("carol", "flux", "bob"))
    await lab.culprit(by, "update", made.name, "platform", definition, {"spec": {"serviceAccounts": wanted}})
