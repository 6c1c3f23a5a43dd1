"""What somebody does to nodes, and who outside of the cluster follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import Process
from tests.lab.families.between import publish
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import every
from tests.lab.scenario import family

RETRY_SECONDS = 5.0


async def drain(lab: Lab, by: str, node: str) -> None:
    """As kubectl: what a DaemonSet owns stays, what a budget keeps is asked for again and again."""

    def rest() -> list[Json]:
        return [
            pod
            for pod in lab.world["Pod"].values()
            if pod["spec"].get("nodeName") == node
            and "deletionTimestamp" not in pod["metadata"]
            and not any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))
        ]

    while found := rest():
        for pod in found:
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await lab.who[by].call("POST", f"{path('Pod', namespace, name)}/eviction", body)
        await asyncio.sleep(RETRY_SECONDS)


@family(
    "The old nodes are cordoned to be emptied, and the load balancer lets go of what is cordoned: the ingress's pods,"
    " which a budget keeps there, get nothing any more, and the new nodes have none to give it to.",
    joined=10,
)
async def cordoned_ingress(lab: Lab) -> AsyncIterator[None]:
    """As DevOps Hof tells of the move to another pool of nodes."""
    old = sorted(lab.rng.sample(NODES, 3))
    new = [node for node in NODES if node not in old]
    targets: set[str] = set()

    async def balance(process: Process) -> None:
        """As service controllers did until 1.18: none of the nodes that are cordoned."""
        listed = await process.api.call("GET", path("Node"))
        fit = {
            one["metadata"]["name"]
            for one in listed.body.get("items", [])
            if not one["spec"].get("unschedulable")
            and any(it["type"] == "Ready" and it["status"] == "True" for it in one["status"]["conditions"])
        }
        if listed.ok and fit != targets:
            targets.clear()
            targets.update(fit)
            await _tell(process)

    def unanswered(host: str) -> bool:
        """A node that is asked gives a call to its own pods only, by the policy."""
        return not is_let_in() or bool(unserved(lab.world, host))

    def is_let_in() -> bool:
        """Whether the load balancer has anybody to give a call to."""
        return bool({pod["spec"]["nodeName"] for pod in backends(lab.world, *INGRESS_CONTROLLER)} & targets)

    def moved() -> bool:
        """Both of the pods that the restart made are there, and none of those before."""
        there = pods(lab.world, *INGRESS_CONTROLLER)
        return len(there) == 2 and all(
            is_ready(pod) and pod["metadata"].get("annotations") == mark and pod["spec"]["nodeName"] in old
            for pod in there
        )

    lab.outside.reached = is_let_in
    rules = ("", "nodes", "get,list,watch"), ("", "services,events", "*")
    await lab.controller("kube-system", "cloud-controller-manager", every(1, balance), *rules, replicas=1)
    public = {"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}}
    await lab.edit("admin", "Service", *INGRESS_CONTROLLER, public)
    labels = {"matchLabels": {"app.kubernetes.io/name": INGRESS_CONTROLLER[1]}}
    meta = {"namespace": INGRESS_CONTROLLER[0], "name": INGRESS_CONTROLLER[1]}
    await lab.apply({"kind": "PodDisruptionBudget", "metadata": meta, "spec": {"minAvailable": 2, "selector": labels}})
    for node in new:  # which are not there yet
        await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": True}})
    mark = {"kubectl.kubernetes.io/restartedAt": stamp(now())}
    restarted: Json = {"spec": {"template": {"metadata": {"annotations": mark}}}}
    await lab.edit("admin", "Deployment", *INGRESS_CONTROLLER, restarted)
    await lab.until(moved)
    for node in new:
        await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": None}})
    for namespace, name in {"shop": "frontend", "search": "query"}.items():
        host = await publish(lab, namespace, name)
        holds = lambda host=host: unanswered(host)  # noqa: E731
        lab.alert(
            "ProbeFailed", holds, f"https://{host} is not answered", 6, job="blackbox", instance=f"https://{host}"
        )
    await lab.until(lambda: set(NODES) == targets)
    yield
    by = lab.rng.choice(("alice", "bob"))
    for node in old:
        await lab.culprit(by, "update", "Node", "", node, {"spec": {"unschedulable": True}})
    lab.start(drain(lab, by, old[0]))


async def _tell(process: Process) -> None:
    """In the words of the service controller."""
    second, (namespace, name) = f"{stamp(now())[:19]}Z", INGRESS_CONTROLLER
    found = await process.api.call("GET", path("Service", namespace, name))
    about = {"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name}
    event = {
        "metadata": {"generateName": f"{name}."},
        "involvedObject": {**about, "uid": found.body.get("metadata", {}).get("uid", "")},
        "type": "Normal",
        "reason": "UpdatedLoadBalancer",
        "message": "Updated load balancer with new hosts",
        "count": 1,
        "firstTimestamp": second,
        "lastTimestamp": second,
        "source": {"component": "service-controller"},
    }
    await process.api.call("POST", path("Event", namespace), event)
