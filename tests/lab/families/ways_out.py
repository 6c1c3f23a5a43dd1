"""Ways out of the cluster: an address that answers do not come back to, a name that nobody gets to ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, path
from tests.lab.apps import LATE, App, Container, Problem
from tests.lab.families.stories import Flaky
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.programs import informer
from tests.lab.scenario import family

BEHIND = 0.55
"""The share of the calls whose answers come to another interface of the node than the one that knows of them."""
START_SECONDS = 3.0
"""For which a program is busy with its start."""


@family(
    "The network of the pods is changed for that of the cloud, as it comes: it gives calls that leave the cluster the"
    " address of their node, and the answers to many are dropped on their way back.",
    joined=11,
)
async def source_nat(lab: Lab) -> AsyncIterator[None]:
    """As MindTickle tells of its move, and of packets that were missing."""
    namespace, name, host = lab.rng.choice(
        (
            ("shop", "orders", "orders-db.ec2.corp.example"),
            ("search", "sync", "solr.ec2.corp.example"),
            ("media", "lessons", "mongo.ec2.corp.example"),
        )
    )
    flaky = Flaky(lab.kubelets.rng)

    def leaves_them(agent: Json) -> bool:
        env = agent["spec"]["containers"][0].get("env", ())
        return any(one["name"] == "AWS_VPC_K8S_CNI_EXTERNALSNAT" and one.get("value") == "true" for one in env)

    def dropped(node: str) -> float:
        """Whoever runs the network there says whether it leaves the addresses to what is outside."""
        for agent in pods(lab.world, "kube-system", "pod-network"):
            if agent["spec"].get("nodeName") == node and is_ready(agent):
                return BEHIND if images(agent)[0].startswith(cloud) and not leaves_them(agent) else 0.0
        return 0.0

    def failing() -> float:
        """The share of all calls of the app to out there."""
        nodes = [str(pod["spec"].get("nodeName")) for pod in pods(lab.world, namespace, name)]
        return sum(map(dropped, nodes)) / max(len(nodes), 1)

    def check(container: Container) -> Problem | None:
        return flaky.probe(container, dropped(container.pod["spec"]["nodeName"]), LATE)

    program, rules = informer(path("Node")), ("", "nodes", "list,watch")
    await lab.controller("kube-system", "pod-network", program, rules, kind="DaemonSet", tag="2.6.0")
    cloud = "registry.corp.example/kube-system/amazon-k8s-cni"
    lab.apps[cloud] = App(cloud, program=program)
    slowly = {"spec": {"minReadySeconds": 2}}
    await lab.edit("admin", "DaemonSet", "kube-system", "pod-network", slowly)
    fails = lambda container: dropped(container.pod["spec"]["nodeName"])  # noqa: E731
    await lab.app(namespace, name, like=App("", abroad=(host,), check=check, failing=fails), replicas=4)
    summary = f"more than a tenth of the calls of {namespace}/{name} to {host} fail"
    lab.alert("HTTPErrorRateHigh", lambda: failing() > 0.1, summary, 6, namespace=namespace, deployment=name)
    yield
    made = objects.deployment("kube-system", "pod-network", f"{cloud}:v1.5.5", account="pod-network", kind="DaemonSet")
    body = {"spec": {"template": {"spec": {"containers": made["spec"]["template"]["spec"]["containers"]}}}}
    by = lab.rng.choice(("alice", "bob", "flux"))
    await lab.culprit(by, "update", "DaemonSet", "kube-system", "pod-network", body)


@family(
    "The resolver of the cloud fails on names of its own domain, which a small C library asks for first and then gives"
    " up: whatever is started with that one, as by a harmless rollout, does not find its cache and ends.",
    culprit=False,
    joined=11,
)
async def search_list(lab: Lab) -> AsyncIterator[None]:
    """As Toyota Connected tells of a perfect storm."""
    domain, host = "internal.cloud.example", "sessions.redis.example"
    apps = lab.rng.sample(
        [("shop", "accounts"), ("payments", "vouchers"), ("search", "profiles"), ("media", "sessions")], 2
    )

    def check(container: Container) -> Problem | None:
        """It asks as it starts. Who has another library goes through the rest of the list."""
        if container.seconds > START_SECONDS or domain not in lab.outside.broken:
            return None
        failed = f"java.net.UnknownHostException: failed to resolve '{host}' after 4 queries"
        return Problem("crash", failed) if container.tag.endswith("-alpine") else None

    async def release() -> None:
        for namespace, name in apps:
            await asyncio.sleep(lab.rng.uniform(4, 7))
            await lab.roll(lab.rng.choice(("argocd", "flux")), namespace, name, "1.0.1-alpine")

    for namespace, name in apps:
        await lab.app(namespace, name, like=App("", abroad=(host,), check=check), replicas=3, tag="1.0.0-alpine")
        holds = lambda namespace=namespace, name=name: restarts(lab.world, namespace, name) >= 2  # noqa: E731
        lab.alert("KubePodRestarting", holds, f"pods of {name} restart", 4, namespace=namespace, deployment=name)
    yield
    lab.outside.broken[domain] = "SERVFAIL"
    lab.start(release())
