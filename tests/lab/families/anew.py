"""What shows only once a pod is made anew."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.alerts import lacking, pods
from tests.lab.apps import App, Container, Problem
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.scenario import family

JOIN_SECONDS = 6.0
"""Until a node that was emptied is there with its new version, and the next one is taken."""


@family(
    "A StatefulSet is updated on delete only: a new image is applied, and nothing happens, so nobody sees that it ends"
    " at its start. An upgrade empties one node after another later: the pod is made anew and does not come up.",
    joined=13,
)
async def update_on_delete(lab: Lab) -> AsyncIterator[None]:
    """As the Kubernetes project tells of its Boskos, which lends what tests run on (March 2019, test-infra 11955)."""
    namespace, name, caller = lab.rng.choice(
        (("platform", "lender", "builds"), ("media", "leases", "encoder"), ("search", "shard-keeper", "collector"))
    )
    why = lab.rng.choice(("failed to parse resources: unknown field", "nil pointer dereference"))

    def check(container: Container) -> Problem | None:
        return Problem("crash", f"panic: {why}") if container.tag.startswith("2.") else None

    nodes = spare(lab, 3)
    for node in nodes:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "workers"}}})
    keep = App("", check=check)
    await lab.app(namespace, name, like=keep, kind="StatefulSet", replicas=1, nodeSelector={"pool": "workers"})
    waits = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    await lab.edit("admin", "StatefulSet", namespace, name, waits)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)))
    lab.alert_lacking(namespace, caller)
    summary = f"{namespace}/{name} has not had its replicas for a while"
    holds = lambda: lacking(lab.world, namespace, name)  # noqa: E731
    lab.alert("KubeStatefulSetReplicasMismatch", holds, summary, 10, namespace=namespace, statefulset=name)
    yield
    template = lab.world["StatefulSet"][namespace, name]["spec"]["template"]
    container = {**template["spec"]["containers"][0], "image": f"{keep.image}:2.0.0"}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}

    async def upgrade() -> None:
        """One node after another; it happens that the pod's own is the last one."""
        [pod] = pods(lab.world, namespace, name)
        home = pod["spec"]["nodeName"]
        by = lab.rng.choice(("alice", "bob"))
        await lab.pause(lab.rng.uniform(6, 14))
        for node in sorted(nodes, key=lambda node: node == home):
            await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": True}})
            await drain(lab, by, node)
            await lab.kubelets.update(node, "v1.36.2")
            await lab.pause(JOIN_SECONDS)
            await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": None}})

    await lab.culprit(lab.rng.choice(("ci", "carol")), "update", "StatefulSet", namespace, name, body)
    lab.start(upgrade())
