"""What a policy has only told of, until it is enforced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, leading, tell
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

KYVERNO, GROUP, OURS = "kyverno", "kyverno.io", "registry.corp.example/"
ADMISSION, REPORTS, SERVICE = "kyverno-admission-controller", "kyverno-reports-controller", "kyverno-svc"
AUDIT, ENFORCE = "Audit", "Enforce"


@dataclass(frozen=True)
class _Policy:
    """One rule for all containers of a pod."""

    name: str
    rule: str
    message: str
    field: str
    """Below a container."""
    sidecar: Json
    """One that it does not let pass."""

    def violation(self, pod: Json) -> str:
        """As Kyverno says it; "" of a pod with which all is well."""
        for index, one in enumerate(pod["spec"]["containers"]):
            if not self._passes(one):
                where = f"/spec/containers/{index}/{self.field}/"
                return f"validation error: {self.message} rule {self.rule} failed at path {where}"
        return ""

    def _passes(self, container: Json) -> bool:
        if self.field == "image":
            return str(container["image"]).startswith(OURS)
        return bool(container.get("resources", {}).get("limits", {}).get("memory"))

    def manifest(self, action: str) -> Json:
        """With its rule for pods alone: what makes them is not looked at."""
        wanted = {"image": f"{OURS}*"} if self.field == "image" else {"resources": {"limits": {"memory": "?*"}}}
        found = {"any": [{"resources": {"kinds": ["Pod"]}}]}
        pattern = {"spec": {"containers": [wanted]}}
        validate = {"failureAction": action, "message": self.message, "pattern": pattern}
        notes = {"pod-policies.kyverno.io/autogen-controllers": "none"}
        return {
            "metadata": {"name": self.name, "annotations": notes},
            "spec": {"background": True, "rules": [{"name": self.rule, "match": found, "validate": validate}]},
        }


_REQUESTS = {"requests": {"cpu": "20m", "memory": "32Mi"}}
POLICIES = (
    _Policy(
        "require-requests-limits",
        "validate-resources",
        "CPU and memory resource requests and memory limits are required for containers.",
        "resources/limits",
        {"name": "statsd", "image": f"{OURS}mirror/statsd-exporter:v0.28.0", "resources": _REQUESTS},
    ),
    _Policy(
        "restrict-image-registries",
        "validate-registries",
        "Unknown image registry.",
        "image",
        {
            "name": "cache",
            "image": "docker.io/library/redis:8.2.1-alpine",
            "resources": {**_REQUESTS, "limits": {"memory": "64Mi"}},
        },
    ),
)


@dataclass
class _Kyverno:
    """What asks of each pod that is made whether it keeps to the policy, and tells of those that do not."""

    lab: Lab
    kind: Kind
    policy: _Policy

    async def review(self, request: Json) -> str | None:
        violation = self.policy.violation(request["object"])
        declared = self.lab.world[self.kind.name].get(("", self.policy.name), {})
        actions = [one["validate"]["failureAction"] for one in declared.get("spec", {}).get("rules", ())]
        if not violation or ENFORCE not in actions:
            return None
        meta = request["object"]["metadata"]
        who = f"Pod/{request['namespace']}/{meta.get('name', meta.get('generateName', ''))}"
        blocked = f"resource {who} was blocked due to the following policies"
        return f"\n\n{blocked} \n\n{self.policy.name}:\n  {self.policy.rule}: '{violation}'\n"

    async def scan(self, process: Process) -> None:
        """In the background, of what is there."""
        for (_, name), pod in list(self.lab.world["Pod"].items()):
            if violation := self.policy.violation(pod):
                message = f"policy {self.policy.name}/{self.policy.rule} fail: {violation}"
                assert pod["metadata"]["name"] == name
                await tell(process, {**pod, "kind": "Pod"}, "Warning", "PolicyViolation", message, by="kyverno-scan")


async def _kyverno(lab: Lab, policy: _Policy) -> Kind:
    """With its policy, which only tells. Raises RefusedError."""
    kind = await lab.custom("ClusterPolicy", GROUP, ANY, namespaced=False)
    await lab.served(kind)
    kyverno = _Kyverno(lab, kind, policy)
    await lab.namespace(KYVERNO)
    rights, lease = (GROUP, "clusterpolicies", "get,list,watch"), ("coordination.k8s.io", "leases", "*")
    program = both(informer(kind.path()), leading(KYVERNO, ADMISSION))
    await lab.controller(KYVERNO, ADMISSION, program, rights, lease, replicas=2, tag="v1.15.2")
    program = both(informer(kind.path()), every(14.0, kyverno.scan))
    more = ("", "events", "create"), ("", "pods", "get,list,watch")
    await lab.controller(KYVERNO, REPORTS, program, rights, *more, replicas=1, tag="v1.15.2")
    for one in (ADMISSION, REPORTS):
        await rolled(lab, KYVERNO, one, "v1.15.2")
    selector = {"app.kubernetes.io/name": ADMISSION}
    spec = {"selector": selector, "ports": [{"port": 443, "targetPort": 9443}]}
    await lab.apply({"kind": "Service", "metadata": {"namespace": KYVERNO, "name": SERVICE}, "spec": spec})
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind.name, **policy.manifest(AUDIT)}
    await lab.who["admin"].must("POST", kind.path(), body)
    webhook = Webhook(kyverno.review, service=(KYVERNO, SERVICE))
    await webhook.start()
    lab.servers.append(webhook)
    manifest = configuration("kyverno-resource-validating-webhook-cfg", webhook, seconds=10)
    manifest["webhooks"][0]["name"] = "validate.kyverno.svc-fail"
    await lab.apply(manifest)
    return kind


@family(
    "A policy of an admission controller has told for months of pods without limits, or with an image of another"
    " registry, and nobody has read it. It is enforced from today on: all that runs goes on, and the next pods of an"
    " app are refused.",
    joined=95,
)
async def limits_required(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose ReplicaSet had no pods after Audit had become Enforce."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "coupon-api", "coupon-page", "coupon-mails"),
            ("payments", "refund-api", "refund-page", "refund-report"),
            ("media", "album-api", "album-page", "album-sync"),
            ("search", "topics-api", "topics-page", "topics-feed"),
        )
    )
    by, minor, is_release = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.random() < 0.6
    policy, own, load = lab.rng.choice(POLICIES), f"registry.corp.example/{namespace}/{name}", 21.0
    kind = await _kyverno(lab, policy)
    lab.apps[own] = App(own, asked=lambda: load)
    made = objects.deployment(namespace, name, f"{own}:2.{minor}.0", replicas=3)
    made["spec"]["template"]["spec"]["containers"].append(policy.sidecar)
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.3.1", config=other)
    await rolled(lab, namespace, other, "1.3.1")
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(
        lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == len(pods(lab.world, namespace, name))
    )

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.3.2")
        await lab.pause(lab.rng.uniform(4, 9))
        if is_release:
            found = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
            containers = [{**found[0], "image": f"{own}:2.{minor}.1"}, found[1]]
            body: Json = {"spec": {"template": {"spec": {"containers": containers}}}}
        else:
            body = {"spec": {"replicas": 6}}
        await lab.edit(lab.rng.choice(("ci", "argocd") if is_release else TEAMS), "Deployment", namespace, name, body)
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    spec = {"spec": {"rules": policy.manifest(ENFORCE)["spec"]["rules"]}}
    await lab.culprit(by, "update", kind.name, "", policy.name, spec)
    lab.start(afterwards())
