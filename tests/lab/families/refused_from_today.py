"""Refused from today on: pods that a namespace let in until now, and pods of which a policy had only told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

# -- what a namespace lets in

SECURITY = "pod-security.kubernetes.io"
KEPT_TO: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What a container says that may run anywhere."""
HALF_WAY: tuple[Json, ...] = (
    {},
    {"runAsNonRoot": True},
    {"allowPrivilegeEscalation": False},
    {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}},
)
"""What containers say whose team has read about it once, or never."""


def _levels(enforced: str) -> Json:
    """Labels of a namespace that lets in what is of a level, and tells of what is not of the strictest."""
    told = {"enforce": enforced, "enforce-version": "latest", "warn": "restricted", "audit": "restricted"}
    return {"metadata": {"labels": {f"{SECURITY}/{key}": value for key, value in told.items()}}}


@family(
    "A namespace has let in all pods but privileged ones, and only warned of others. It is set to the strictest level,"
    " as the list of the security team has it for all. What runs there goes on, and one team has long said in its"
    " manifests what is asked for. Another team's next release gets no pod.",
    joined=106,
)
async def strictest_for_all(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had looked at what runs, and all of it did."""
    namespace, name, front, ready = lab.rng.choice(
        (
            ("shop", "stock-view", "stock-page", "size-charts"),
            ("payments", "dunning-api", "dunning-page", "bank-holidays"),
            ("media", "clip-maker", "clip-page", "frame-rates"),
            ("search", "ranking-api", "ranking-page", "stop-words"),
        )
    )
    by, minor = lab.rng.choice(("flux", "flux", "argocd", *TEAMS)), lab.rng.randrange(2, 40)
    said, deploys = lab.rng.choice(HALF_WAY), lab.rng.choice(("ci", "argocd"))
    await lab.edit("admin", "Namespace", "", namespace, _levels("baseline"))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="50"))
    await lab.app(namespace, name, like=App("", asked=lambda: 19.0), replicas=3, tag=f"3.{minor}.0", config=name)
    await lab.app(namespace, ready, replicas=2, tag="1.2.4")
    for one, tag, context in ((name, f"3.{minor}.0", said), (ready, "1.2.4", KEPT_TO)):
        await lab.roll("admin", namespace, one, tag, securityContext=context)
        await lab.pause(1)
        await rolled(lab, namespace, one, tag)
        lab.reserve(namespace, one)
    await set_before(lab, namespace, front, name)
    for one in (name, ready):
        lab.alert_stuck(namespace, one)
        lab.alert_lacking(namespace, one, seconds=12)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, ready, "1.2.5")
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "80"}})
        await lab.pause(lab.rng.uniform(1, 5))
        await lab.roll(deploys, namespace, name, f"3.{minor + 1}.0")

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 10))
    owner = {"metadata": {"labels": {"corp.example/cost-center": str(lab.rng.randrange(1000, 9999))}}}
    await lab.edit(lab.rng.choice(TEAMS), "Namespace", "", namespace, owner)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.culprit(by, "update", "Namespace", "", namespace, _levels("restricted"))
    lab.start(afterwards())


# -- what a policy has told of


@dataclass(frozen=True)
class _Rule:
    """Of the API server's own policies, with what a container says that keeps to it."""

    name: str
    message: str
    expression: str
    kept_to: Json

    def manifest(self) -> Json:
        what = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [what]},
            "validations": [{"expression": self.expression, "message": self.message}],
        }
        return {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": self.name}, "spec": spec}


_PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
_RULES = (
    _Rule(
        "read-only-root-filesystem",
        "containers have a read-only root filesystem (policy PS-07)",
        "object.spec.containers.all(c, has(c.securityContext) && has(c.securityContext.readOnlyRootFilesystem)"
        " && c.securityContext.readOnlyRootFilesystem)",
        {"securityContext": {"readOnlyRootFilesystem": True}},
    ),
    _Rule(
        "liveness-probes",
        "containers have a liveness probe (policy RE-03)",
        "object.spec.containers.all(c, has(c.livenessProbe))",
        {"livenessProbe": _PROBE},
    ),
    _Rule(
        "limits-of-cpu",
        "containers have a limit on cpu (policy CO-11)",
        "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && 'cpu' in c.resources.limits)",
        {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "256Mi"}}},
    ),
)
SELECTED = "policy.corp.example/pods"


@family(
    "A policy of the API server's own has been bound so that it warns and leaves a note in the audit log, which no"
    " pipeline shows to anybody. The platform's team makes its own app keep to it and has it enforced. Two other teams"
    " deploy on that day, and their new pods are refused.",
    joined=106,
)
async def warned_in_vain(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had announced it where only they themselves read."""
    (first, second), rule = (
        lab.rng.sample(
            (
                ("shop", "gift-lists", "gift-page"),
                ("payments", "fee-tables", "fee-page"),
                ("media", "lyrics", "lyrics-page"),
                ("search", "near-by", "near-page"),
            ),
            2,
        ),
        lab.rng.choice(_RULES),
    )
    by, minor, own = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 40), ("platform", "portal")
    warns, denies = ["Warn", "Audit"], ["Deny", "Audit"]
    for namespace in ("shop", "payments", "media", "search", "platform"):
        await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {SELECTED: "enabled"}}})
    await lab.apply(rule.manifest())
    spec = {
        "policyName": rule.name,
        "validationActions": warns,
        "matchResources": {"namespaceSelector": {"matchLabels": {SELECTED: "enabled"}}},
    }
    await lab.apply({"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": rule.name}, "spec": spec})
    await lab.app(*own, like=App("", asked=lambda: 9.0), replicas=2, tag="7.0.0")
    await rolled(lab, *own, "7.0.0")
    lab.alert_stuck(*own)
    for namespace, name, front in (first, second):
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
        await lab.app(namespace, name, like=App("", asked=lambda: 17.0), replicas=3, tag=f"2.{minor}.0", config=name)
        await rolled(lab, namespace, name, f"2.{minor}.0")
        await set_before(lab, namespace, front, name)
        lab.alert_stuck(namespace, name)
        lab.alert_lacking(namespace, name, seconds=12)
        lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, *own)) == 2)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.roll("ci", *own, "7.1.1")
        await lab.pause(lab.rng.uniform(3, 8))
        namespace, name, _ = first
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
        await lab.pause(lab.rng.uniform(2, 6))
        namespace, name, _ = second
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"CACHE_SECONDS": "90"}})
        await lab.pause(lab.rng.uniform(1, 5))
        await lab.roll(lab.rng.choice(("ci", "argocd", "flux")), namespace, name, f"2.{minor + 1}.0")

    yield
    await change_page(lab, second[0], second[2])
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll("ci", *own, "7.1.0", **rule.kept_to)
    await lab.pause(lab.rng.uniform(6, 11))
    body = {"spec": {"validationActions": denies}}
    await lab.culprit(by, "update", "ValidatingAdmissionPolicyBinding", "", rule.name, body)
    lab.start(afterwards())
