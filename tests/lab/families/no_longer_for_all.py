"""Room that was there for all: machines that are one team's from now on, and an agent that goes before everybody."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.scenario import family

Place = tuple[str, str, str, str]


async def _large(lab: Lab, place: Place, tag: str, replicas: int, requests: Json, stands: float) -> None:
    """An app of large pods, each of which stands so many requests a second, its page, and another one beside it."""
    namespace, name, front, other = place
    asks = 0.94 * stands * replicas

    def failing(_: Container) -> float:
        return max(0.0, 1 - stands * len(backends(lab.world, namespace, name)) / asks)

    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, asked=lambda: asks, failing=failing, fails_with=lambda _: "503")
    made = objects.deployment(namespace, name, f"{image}:{tag}", replicas=replicas)
    limits = {"memory": requests.get("memory", "2Gi")}
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": limits}
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, tag)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="2.4.1", config=other)
    await rolled(lab, namespace, other, "2.4.1")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, name)
    summary = f"a pod of {namespace} has had no node for a while"
    lab.alert("KubePodNotReady", lambda: pending(lab.world, namespace), summary, 12, namespace=namespace)
    lab.alert_lacking(namespace, name, seconds=12)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == replicas)


# -- machines

DEDICATED = (
    ("dedicated", "gpu-team"),
    ("workload", "batch"),
    ("team", "data-science"),
    ("reserved-for", "benchmarks"),
)


@family(
    "Some of the nodes are to be for one team, and a script of theirs puts a taint on each. What else ran there is"
    " evicted, or finds no room there with its next release: what is left is too little for the large pods of an app.",
    joined=95,
)
async def dedicated_from_today(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had typed NoExecute, or one label selector too few."""
    place = lab.rng.choice(
        (
            ("shop", "assortment", "assortment-page", "assortment-feed"),
            ("payments", "risk-engine", "risk-form", "risk-export"),
            ("media", "transcripts", "transcript-page", "transcript-sync"),
            ("search", "vectors-api", "similar-page", "similar-feed"),
        )
    )
    namespace, name, front, other = place
    minor, by = lab.rng.randrange(2, 30), lab.rng.choice((*TEAMS, "ci"))
    key, value = lab.rng.choice(DEDICATED)
    effect = "NoExecute" if lab.rng.random() < 0.6 else "NoSchedule"
    machines = spare(lab, 3)
    await _large(lab, place, f"5.{minor}.0", 8, {"cpu": "1", "memory": "26Gi"}, 22.0)

    async def afterwards() -> None:
        if effect == "NoSchedule":
            await lab.pause(lab.rng.uniform(3, 8))
            await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"5.{minor}.1")
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(4, 9))
    for node in sorted(machines):
        taint = {"key": key, "value": value, "effect": effect}
        await lab.culprit(by, "update", "Node", "", node, {"spec": {"taints": [taint]}})
        await lab.pause(lab.rng.uniform(0.3, 1.0))
    lab.start(afterwards())


# -- an agent

AGENTS = (
    ("monitoring", "datadog-agent", "7.70.0", "7.71.1"),
    ("monitoring", "otel-collector-agent", "0.135.0", "0.136.0"),
    ("platform", "falco", "0.41.3", "0.42.0"),
    ("monitoring", "vector-agent", "0.49.0", "0.50.0"),
)
RANK = "node-agents"
"""The class of those that go before all others on a node."""


def _agent(namespace: str, name: str, tag: str, cpu: str, memory: str) -> Json:
    image = f"registry.corp.example/{namespace}/{name}:{tag}"
    made = objects.deployment(namespace, name, image, kind="DaemonSet", priorityClassName=RANK)
    [container] = made["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    return made


@family(
    "An agent, which is to be on every node and goes before all others, comes with a larger request, or anew. The nodes"
    " are as full as they should be: pods of an app make room for it, and find none elsewhere.",
    joined=95,
)
async def in_front_of_all(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose agent had a request of some processors for the worst of days."""
    place = lab.rng.choice(
        (
            ("shop", "price-engine", "price-page", "price-feed"),
            ("payments", "fx-quotes", "fx-page", "fx-report"),
            ("media", "image-resizer", "gallery-page", "gallery-cleaner"),
            ("search", "ranking-api", "results-page", "results-log"),
        )
    )
    namespace, _, front, other = place
    home, agent, old, new = lab.rng.choice(AGENTS)
    by, minor, is_new = lab.rng.choice(("flux", "argocd", "ci")), lab.rng.randrange(2, 30), lab.rng.random() < 0.4
    cpu, image = lab.rng.choice(("2", "2500m", "3")), f"registry.corp.example/{home}/{agent}"
    meta = {"name": RANK}
    await lab.apply({"kind": "PriorityClass", "metadata": meta, "value": 1000000, "description": "agents of nodes"})
    lab.apps[image] = App(image, serves=False)
    if not is_new:
        await lab.apply(_agent(home, agent, old, "100m", "256Mi"))
        await rolled(lab, home, agent, old)
    await _large(lab, place, f"2.{minor}.3", 2 * len(NODES), {"cpu": "7", "memory": "2Gi"}, 16.0)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "30s"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "2.4.2")
    await lab.pause(lab.rng.uniform(5, 9))
    wanted = _agent(home, agent, new if is_new or lab.rng.random() < 0.5 else old, cpu, "1Gi")
    if is_new:
        await lab.culprit(by, "create", "DaemonSet", home, agent, wanted)
    else:
        body = {"spec": {"template": {"spec": {"containers": wanted["spec"]["template"]["spec"]["containers"]}}}}
        await lab.culprit(by, "update", "DaemonSet", home, agent, body)
    lab.start(afterwards())
