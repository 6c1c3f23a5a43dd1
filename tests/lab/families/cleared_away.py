"""What was told of what another team's step cleared away: who admits all pods, and the nodes of the cluster itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.families.loops import LOOSE
from tests.lab.lab import LATER, NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, leading
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

GATEKEEPER = ("kyverno", "kyverno-admission-controller")
SCANNER = ("security", "runtime-scanner")
PODS_A_SCANNER = 30
"""For how many pods of the cluster there is one more of those that scan them."""
SEGMENT_SECONDS = 18.0
"""What it takes to encode one."""
USUAL, LARGE = 10, 64
"""How many segments an encoding works on at once, most days and this time."""


@family(
    "The team of security gives its scanner the priority of what no node can do without: as an encoding that is larger"
    " than most has it scale, the only pod that admits pods is preempted for it, and none is admitted any more, its own"
    " neither.",
    joined=18,
)
async def gatekeeper_preempted(lab: Lab) -> AsyncIterator[None]:
    """As "We all fall down" retells of a streaming company (2025); what the scanner scales by is not told there."""
    namespace, name = lab.rng.choice((("media", "encode"), ("media", "transcode"), ("media", "packager")))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, ends_after=SEGMENT_SECONDS)

    async def admit(request: Json) -> str | None:
        if not backends(lab.world, *GATEKEEPER):
            raise ConnectionError("no pod is behind it")
        return None

    async def scale(process: Process) -> None:
        """As an autoscaler that is proportional to the cluster."""
        listed = await process.api.call("GET", path("Pod"))
        if listed.ok:
            there = sum(one["status"].get("phase") in ("Pending", "Running") for one in listed.body["items"])
            body = {"spec": {"replicas": max(2, -(-there // PODS_A_SCANNER))}}
            await process.api.call("PATCH", path("Deployment", *SCANNER), body)

    def encoding(number: int, at_once: int, segments: int) -> Json:
        made = objects.deployment(namespace, name, f"{image}:2.4.0", restartPolicy="Never")
        meta = {"namespace": namespace, "name": f"{name}-{number}"}
        spec = {"parallelism": at_once, "completions": segments, "template": made["spec"]["template"]}
        return {"kind": "Job", "metadata": meta, "spec": spec}

    await lab.kubelets.register(LATER, cpu="4")
    lab.outside.dead_nodes.discard(LATER)
    taint = {"key": "dedicated", "value": "system", "effect": "NoSchedule"}
    await lab.edit(
        "admin", "Node", "", LATER, {"metadata": {"labels": {"pool": "system"}}, "spec": {"taints": [taint]}}
    )
    await _place(lab, *GATEKEEPER, replicas=1, cpu="500m")
    await _place(lab, *SCANNER, replicas=2, cpu="900m")
    rules = ("", "pods", "list"), ("apps", "deployments", "get,patch")
    await lab.controller("security", "scanner-autoscaler", every(2, scale), *rules, replicas=1)
    await lab.until(lambda: backends(lab.world, *GATEKEEPER))
    webhook = Webhook(admit, service=GATEKEEPER)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.apply(configuration("kyverno-resource-validating-webhook-cfg", webhook))
    number = lab.rng.randrange(2000, 9000)
    await lab.apply(encoding(number, USUAL, USUAL))

    def stands() -> bool:
        """There is more to do, and far fewer are at it than may be."""
        status = lab.world["Job"].get((namespace, f"{name}-{number + 1}"), {}).get("status")
        return status is not None and "completionTime" not in status and status.get("active", 0) < LARGE / 2

    summary = f"{namespace}/{name}-{number + 1} has far fewer pods than it may have for a while"
    lab.alert("KubeJobStalled", stands, summary, 8, namespace=namespace, job_name=f"{name}-{number + 1}")
    yield
    body = {"spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}}
    await lab.culprit(lab.rng.choice(("argocd", "carol", "ci")), "update", "Deployment", *SCANNER, body)

    async def submit() -> None:
        await lab.pause(lab.rng.uniform(10, 16))
        made = encoding(number + 1, LARGE, lab.rng.randrange(300, 500))
        await lab.who["ci"].must("POST", path("Job", namespace), made)

    lab.start(submit())


async def _place(lab: Lab, namespace: str, name: str, *, replicas: int, cpu: str) -> None:
    """An app on the nodes that are for what all rest on, which asks for so much of their processors."""
    there: Json = {"nodeSelector": {"pool": "system"}, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    await lab.namespace(namespace)
    await lab.app(namespace, name, like=App("", serves=False), replicas=replicas, **there)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": one_by_one}})
    resources = {"requests": {"cpu": cpu, "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    await lab.roll("admin", namespace, name, "1.0.0", resources=resources)


@family(
    "A namespace without a single pod is deleted in a clean-up: what manages clusters keeps its records of this one's"
    " nodes there, and takes each node out of the cluster as its record goes.",
    joined=18,
)
async def node_records(lab: Lab) -> AsyncIterator[None]:
    """As Quick Think of Something Witty tells of the namespace ``local`` (postmortem of its Kubernetes outage)."""
    group, namespace, mark = "management.cattle.io", "local", "controller.cattle.io/namespaced-lifecycle"
    machine = await lab.custom("Machine", group, LOOSE)

    async def follow(process: Process) -> None:
        """As Rancher: a record that is deleted means that its node is to leave."""
        listed = await process.api.call("GET", machine.path(namespace))
        for one in listed.body.get("items", []):
            if "deletionTimestamp" in one["metadata"]:
                gone = await process.api.call("DELETE", path("Node", None, one["spec"]["nodeName"]))
                if gone.status in (200, 404):
                    where = machine.path(namespace, one["metadata"]["name"])
                    await process.api.call("PATCH", where, {"metadata": {"finalizers": None}})

    await lab.namespace("cattle-system")
    for empty in (namespace, "playground", "try-out"):
        await lab.namespace(empty)
    await lab.served(machine)
    for node in NODES:
        name = f"machine-{lab.rng.getrandbits(20):05x}"
        meta: Json = {"namespace": namespace, "name": name, "finalizers": [mark]}
        record = {"apiVersion": f"{group}/v1", "kind": "Machine", "metadata": meta, "spec": {"nodeName": node}}
        await lab.who["admin"].must("POST", machine.path(namespace), record)
    rules = (group, "machines", "*"), ("", "nodes", "*"), ("coordination.k8s.io", "leases", "*")
    program = both(every(1, follow), informer(machine.path()), leading("cattle-system", "rancher"))
    await lab.controller("cattle-system", "rancher", program, *rules, replicas=1)

    def lacks_nodes() -> bool:
        return len(lab.world["Node"]) < len(NODES)

    lab.alert("KubeNodesMissing", lacks_nodes, "nodes of the cluster are gone", 10, job="kube-state-metrics")
    for place in (("shop", "frontend"), ("payments", "checkout"), ("search", "query")):
        lab.alert_errors(*place)
    yield
    by = lab.rng.choice(("alice", "bob", "carol"))
    for unused in lab.rng.sample(("playground", "try-out"), lab.rng.choice((1, 2))):
        await lab.who[by].must("DELETE", path("Namespace", None, unused))
        await lab.pause(lab.rng.uniform(1, 3))
    await lab.culprit(by, "delete", "Namespace", "", namespace)
