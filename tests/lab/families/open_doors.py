"""What was told of a door to the world, and of many scripts at once."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import LATE, App, Container, Problem, Process, millicores
from tests.lab.families.stories import Flaky
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import NODES, Lab
from tests.lab.network import DNS, backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

INTERNAL = "service.beta.kubernetes.io/aws-load-balancer-internal"
MINED_SHARE = 0.4
"""Of the probes that are late where a miner has all that nobody else uses."""
QUERIES_PER_MILLICORE, USUAL_QUERIES, SCRIPT_QUERIES = 2.0, 120.0, 12.0
"""That a server of the DNS answers in a second; that all the rest asks, and that one script asks."""
SCRIPTS = 40


@family(
    "The Service of a dashboard that shows all containers, and has an agent on every node, is applied without the mark"
    " by which its load balancer was for the inside only: strangers find it and start miners through the agents.",
    joined=12,
)
async def open_dashboard(lab: Lab) -> AsyncIterator[None]:
    """As JW Player tells of 2018."""
    namespace, name, agent = "monitoring", "scope-app", "scope-agent"
    flaky, mined = Flaky(lab.kubelets.rng), set[str]()

    def is_open() -> bool:
        return any(not host.startswith("internal-") for host in _balanced(lab, namespace, name))

    async def scan() -> None:
        """As those do who look at every address there is, all day; what they can use, they use."""
        await lab.until(is_open)
        await lab.pause(lab.rng.uniform(8, 14))
        for node in lab.rng.sample(NODES, len(NODES)):
            there = [pod for pod in backends(lab.world, namespace, agent) if pod["spec"]["nodeName"] == node]
            if there and is_open():
                mined.add(node)
            await lab.pause(lab.rng.uniform(0.5, 2))

    def check(container: Container) -> Problem | None:
        share = MINED_SHARE if container.pod["spec"].get("nodeName") in mined else 0.0
        return flaky.probe(container, share, LATE)

    rights = ("", "services", "list"), ("", "services/status", "patch"), ("", "events", "create")
    await lab.controller("kube-system", "cloud-controller-manager", every(1, balance), *rights, replicas=1)
    await lab.app(namespace, name, replicas=1)
    await lab.app(namespace, agent, kind="DaemonSet", hostPID=True)
    public = {"metadata": {"annotations": {INTERNAL: "true"}}, "spec": {"type": "LoadBalancer"}}
    await lab.edit("admin", "Service", namespace, name, public)
    for app in lab.apps.values():
        if not app.program:
            app.check = check
    for node in NODES:
        busy = lambda node=node: node in mined  # noqa: E731
        lab.alert("HostHighCpuLoad", busy, f"the processor of {node} is used up", 6, instance=node)
    await lab.until(lambda: _balanced(lab, namespace, name))
    yield
    body = {"metadata": {"annotations": {INTERNAL: None}}}
    await lab.culprit(lab.rng.choice(("ci", "flux", "carol")), "update", "Service", namespace, name, body)
    lab.start(scan())


def _balanced(lab: Lab, namespace: str, name: str) -> list[str]:
    """The names of a Service's load balancer."""
    told = lab.world["Service"][namespace, name]["status"]["loadBalancer"]
    return [one["hostname"] for one in told.get("ingress", ())]


async def balance(process: Process) -> None:
    """As a cloud's controller: each Service that asks for one gets a load balancer, for the inside or for all."""
    listed = await process.api.call("GET", path("Service"))
    for one in [one for one in listed.body.get("items", []) if one["spec"]["type"] == "LoadBalancer"]:
        meta = one["metadata"]
        inside = "internal-" if meta.get("annotations", {}).get(INTERNAL) == "true" else ""
        host = f"{inside}a{meta['uid'].replace('-', '')[:31]}.eu-west-1.elb.amazonaws.com"
        if one["status"]["loadBalancer"] != {"ingress": [{"hostname": host}]}:
            await _say(process, one, "EnsuringLoadBalancer", "Ensuring load balancer")
            status = {"status": {"loadBalancer": {"ingress": [{"hostname": host}]}}}
            await process.api.call("PATCH", f"{path('Service', meta['namespace'], meta['name'])}/status", status)
            await _say(process, one, "EnsuredLoadBalancer", "Ensured load balancer")


async def _say(process: Process, about: Json, reason: str, message: str) -> None:
    """An event of the controller of Services. What is listed does not say its kind."""
    await tell(process, {"kind": "Service", **about}, "Normal", reason, message, by="service-controller")


@family(
    "Somebody starts a Job of many scripts at once, each of which asks for names all the time: the servers of the"
    " DNS, which have a limit on their processor's time, are throttled, and names are not resolved for anybody.",
    joined=12,
)
async def many_scripts(lab: Lab) -> AsyncIterator[None]:
    """As Civis Analytics tells of its large clusters, of which the throttled DNS is a part."""
    namespace, name = lab.rng.choice((("search", "rescore"), ("media", "recount"), ("payments", "resample")))
    image = f"registry.corp.example/{namespace}/{name}"
    flaky = Flaky(lab.kubelets.rng)

    def check(container: Container) -> Problem | None:
        """What is asked at a time goes to those that are ready; who is not is asked nothing."""
        ready = [pod["metadata"]["name"] for pod in backends(lab.world, *DNS)]
        if container.pod["metadata"]["name"] not in ready:
            return None
        scripts = [
            pod
            for pod in lab.world["Pod"].values()
            if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == name
            and pod.get("status", {}).get("phase") == "Running"
        ]
        asked = (USUAL_QUERIES + SCRIPT_QUERIES * len(scripts)) / len(ready)
        answered = QUERIES_PER_MILLICORE * millicores(container.spec["resources"]["limits"]["cpu"])
        return flaky.probe(container, max(0.0, 1 - answered / asked), LATE)

    containers = lab.world["Deployment"][DNS]["spec"]["template"]["spec"]["containers"]
    small = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "256Mi"}}
    body: Json = {"spec": {"template": {"spec": {"containers": [{**containers[0], "resources": small}]}}}}
    await lab.edit("admin", "Deployment", *DNS, body)
    await lab.until(lambda: all("cpu" in pod["spec"]["containers"][0]["resources"]["limits"] for pod in _servers(lab)))
    lab.apps["registry.corp.example/kube-system/kube-dns"].check = check
    lab.apps[image] = App(image, ends_after=70)
    for place in CALLERS:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    template = objects.deployment(namespace, name, f"{image}:1.0.0", restartPolicy="Never")["spec"]["template"]
    del template["spec"]["containers"][0]["readinessProbe"]
    spec: Json = {"template": template, "parallelism": SCRIPTS, "completions": SCRIPTS}
    job = {"kind": "Job", "metadata": {"namespace": namespace, "name": f"{name}-all"}, "spec": spec}
    await lab.culprit(lab.rng.choice(("alice", "bob", "carol")), "create", "Job", namespace, f"{name}-all", job)


def _servers(lab: Lab) -> list[Json]:
    return backends(lab.world, *DNS)
