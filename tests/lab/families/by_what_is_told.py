"""What goes by what it is told: autoscalers by what pods use, an agent by its values, admission by a policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.by_the_figures import STANDS, USES_M
from tests.lab.families.databases import ANY
from tests.lab.families.on_behalf import ARGO
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.metrics_api import PodMetricsApi
from tests.lab.network import backends
from tests.lab.scenario import family

LEAST = 3
"""As many replicas as the autoscaler leaves an app at all times."""


@dataclass
class _Scaled:
    """An app whose autoscaler goes by the share of the processor that it asked for, and all that it is asked."""

    lab: Lab
    namespace: str
    name: str
    asked: float
    like: App = field(init=False)

    def __post_init__(self) -> None:
        self.like = App("", capacity=60, asked=lambda: self.asked, failing=self.turned_away, fails_with=lambda _: "503")

    def there(self) -> int:
        return max(1, sum(is_ready(pod) for pod in pods(self.lab.world, self.namespace, self.name)))

    def uses(self, pod: Json) -> float:
        is_ours = is_ready(pod) and images(pod)[0].rsplit(":", 1)[0] == self.like.image
        return USES_M * min(STANDS, self.asked / self.there()) if is_ours else 5.0

    def turned_away(self, _: Container) -> float:
        return max(0.0, 1 - STANDS * self.there() / self.asked)

    async def set_up(self, tag: str, front: str, *, is_up: Callable[[], bool] = lambda: True) -> None:
        """With whoever tells what pods use while that ``is_up``; returns once the autoscaler goes by it."""
        lab, meta = self.lab, {"namespace": self.namespace, "name": self.name}
        server = PodMetricsApi(lab.world, self.uses, is_up=is_up)
        await server.start()
        lab.servers.append(server)
        await server.register(lab.who["admin"], "kube-system", "metrics-server")
        await lab.app(self.namespace, self.name, like=self.like, replicas=LEAST, tag=tag)
        await rolled(lab, self.namespace, self.name, tag)
        await lab.app(self.namespace, front, like=App("", upstreams=((self.namespace, self.name),)), tag="3.1.0")
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
            "minReplicas": LEAST,
            "maxReplicas": 12,
            "metrics": [{"type": "Resource", "resource": cpu}],
        }
        await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
        await lab.until(self.is_active)
        await lab.until(lambda: backends(lab.world, self.namespace, front))
        await publish(lab, self.namespace, front)
        lab.reserve(self.namespace, self.name)
        lab.alert_errors(self.namespace, self.name)
        lab.alert_ingress_errors(self.namespace, self.namespace)

    def is_active(self) -> bool:
        found = self.lab.world["HorizontalPodAutoscaler"].get((self.namespace, self.name), {})
        conditions = found.get("status", {}).get("conditions") or ()
        return any(one["type"] == "ScalingActive" and one["status"] == "True" for one in conditions)


SERVER, INSECURE = ("kube-system", "metrics-server"), "--kubelet-insecure-tls"
UNTRUSTED = "x509: cannot validate certificate for 10.0.0.3 because it doesn't contain any IP SANs"


@family(
    "What tells how much pods use is upgraded, by a manifest without the flag that this cluster's kubelets need, or is"
    " scaled to nothing, as another tool shows the same. No autoscaler has anything to go by from then on: as the"
    " evening comes an app stays at its replicas, and turns requests away.",
    joined=78,
)
async def nothing_to_scale_by(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose autoscalers say <unknown>/70%."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "gift-finder", "gift-page"),
            ("media", "radio", "radio-page"),
            ("search", "spelling", "search-field"),
            ("payments", "quote-api", "quote-form"),
        )
    )
    by, other = lab.rng.choice(("alice", "carol", "flux", "argocd")), lab.rng.choice(("ci", "bob"))
    is_upgraded, image = lab.rng.random() < 0.5, f"registry.corp.example/{'/'.join(SERVER)}"

    def reads(container: Container) -> Problem | None:
        """Of kubelets; else it has nothing to serve."""
        if INSECURE in container.spec.get("args", ()):
            return None
        why = f"probe failed: HTTP probe failed with statuscode: 500 (no metrics to serve: {UNTRUSTED})"
        return Problem("unready", why, at_once=True)

    def is_up() -> bool:
        found = pods(lab.world, *SERVER)
        return any(is_ready(one) and "deletionTimestamp" not in one["metadata"] for one in found)

    lab.apps[image] = App(image, check=reads, serves=False)
    made = objects.deployment(*SERVER, f"{image}:0.7.2", replicas=1)
    made["spec"]["strategy"] = {"type": "Recreate"}  # it has a port of its node's own
    made["spec"]["template"]["spec"]["containers"][0]["args"] = ["--metric-resolution=15s", INSECURE]
    await lab.apply(made)
    await rolled(lab, *SERVER, "0.7.2")
    app = _Scaled(lab, namespace, name, asked=lab.rng.uniform(56, 64))
    await app.set_up("2.2.0", front, is_up=is_up)
    await lab.until(lab.is_well)

    async def evening() -> None:
        for _ in range(10):
            app.asked += lab.rng.uniform(15, 19)
            await asyncio.sleep(1)

    yield
    await lab.pause(lab.rng.uniform(2, 6))
    if is_upgraded:
        await lab.roll(by, *SERVER, "0.8.0", culprit=True, args=["--metric-resolution=15s"])
    else:
        await lab.culprit(by, "update", "Deployment", *SERVER, {"spec": {"replicas": 0}})
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.roll(other, namespace, front, "3.1.1")
    lab.start(evening())


@family(
    "The number of replicas is put into what the GitOps agent makes an app from, as all others have it there. Its"
    " autoscaler has set it until now. The agent puts it back to that number in the evening, and again each time that"
    " the autoscaler has raised it: the app turns requests away.",
    joined=78,
)
async def as_in_git(lab: Lab) -> AsyncIterator[None]:
    """As very many tell who have an autoscaler and an agent that heals what has drifted."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "checkout-api", "basket-page"),
            ("media", "charts", "charts-page"),
            ("search", "autocomplete", "search-bar"),
            ("payments", "fraud-check", "payment-form"),
        )
    )
    by, other = lab.rng.choice(("alice", "bob", "flux")), lab.rng.choice(("ci", "carol"))
    application, app = await lab.custom("Application", ARGO, ANY), _Scaled(lab, namespace, name, asked=60.0)

    async def heal() -> None:
        """What values say of the app is so again; of what they do not say the agent knows nothing."""
        agent = lab.who["argocd"]
        while True:
            await asyncio.sleep(2)
            values = lab.world["Application"]["argocd", name]["spec"]["source"]["helm"]["valuesObject"]
            there = lab.world["Deployment"][namespace, name]["spec"]["replicas"]
            if values.get("replicaCount", there) != there:
                body = {"spec": {"replicas": values["replicaCount"]}}
                await agent.call("PATCH", path("Deployment", namespace, name), body)

    await lab.served(application)
    source = {
        "repoURL": f"https://git.corp.example/{namespace}/charts.git",
        "path": name,
        "targetRevision": "main",
        "helm": {"valuesObject": {"image": {"tag": "2.2.0"}, "autoscaling": {"enabled": True}}},
    }
    spec = {
        "project": namespace,
        "source": source,
        "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace},
        "syncPolicy": {"automated": {"prune": False, "selfHeal": True}},
    }
    await lab.apply({"kind": "Application", "metadata": {"namespace": "argocd", "name": name}, "spec": spec})
    await app.set_up("2.2.0", front)
    lab.start(heal())
    app.asked = lab.rng.uniform(220, 240)  # as every evening
    await lab.until(lambda: app.there() >= 7)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, namespace, front, "3.1.1")
    await lab.pause(lab.rng.uniform(4, 9))
    values = {"replicaCount": LEAST, "podAnnotations": {"owner": namespace}}
    body = {"spec": {"source": {"helm": {"valuesObject": values}}}}
    await lab.culprit(by, "update", "Application", "argocd", name, body)


POLICY = "require-memory-limit"
LIMITED = "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits)"


@family(
    "The platform's team asks of all pods that they say how much memory they may have, and a policy refuses those that"
    " do not. What runs goes on; the next release of an app that has never said it gets no new pods.",
    joined=78,
)
async def asked_of_all(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose ReplicaSet is denied by a policy of which they had a mail."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "sizes", "size-guide"),
            ("media", "credits", "credits-page"),
            ("search", "stopwords", "word-lists"),
            ("payments", "receipts", "receipt-page"),
        )
    )
    by, deploys = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice(("ci", "argocd", "bob"))
    minor = lab.rng.randrange(3, 30)
    await lab.app(namespace, name, replicas=3, tag=f"1.{minor}.0")
    await rolled(lab, namespace, name, f"1.{minor}.0")
    unlimited = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    await lab.roll("admin", namespace, name, f"1.{minor}.1", resources=unlimited)
    await rolled(lab, namespace, name, f"1.{minor}.1")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.0.0")
    await rolled(lab, namespace, front, "4.0.0")
    lab.reserve(namespace, name)
    lab.alert_stuck(namespace, name)
    lab.alert_stuck(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.roll(deploys, namespace, front, "4.0.1")
    await lab.pause(lab.rng.uniform(4, 8))
    made = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [made]},
        "validations": [{"expression": LIMITED, "message": "each container has to have a limit of memory"}],
    }
    meta = {"name": POLICY}
    await lab.culprit(by, "create", "ValidatingAdmissionPolicy", "", POLICY, {"metadata": meta, "spec": spec})
    not_system = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
    where = {"namespaceSelector": {"matchExpressions": [not_system]}}
    spec = {"policyName": POLICY, "validationActions": ["Deny"], "matchResources": where}
    await lab.culprit(by, "create", "ValidatingAdmissionPolicyBinding", "", POLICY, {"metadata": meta, "spec": spec})
    await lab.pause(lab.rng.uniform(8, 14))
    await lab.roll(deploys, namespace, name, f"1.{minor}.2")
