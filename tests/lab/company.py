"""A company: what runs in its cluster before anything happens, and teams that change things all day without harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.programs import both, every, getting, informer, leading, writing

APPS = {
    "shop": ("frontend", "cart", "catalog"),
    "payments": ("checkout", "ledger"),
    "search": ("query", "indexer"),
    "media": ("thumbnails", "uploads"),
}
UPSTREAMS = {
    "frontend": (("shop", "cart"), ("shop", "catalog")),
    "cart": (("payments", "checkout"),),
    "checkout": (("payments", "ledger"),),
    "query": (("search", "indexer"),),
}
SYSTEM = ("kube-system", "argocd", "flux-system", "monitoring", "cert-manager", "ingress-nginx", "platform")
COREFILE = ".:53 {\n    errors\n    kubernetes cluster.local\n    forward . /etc/resolv.conf\n    cache 30\n}\n"
READ = ("*", "*", "get,list,watch")


async def found(lab: Lab) -> None:
    """Namespaces, controllers, apps. Raises RefusedError."""
    for namespace in (*SYSTEM, *APPS):
        if namespace != "kube-system":
            await lab.namespace(namespace)
    await lab.apply(objects.config_map("kube-system", "coredns", Corefile=COREFILE))
    await lab.app("kube-system", "kube-dns", like=App("", serves=False), config="coredns")
    await _controllers(lab)
    for namespace, names in APPS.items():
        for name in names:
            await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="800"))
            await lab.app(namespace, name, like=App("", upstreams=UPSTREAMS.get(name, ())), config=name)


async def _controllers(lab: Lab) -> None:
    """Those that call the API as in any cluster."""
    pods, nodes, services = path("Pod"), path("Node"), path("Service")
    lease = ("coordination.k8s.io", "leases", "*")
    for namespace, name in (("argocd", "argocd-application-controller"), ("flux-system", "kustomize-controller")):
        await lab.controller(
            namespace, name, both(informer(path("Deployment")), leading(namespace, name)), ("*", "*", "*"), replicas=1
        )
    certificates = both(informer(path("Ingress")), leading("cert-manager", "cert-manager"))
    await lab.controller("cert-manager", "cert-manager", certificates, READ, lease)
    await lab.controller(
        "ingress-nginx", "ingress-nginx", both(informer(services), informer(path("EndpointSlice"))), READ
    )
    scaler = both(
        every(3, getting(nodes)), informer(pods), every(5, writing("kube-system", "cluster-autoscaler-status", "seen"))
    )
    await lab.controller("kube-system", "cluster-autoscaler", scaler, READ, ("", "configmaps", "*"), replicas=1)
    kubelet = every(5, getting(f"{pods}?limit=50"))
    await lab.controller("monitoring", "node-agent", both(kubelet, informer(nodes)), READ, kind="DaemonSet")


# -- teams

Change = Callable[[Lab], Awaitable[None]]


async def work(lab: Lab) -> None:
    """Changes at the rate of the variation, for ever. What a change is about, chance says."""
    pause = 60 / lab.variation.distractors
    while True:
        await asyncio.sleep(lab.rng.expovariate(1 / pause))
        await lab.rng.choice(CHANGES)(lab)


def _anybody(lab: Lab) -> str:
    return lab.rng.choice(("alice", "bob", "carol", "ci", "argocd", "argocd", "flux"))


def _place(lab: Lab, *, free: bool) -> tuple[str, str]:
    """An app of a team; ``free`` where no scenario needs it as it is."""
    places = [(namespace, name) for namespace, names in APPS.items() for name in names]
    return lab.rng.choice([place for place in places if not (free and place in lab.reserved)])


async def _patch(lab: Lab, kind: str, namespace: str, name: str, body: Json) -> None:
    """Nothing rests on it: a namespace may be going, a webhook may refuse."""
    await lab.who[_anybody(lab)].call("PATCH", path(kind, namespace, name), body)


async def _rollout(lab: Lab) -> None:
    namespace, name = _place(lab, free=True)
    image = f"registry.corp.example/{namespace}/{name}:1.{lab.rng.randrange(1, 40)}.{lab.rng.randrange(10)}"
    found = lab.world["Deployment"].get((namespace, name))
    if found:
        container = {**found["spec"]["template"]["spec"]["containers"][0], "image": image}
        await _patch(lab, "Deployment", namespace, name, {"spec": {"template": {"spec": {"containers": [container]}}}})


async def _scale(lab: Lab) -> None:
    namespace, name = _place(lab, free=True)
    await _patch(lab, "Deployment", namespace, name, {"spec": {"replicas": lab.rng.choice((2, 2, 3))}})


async def _configure(lab: Lab) -> None:
    namespace, name = _place(lab, free=True)
    await _patch(lab, "ConfigMap", namespace, name, {"data": {"TIMEOUT_MS": str(lab.rng.randrange(300, 2000))}})


async def _annotate(lab: Lab) -> None:
    namespace, name = _place(lab, free=False)
    kind = lab.rng.choice(("Deployment", "Service", "ConfigMap", "Deployment"))
    note = {"team.corp.example/reviewed": f"2026-{lab.rng.randrange(1, 12):02}"}
    await _patch(lab, kind, namespace, name, {"metadata": {"annotations": note}})


async def _budget(lab: Lab) -> None:
    namespace, name = _place(lab, free=True)
    labels = {"matchLabels": {"app.kubernetes.io/name": name}}
    body = {"metadata": {"name": f"{name}-{lab.rng.randrange(99)}"}, "spec": {"maxUnavailable": 1, "selector": labels}}
    await lab.who[_anybody(lab)].call("POST", path("PodDisruptionBudget", namespace), body)


async def _grant(lab: Lab) -> None:
    namespace, _ = _place(lab, free=False)
    by, name = lab.who[_anybody(lab)], f"reader-{lab.rng.randrange(1000)}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    await by.call("POST", path("Role", namespace), {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": "default"}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await by.call("POST", path("RoleBinding", namespace), body)


async def _autoscale(lab: Lab) -> None:
    namespace, name = _place(lab, free=True)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": lab.rng.randrange(3, 12)}
    by = lab.who[_anybody(lab)]
    made = await by.call("POST", path("HorizontalPodAutoscaler", namespace), {"metadata": {"name": name}, "spec": spec})
    if made.status == 409:
        await by.call(
            "PATCH", path("HorizontalPodAutoscaler", namespace, name), {"spec": {"maxReplicas": spec["maxReplicas"]}}
        )


async def _preview(lab: Lab) -> None:
    """A preview environment: an app that comes, and goes again."""
    name = f"preview-{lab.rng.randrange(10000)}"
    image = "registry.corp.example/previews/web:1.0.0"
    by = lab.who["ci"]
    await by.call("POST", path("Deployment", "platform"), objects.deployment("platform", name, image, replicas=1))
    older = [
        one
        for (where, one), found in lab.world["Deployment"].items()
        if where == "platform" and image in images(found["spec"]["template"])
    ]
    if len(older) > 2:
        await by.call("DELETE", path("Deployment", "platform", older[0]))


async def _rotate(lab: Lab) -> None:
    namespace, name = _place(lab, free=False)
    body = {"metadata": {"name": f"{name}-tls"}, "stringData": {"tls.crt": f"certificate {lab.rng.randrange(9999)}"}}
    by = lab.who["flux"]
    if (await by.call("POST", path("Secret", namespace), body)).status == 409:
        await by.call("PATCH", path("Secret", namespace, f"{name}-tls"), body)


CHANGES: tuple[Change, ...] = (
    _rollout, _rollout, _rollout, _scale, _configure, _configure, _annotate, _annotate, _budget, _grant, _autoscale,
    _preview, _rotate,
)  # fmt: skip
