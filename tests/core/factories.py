"""Nouns with defaults, for tests: a test names only what it is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.core.findings import Incident
from app.core.incidents.bundles import bundle
from app.core.model import (
    Actor,
    ActorSource,
    CallCount,
    CallKey,
    Change,
    FieldDiff,
    Json,
    Object,
    ObjectState,
    Path,
    Resource,
    Symptom,
    SymptomSource,
    Verb,
    version_key,
)
from app.core.objects.redact import Redactor

FINGERPRINT = Redactor(b"a key of at least 16 bytes").fingerprint
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CI = Actor("ci-deployer", ActorSource.AUDIT)
GROUPS = {
    "Deployment": "apps",
    "DaemonSet": "apps",
    "StatefulSet": "apps",
    "ReplicaSet": "apps",
    "ClusterRole": "rbac.authorization.k8s.io",
    "Role": "rbac.authorization.k8s.io",
    "RoleBinding": "rbac.authorization.k8s.io",
    "CronJob": "batch",
    "Job": "batch",
    "ClusterRoleBinding": "rbac.authorization.k8s.io",
    "NetworkPolicy": "networking.k8s.io",
    "ValidatingWebhookConfiguration": "admissionregistration.k8s.io",
    "CustomResourceDefinition": "apiextensions.k8s.io",
    "FlowSchema": "flowcontrol.apiserver.k8s.io",
}


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def a_resource(kind: str = "Deployment", name: str = "web", namespace: str | None = "shop") -> Resource:
    return Resource("lab", GROUPS.get(kind, ""), kind, namespace, name)


def a_change(
    resource: Resource | None = None,
    *,
    at: datetime = NOON,
    path: Path = ("spec", "template", "spec", "containers", (("name", "web"),), "image"),
    old: Json = "web:1",
    new: Json = "web:2",
    actor: Actor = CI,
    verb: Verb = Verb.UPDATE,
) -> Change:
    resource = resource or a_resource()
    op = "replace" if old is not None and new is not None else "add" if old is None else "remove"
    return Change(
        resource=resource,
        at=at,
        verb=verb,
        key=version_key(resource.cluster, str(resource), at.isoformat() + actor.name),
        actor=actor,
        diffs=(FieldDiff(path, op, old, new),),
        summary=f"{resource} changed",
    )


def a_state(resource: Resource, state: Object, *, owner: Resource | None = None) -> ObjectState:
    whole: Object = {"metadata": {"name": resource.name}, "kind": resource.kind, **state}
    kind, name = (owner.kind, owner.name) if owner else ("", "")
    return ObjectState(resource, f"uid-{resource}", "1", NOON, whole, owner_kind=kind, owner_name=name)


def a_workload(resource: Resource, *, labels: dict[str, str] | None = None, **pod: Json) -> ObjectState:
    template: Object = {"metadata": {"labels": dict(labels or {"app": resource.name})}, "spec": dict(pod)}
    return a_state(resource, {"spec": {"replicas": 2, "template": template}})


def calls(
    user: str,
    verb: str,
    resource: str,
    *,
    rate: float,
    start: float = -120,
    end: float = 60,
    code: int = 200,
    error: str = "",
    group: str = "",
    namespace: str = "",
    pod: str = "",
) -> list[CallCount]:
    """Calls at a steady rate a second between two seconds around noon."""
    key = CallKey(user, pod, "agent", verb, group, resource, namespace, code, error=error)
    first = int(after(start).timestamp()) // 5 * 5
    last = int(after(end).timestamp()) // 5 * 5
    return [CallCount(key, slot, round(rate * 5), round(rate * 5) * 2000) for slot in range(first, last, 5)]


def an_alert(at: datetime = NOON, *, name: str = "KubeAPIErrorBudgetBurn", message: str = "", **labels: str) -> Symptom:
    return Symptom(
        source=SymptomSource.ALERT,
        reason=name,
        at=at,
        fingerprint=f"{name}{sorted(labels.items())}",
        message=message,
        severity=labels.get("severity", "critical"),
        labels=tuple(sorted({"alertname": name, **labels}.items())),
    )


def a_symptom(resource: Resource, reason: str, *, at: datetime = NOON, message: str = "", count: int = 5) -> Symptom:
    return Symptom(
        source=SymptomSource.EVENT,
        reason=reason,
        at=at,
        fingerprint=f"{resource}{reason}{at}",
        resource=resource,
        workload=resource,
        message=message,
        count=count,
    )


def an_incident(*alerts: Symptom) -> Incident:
    return bundle(alerts or [an_alert(after(60))], [], cluster="lab")[0]
