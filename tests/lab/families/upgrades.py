"""What a new version, or a new setting of a rollout, does to those that rest on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pending, pods, restarts
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.nodes import provide, stateful
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import both, every, informer, lagging, leading
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

CALLERS = (("shop", "frontend"), ("shop", "cart"), ("payments", "checkout"), ("search", "query"))


@family(
    "The operator of the nodes rolls a new version of the network agent out: it takes the routes that it finds for"
    " somebody else's and removes them, and one node after another reaches no other.",
    joined=4,
)
async def network_agent(lab: Lab) -> AsyncIterator[None]:
    async def routes(process: Process) -> None:
        node = process.see().pod["spec"]["nodeName"]
        if process.tag.startswith("1."):
            lab.outside.cut_off.discard(node)
        else:
            await lagging(process)
            lab.outside.cut_off.add(node)
        await informer(path("Node"))(process)

    app = await lab.controller("kube-system", "network-agent", routes, ("", "nodes", "list,watch"), kind="DaemonSet")
    slowly = {"spec": {"minReadySeconds": 4}}
    await lab.edit("admin", "DaemonSet", "kube-system", "network-agent", slowly)
    rights = ("apps", "daemonsets", "get,list,watch,patch"), ("coordination.k8s.io", "leases", "*")
    program = both(informer(path("DaemonSet")), leading("platform", "node-operator"))
    await lab.controller("platform", "node-operator", program, *rights, replicas=1)
    await lab.robot("node-operator", "platform", "node-operator", "node-operator/1.0.0")
    namespace, name = lab.rng.choice(CALLERS)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name)
    yield
    image = f"{app.image}:2.0.0"
    made = objects.deployment("kube-system", "network-agent", image, account="network-agent", kind="DaemonSet")
    body = {"spec": {"template": {"spec": {"containers": made["spec"]["template"]["spec"]["containers"]}}}}
    await lab.culprit("node-operator", "update", "DaemonSet", "kube-system", "network-agent", body)


@family(
    "The new version of a storage provisioner reads a kind that its role does not name: it makes no volume any more,"
    " and the next pod with a claim waits.",
    joined=4,
)
async def provisioner_rights(lab: Lab) -> AsyncIterator[None]:
    async def program(process: Process) -> None:
        """From version 2 on it wants to know the attributes of volumes first."""
        if not process.tag.startswith("1."):
            await lagging(process)
            found = await process.api.call("GET", "/apis/storage.k8s.io/v1/volumeattributesclasses")
            if not found.ok:
                return
        await provide(process)

    namespace, name = lab.rng.choice((("search", "vectors"), ("media", "originals"), ("payments", "journal")))
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "storageclasses", "list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, program), *rules, replicas=1)
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    meta = {"name": "standard", "annotations": mark}
    await lab.apply({"kind": "StorageClass", "metadata": meta, "provisioner": "disk.csi.example"})
    holds = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodPending", holds, f"a pod of {namespace} has had no node for a while", 6, namespace=namespace)
    await stateful(lab, namespace, name)
    yield
    await lab.roll("ci", "kube-system", "csi-provisioner", "2.0.0", culprit=True)
    await lab.pause(10)
    await lab.edit("argocd", "StatefulSet", namespace, name, {"spec": {"replicas": 3}})


@family(
    "A sidecar injector's new version adds a proxy that never lets go of its memory: what is rolled out afterwards is"
    " well at first, until the limit of the proxy is reached.",
    joined=4,
)
async def sidecar_memory(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("media", "gallery"), ("search", "facets"), ("shop", "wishlist")))
    proxy, label = "registry.corp.example/platform/mesh-proxy", "mesh.corp.example/inject"

    def memory(container: Container) -> Problem | None:
        needed = 60 + (6 * container.seconds if container.tag.startswith("2.") else 0)
        return Problem("oom", f"needs {needed:.0f}Mi, may have 128Mi") if needed > 128 else None

    def version() -> str:
        """Of the newest injector that is ready; empty while there is none."""
        ready = [pod for pod in pods(lab.world, "platform", "mesh-injector") if is_ready(pod)]
        found = sorted(ready, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return str(found[-1]["spec"]["containers"][0]["image"]).rsplit(":", 1)[1] if found else ""

    async def inject(request: Json) -> list[Json] | None:
        if not (tag := version()):
            raise ConnectionError("no pod is behind it")
        resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
        one = {"name": "mesh-proxy", "image": f"{proxy}:{tag}", "resources": resources}
        return [{"op": "add", "path": "/spec/containers/-", "value": one}]

    lab.apps[proxy] = App(proxy, check=memory)
    await lab.app("platform", "mesh-injector")
    await lab.until(version)
    webhook = Webhook(inject, service=("platform", "mesh-injector"))
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration("mesh-injector", webhook, only=label)
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration"})
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {label: "enabled"}}})
    await lab.pause(1)  # the API server sees the label before it asks by it
    await lab.app(namespace, name, replicas=3)
    holds = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    lab.alert("KubePodRestarting", holds, f"pods of {name} restart", 2, namespace=namespace, deployment=name)
    yield
    await lab.roll("ci", "platform", "mesh-injector", "2.0.0", culprit=True)
    await lab.until(lambda: version().startswith("2."))
    await lab.pause(5)
    await lab.roll("argocd", namespace, name, "1.0.1")


@family(
    "A liveness probe may take one second where it might take five: all is well until the evening's traffic, as on"
    " every day, makes answers slow, and the kubelets kill what is only busy.",
    joined=4,
)
async def liveness_timeout(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("shop", "prices"), ("search", "autocomplete"), ("media", "resizer")))
    app = App("", capacity=50, load=40, answer_seconds=0.4)
    probe: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "timeoutSeconds": 5}
    await lab.app(namespace, name, like=app, replicas=3, liveness=probe)
    lab.alert_lacking(namespace, name)
    yield
    strict = {**probe, "periodSeconds": 5, "timeoutSeconds": 1}
    await lab.roll("argocd", namespace, name, "1.0.0", culprit=True, livenessProbe=strict)
    await lab.pause(10)
    while app.load < 110:
        app.load += 5
        await lab.pause(0.5)
