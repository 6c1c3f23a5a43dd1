"""What goes over all nodes: an update of kubelets that somebody else does, and one of an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.alerts import pods, restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

UNTIMED, TIMED = "v1.34.3", "v1.35.2"
"""Kubelets that let a command of a probe take as long as it does, and those that give it its time."""
PROBE_TAKES, UNTIL_FAILED = 1.4, 6.0
"""Seconds that a command of a probe takes, and until a probe has failed often enough."""
MEMBERS, QUORUM, COORDINATED = 3, 2, 0.6
"""Of what coordinates an app, and the share of the app's requests that need it."""
AGENT_STARTS, NEED_CREDENTIALS = 13.0, 0.5
"""Seconds that an agent takes for its start, and the share of requests for which an app needs what it gives out."""


@family(
    "The provider updates the kubelets of a managed pool by itself, one node after the other. The old ones let the"
    " command of a probe take as long as it does, whatever its timeout; the new ones give it the second that nobody"
    " ever wrote down. The members of a store whose command takes longer are killed again and again.",
    culprit=False,
    joined=38,
)
async def exec_probe(lab: Lab) -> AsyncIterator[None]:
    """As told of charts for Pulsar and Tableau, whose commands got their timeout with 1.20 (pulsar-helm-chart 179)."""
    namespace, name, front = lab.rng.choice(
        (
            ("media", "live-events", "live-page"),
            ("shop", "reservations", "basket-page"),
            ("search", "crawls", "console"),
        )
    )
    store, command = f"{name}-zookeeper", ["bash", "-c", "bin/zookeeper-ruok.sh"]

    def probed(container: Container) -> Problem | None:
        probe, node = container.spec["livenessProbe"], container.pod["spec"]["nodeName"]
        seconds = probe.get("timeoutSeconds", 1)
        if _kubelet(lab, node) != TIMED or seconds >= PROBE_TAKES or container.seconds < UNTIL_FAILED:
            return None
        said = f'command timed out: "{" ".join(probe["exec"]["command"])}" timed out after {seconds}s'
        return Problem("killed", f"probe failed: {said}")

    def uncoordinated(_: Container) -> float:
        """Without most of the members nobody may write."""
        there = sum(map(is_ready, pods(lab.world, namespace, store)))
        return COORDINATED if there < QUORUM else 0.0

    for node in NODES:
        await lab.kubelets.update(node, UNTIMED)
    alive: Json = {"exec": {"command": command}, "periodSeconds": 2, "failureThreshold": 3}
    like = App("", serves=False, check=probed)
    await lab.app(
        namespace,
        store,
        like=like,
        kind="StatefulSet",
        replicas=MEMBERS,
        tag="3.9.2",
        liveness=alive,
        topologySpreadConstraints=[_spread(store)],
    )
    of_zookeeper = {"spec": {"ports": [{"port": 2181, "targetPort": 8080}]}}
    await lab.edit("admin", "Service", namespace, store, of_zookeeper)
    like = App("", upstreams=((namespace, store),), failing=uncoordinated, fails_with=lambda _: "503")
    env = [{"name": "ZOOKEEPER_CONNECT", "value": f"{store}.{namespace}.svc:2181"}]
    await lab.app(namespace, name, like=like, replicas=3, tag="4.0.1", env=env)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="6.2.0")
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, namespace, store))) == MEMBERS)
    await lab.until(lambda: backends(lab.world, namespace, name) and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    restarting = lab.rate(lambda: restarts(lab.world, namespace, store), 0.12, seconds=20)
    summary = f"pods of {namespace}/{store} are restarting"
    lab.alert("KubePodRestarting", restarting, summary, 3, namespace=namespace, statefulset=store)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def update() -> None:
        for node in lab.rng.sample(NODES, len(NODES)):
            await lab.pause(lab.rng.uniform(3, 6))
            await lab.kubelets.update(node, TIMED)

    yield
    lab.start(update())


def _spread(name: str) -> Json:
    """No two pods of an app are on one node."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }


def _kubelet(lab: Lab, node: str) -> str:
    """Of which version a node's kubelet is."""
    return str(lab.world["Node"]["", node]["status"]["nodeInfo"]["kubeletVersion"])


@family(
    "An agent on every node gives out the cloud's credentials, and its updates take an hour, as one node waits for the"
    " other. Somebody lets all be updated at once. With the next, harmless release there is no agent on any node until"
    " all have started, and whoever needs credentials meanwhile fails.",
    joined=38,
)
async def agents_at_once(lab: Lab) -> AsyncIterator[None]:
    """As told of why a chart's agents should be updated faster (jtblin/kube2iam 291)."""
    agent, old, new = lab.rng.choice(("iam-agent", "workload-credentials", "role-proxy")), "0.11.1", "0.11.2"
    callers = lab.rng.sample(
        (("media", "originals"), ("payments", "statements"), ("search", "snapshots"), ("shop", "exports")), 2
    )
    by, then = lab.rng.choice(("bob", "flux", "carol")), lab.rng.choice(("ci", "argocd"))
    place = ("kube-system", agent)

    def without(container: Container) -> float:
        """It asks the agent of its own node."""
        node = container.pod["spec"]["nodeName"]
        found = (pod for pod in pods(lab.world, *place) if pod["spec"].get("nodeName") == node)
        is_given = any(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in found)
        return 0.0 if is_given else NEED_CREDENTIALS

    like = App("", serves=False, start_seconds=AGENT_STARTS)
    await lab.app(*place, like=like, kind="DaemonSet", tag=old)
    for namespace, name in callers:
        like = App("", abroad=("objects.cloud.example",), asked=lambda: 30.0, failing=without)
        await lab.app(namespace, name, like=like, replicas=4, tag="1.15.0", topologySpreadConstraints=[_spread(name)])
    await rolled(lab, *place, old)
    await lab.until(lambda: all(len(backends(lab.world, *one)) == 4 for one in callers))
    for namespace, name in callers:
        await publish(lab, namespace, name)
        lab.alert_errors(namespace, name, 0.2, seconds=6)
        lab.alert_ingress_errors(namespace, namespace, 0.2, seconds=6)
    await lab.until(lab.is_well)
    yield
    at_once = {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}}
    await lab.culprit(by, "update", "DaemonSet", *place, at_once)
    await lab.pause(lab.rng.uniform(9, 18))
    [container] = lab.world["DaemonSet"][place]["spec"]["template"]["spec"]["containers"]
    image = f"{container['image'].rsplit(':', 1)[0]}:{new}"
    body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
    await lab.edit(then, "DaemonSet", *place, body)
