"""What a new version of an agent asks for each time anew, where the one before kept what it had been given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, path
from tests.lab.apps import Process
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.scenario import family

AGENT, AUDIENCE = ("kube-system", "cloud-identity-agent"), "sts.cloud.example"
LOOK_SECONDS, LIFETIME_SECONDS = 1.5, 3600


@dataclass
class _Agent:
    """Gives the pods of its node credentials of the cloud, for which it shows a token of each pod's account there."""

    first: str

    async def run(self, process: Process) -> None:
        given: set[str] = set()
        node = process.see().pod["spec"]["nodeName"]
        while True:
            listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
            for pod in filter(_is_served, listed.body.get("items", [])):
                uid = pod["metadata"]["uid"]
                if uid not in given or self._asks_anew(process):
                    given.add(uid)
                    await _ask(process, pod)
            await asyncio.sleep(LOOK_SECONDS * process.rng.uniform(0.9, 1.1))

    def _asks_anew(self, process: Process) -> bool:
        return process.tag != self.first and process.see().seconds > process.lag


def _is_served(pod: Json) -> bool:
    """Those of teams, which run."""
    return bool(pod["metadata"]["namespace"] != AGENT[0] and pod["status"].get("phase") == "Running")


async def _ask(process: Process, pod: Json) -> None:
    meta, account = pod["metadata"], pod["spec"].get("serviceAccountName", "default")
    bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    spec = {"audiences": [AUDIENCE], "boundObjectRef": bound, "expirationSeconds": LIFETIME_SECONDS}
    where = f"{path('ServiceAccount', meta['namespace'], account)}/token"
    await process.api.call("POST", where, {"spec": spec})


@family(
    "An agent on every node gives pods credentials of the cloud, for each of which it shows a token of the pod's"
    " account. Its new version keeps no token until that one is nearly over, and asks for all of them at each look: the"
    " API server gets many times the requests.",
    joined=63,
)
async def tokens_each_look(lab: Lab) -> AsyncIterator[None]:
    """As drivers of secrets and agents of identities did that asked for a token at each rotation's look."""
    by, minor = lab.rng.choice(("flux", "argocd", "ci")), lab.rng.randrange(2, 12)
    first, second = f"1.{minor}.3", f"1.{minor + 1}.0"
    agent = _Agent(first)
    rights = ("", "pods", "get,list,watch"), ("", "serviceaccounts/token", "create")
    app = await lab.controller(*AGENT, agent.run, *rights, kind="DaemonSet", tag=first)
    alert_on_load(lab)
    for namespace, name in (("shop", "promotions"), ("media", "covers"), ("payments", "reconciliation")):
        await lab.app(namespace, name, replicas=4, tag="2.0.1")
    await lab.pause(6)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    [there] = lab.world["DaemonSet"][AGENT]["spec"]["template"]["spec"]["containers"]
    one = {**there, "image": f"{app.image}:{second}"}
    body = {"spec": {"template": {"spec": {"containers": [one]}}}}
    await lab.culprit(by, "update", "DaemonSet", *AGENT, body)
