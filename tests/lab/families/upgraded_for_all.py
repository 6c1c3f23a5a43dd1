"""What everybody rests on is upgraded or given less: a controller, what adds a container to each pod, the network."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, writing
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

FILLS_SECONDS = 5.0
"""For which a controller reads all objects of its kinds after its start, before it does anything."""
STALE_SECONDS, RECONCILED = 20.0, "prometheus_operator_reconcile_operations_total"


@family(
    "A controller that looks after objects of all teams is rolled out with a lower limit of its memory, by what it had"
    " used on a small cluster. It reads all of them into its memory at its start, is killed before it is through, and"
    " starts again.",
    joined=90,
)
async def smaller_than_its_cache(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose operator has OOMKilled as its last state, and nothing in its logs."""
    namespace, name, tag, later, counts, about = lab.rng.choice(
        (
            ("platform", "external-secrets", "v0.18.2", "v0.19.0", "externalsecret_sync_calls_total", "Secret"),
            ("monitoring", "prometheus-operator", "v0.84.1", "v0.85.0", RECONCILED, "ConfigMap"),
            ("platform", "vault-secrets-operator", "0.10.0", "1.0.1", "controller_runtime_reconcile_total", "Secret"),
            ("cert-manager", "trust-manager", "v0.18.0", "v0.19.0", "controller_runtime_reconcile_total", "ConfigMap"),
        )
    )
    need, (before, after) = lab.rng.randrange(290, 380), lab.rng.choice((("512Mi", "256Mi"), ("1Gi", "128Mi")))
    by, goes_up = lab.rng.choice(("flux", "ci", "alice", "carol")), lab.rng.random() < 0.5
    done, age = [now()], [0.0]
    status = writing(namespace, f"{name}-status", "synced")

    def check(container: Container) -> Problem | None:
        age[0] = container.seconds
        limit = mebibytes(container.spec["resources"]["limits"]["memory"])
        is_over = container.seconds >= FILLS_SECONDS and limit < need
        return Problem("oom", f"needs {need}Mi, may have {limit:g}Mi") if is_over else None

    def in_memory() -> float:
        return (60 + (need - 60) * min(1.0, age[0] / FILLS_SECONDS)) * 2.0**20

    def stale() -> float:
        return (now() - done[0]).total_seconds()

    async def sync(process: Process) -> None:
        if process.see().seconds > FILLS_SECONDS:
            await status(process)
            done[0] = now()

    rules = ("", "secrets,configmaps", "get,list,watch,create,patch")
    program = both(informer(path(about)), every(3.0, sync))
    app = await lab.controller(namespace, name, program, rules, replicas=1, tag=tag, memory=before)
    app.check = check
    await rolled(lab, namespace, name, tag)
    told = {"namespace": namespace, "service": name}
    lab.measure("process_resident_memory_bytes", in_memory, **told)
    lab.measure(counts, lab.adding_up(lambda: 2.0 if stale() < 5 else 0.0), "counter", **told)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"{namespace}/{name} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    summary = f"{namespace}/{name} has synced nothing for a while"
    lab.alert("ControllerNotSyncing", lambda: stale() > STALE_SECONDS, summary, 3, **told)
    await lab.until(lambda: lab.is_well() and stale() < 5)
    lab.reserve("shop", "catalog")

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": "warn"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), "shop", "catalog", "1.4.2")
    await lab.pause(lab.rng.uniform(4, 10))
    less = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": after}}
    await lab.roll(by, namespace, name, later if goes_up else tag, culprit=True, resources=less)
    lab.start(afterwards())


INJECTOR, PROXY, INJECTED = ("platform", "sidecar-injector"), "registry.corp.example/platform/mesh-proxy", "mesh-inject"


class _Injector:
    """Adds to each new pod the proxy of its own version, as the one of its pods says that is asked."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def review(self, request: Json) -> list[Json] | None:
        there = backends(self._lab.world, *INJECTOR)
        if not there or any(one["name"] == "mesh-proxy" for one in request["object"]["spec"]["containers"]):
            return None
        tag = images(self._lab.kubelets.rng.choice(there))[0].rsplit(":", 1)[1]
        room = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
        proxy = {"name": "mesh-proxy", "image": f"{PROXY}:{tag}", "resources": room}
        return [{"op": "add", "path": "/spec/containers/-", "value": proxy}]


@family(
    "What adds a proxy to each new pod of the mesh is upgraded, and adds that of its new version. It is not in the"
    " company's registry, or does not take the configuration that is there and ends. What runs goes on; the pods of the"
    " next releases do not come up.",
    joined=90,
)
async def injector_upgraded(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked for the fault in a release of two lines."""
    namespace, name, other = lab.rng.choice(
        (
            ("shop", "gift-cards", "gift-page"),
            ("payments", "refund-desk", "refund-page"),
            ("media", "photo-books", "book-page"),
            ("search", "brand-pages", "brand-lists"),
        )
    )
    by, minor, is_missing = lab.rng.choice(("ci", "flux", "bob")), lab.rng.randrange(3, 30), lab.rng.random() < 0.5
    before, after = "1.26.3", "1.27.0"
    unread = 'error: bootstrap config: unknown field "tracing.zipkin" (removed in 1.27)'

    def check(container: Container) -> Problem | None:
        return Problem("crash", unread) if container.tag == after and not is_missing else None

    lab.apps[PROXY] = App(PROXY, serves=False, check=check, memory_mi=40)
    if is_missing:
        lab.outside.missing.add(f"{PROXY}:{after}")
    await lab.app(*INJECTOR, like=App("", serves=False), tag=before)
    await rolled(lab, *INJECTOR, before)
    await lab.until(lambda: len(backends(lab.world, *INJECTOR)) == 2)
    webhook = Webhook(_Injector(lab).review, service=INJECTOR)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {INJECTED: "enabled"}}})
    made = {**configuration(INJECTOR[1], webhook, only=INJECTED), "kind": "MutatingWebhookConfiguration"}
    await lab.apply(made)
    is_added = lambda: all(  # noqa: E731
        len(images(one)) == 2 for place in (name, other) for one in pods(lab.world, namespace, place)
    )
    await lab.pause(2)  # until the API server asks it
    await lab.app(namespace, name, like=App("", asked=lambda: 16.0), replicas=3, tag=f"3.{minor}.0")
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await set_before(lab, namespace, other, name)
    await lab.until(is_added)
    for one in (name, other):
        lab.alert_stuck(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await rolled(lab, *INJECTOR, after)
        await lab.pause(lab.rng.uniform(6, 14))
        await lab.roll("ci", namespace, name, f"3.{minor}.1")
        await lab.pause(lab.rng.uniform(2, 8))
        await change_page(lab, namespace, other)

    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"PAGE_SIZE": "45"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, *INJECTOR, after, culprit=True)
    lab.start(afterwards())


PLUGINS = (
    ("cilium", "v1.17.6", "v1.18.1", "cilium-cni", "unable to connect to Cilium agent: context deadline exceeded"),
    ("calico-node", "v3.29.3", "v3.30.2", "calico", "error getting ClusterInformation: connection is unauthorized"),
    ("kube-flannel", "v0.26.1", "v0.27.0", "flannel", "open /run/flannel/subnet.env: no such file or directory"),
)  # fmt: skip


@family(
    "The network's plugin is upgraded, node by node. Where its new version is, it does not get on with what is there of"
    " the old one: pods that run keep their network, and a new pod on such a node gets none and does not start.",
    joined=90,
)
async def plugin_rolled_out(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods are ContainerCreating for an hour, on some nodes only."""
    plugin, before, after, binary, why = lab.rng.choice(PLUGINS)
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "delivery-slots", "slot-page", "slot-mails"),
            ("payments", "bank-holidays", "calendar-page", "calendar-sync"),
            ("media", "cover-art", "album-page", "album-feed"),
            ("search", "store-finder", "finder-page", "finder-index"),
        )
    )
    by, minor = lab.rng.choice(("admin", "flux", "alice")), lab.rng.randrange(3, 30)
    touched = set[str]()
    failure = f'plugin type="{binary}" failed (add): {why}'

    def unplugged(node: str, pod: Json) -> str:
        there = [one for one in pods(lab.world, "kube-system", plugin) if one["spec"].get("nodeName") == node]
        if any(images(one)[0].endswith(f":{after}") and is_ready(one) for one in there):
            touched.add(node)
        is_new = "podIP" not in pod.get("status", {})
        return failure if node in touched and is_new and not pod["spec"].get("hostNetwork") else ""

    lab.outside.unplugged = unplugged
    await lab.app(
        "kube-system", plugin, like=App("", serves=False), kind="DaemonSet", tag=before, hostNetwork=True,
        priorityClassName="system-node-critical",
    )  # fmt: skip
    await lab.edit("admin", "DaemonSet", "kube-system", plugin, {"spec": {"minReadySeconds": 2}})
    await rolled(lab, "kube-system", plugin, before)
    await lab.app(namespace, name, like=App("", asked=lambda: 21.0), replicas=4, tag=f"5.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="2.0.3", config=other)
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await rolled(lab, namespace, other, "2.0.3")
    await set_before(lab, namespace, front, name)
    for one in (name, front, other):
        lab.alert_stuck(namespace, one)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(10, 20))
        await lab.roll("ci", namespace, name, f"5.{minor}.1")
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "30s"}})
        await lab.roll("argocd", namespace, other, "2.0.4")

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 11))
    [container] = lab.world["DaemonSet"]["kube-system", plugin]["spec"]["template"]["spec"]["containers"]
    image = container["image"].rsplit(":", 1)[0]
    body = {"spec": {"template": {"spec": {"containers": [{**container, "image": f"{image}:{after}"}]}}}}
    await lab.culprit(by, "update", "DaemonSet", "kube-system", plugin, body)
    lab.start(afterwards())
