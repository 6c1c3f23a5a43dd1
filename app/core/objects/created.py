"""What a new object does, in a few words: the part of a summary after "created: "."""

from __future__ import annotations

import re
from collections.abc import Callable

from app.core.model import Json, Object, Resource
from app.core.objects.grants import role_of, rules_of, subjects_of

_HELM = re.compile(r"sh\.helm\.release\.v1\.(?P<name>.+)\.v(?P<revision>\d+)\Z")


def helm_words(resource: Resource) -> str:
    """ "Helm release NAME revision N" for an object in which Helm keeps a release, else "". The name says it all."""
    match = _HELM.match(resource.name) if resource.kind in ("Secret", "ConfigMap") else None
    return f"Helm release {match['name']} revision {match['revision']}" if match else ""


def details(resource: Resource, state: Object) -> str:
    """What a reader wants to know of a new object; "" where its name says enough."""
    if helm_words(resource):
        return ""
    describe = _BY_KIND.get(resource.kind)
    return describe(state) if describe else ""


def _map(value: Json) -> Object:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _words(items: list[str], limit: int = 3) -> str:
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")


def _webhook(state: Object) -> str:
    parts = []
    for hook in _list(state.get("webhooks")):
        rules = [_map(rule) for rule in _list(_map(hook).get("rules"))]
        operations = sorted({str(op) for rule in rules for op in _list(rule.get("operations"))})
        resources = sorted({str(name) for rule in rules for name in _list(rule.get("resources"))})
        policy = _map(hook).get("failurePolicy", "Fail")
        parts.append(f"{policy} on {', '.join(operations)} {_words(resources)}")
    return "; ".join(dict.fromkeys(parts))


def _workload(state: Object) -> str:
    spec = _map(state.get("spec"))
    job = _map(_map(spec.get("jobTemplate")).get("spec"))
    pod = _map(_map((job or spec).get("template")).get("spec"))
    images = [str(_map(c).get("image", "")).rpartition("/")[2] for c in _list(pod.get("containers"))]
    parts = [_words([image for image in images if image], 2)]
    if "replicas" in spec:
        parts.append(f"{spec['replicas']} replica{'' if spec['replicas'] == 1 else 's'}")
    if "schedule" in spec:
        parts.append(f"at {spec['schedule']}")
    return ", ".join(part for part in parts if part)


def _network_policy(state: Object) -> str:
    spec = _map(state.get("spec"))
    labels = _map(_map(spec.get("podSelector")).get("matchLabels"))
    chosen = _words([f"{k}={v}" for k, v in labels.items()]) or "all pods"
    directions = []
    for kind, field in (("Ingress", "ingress"), ("Egress", "egress")):
        if kind in _list(spec.get("policyTypes")) or field in spec:
            rules = len(_list(spec.get(field)))
            directions.append(f"{field} {'denied' if not rules else f'limited to {rules} rule' + 's' * (rules > 1)}")
    return f"{' and '.join(directions)} for {chosen}" if directions else f"for {chosen}"


def _role(state: Object) -> str:
    granted = rules_of(state)
    verbs = sorted({verb for _, _, verb in granted})
    resources = sorted({resource for _, resource, _ in granted})
    return f"{_words(verbs, 4)} on {_words(resources)}" if granted else ""


def _binding(state: Object) -> str:
    return f"{role_of(state)} for {_words(sorted(subjects_of(state)))}"


def _autoscaler(state: Object) -> str:
    spec = _map(state.get("spec"))
    target = _map(spec.get("scaleTargetRef"))
    bounds = f"{spec.get('minReplicas', 1)} to {spec.get('maxReplicas')} replicas"
    return f"{bounds} of {target.get('kind')} {target.get('name')}"


def _quota(state: Object) -> str:
    return _words([f"{name} {amount}" for name, amount in _map(_map(state.get("spec")).get("hard")).items()], 4)


def _budget(state: Object) -> str:
    spec = _map(state.get("spec"))
    return _words([f"{field} {spec[field]}" for field in ("minAvailable", "maxUnavailable") if field in spec])


def _keys(state: Object) -> str:
    return _words([*_map(state.get("data")), *_map(state.get("binaryData"))])


def _priority(state: Object) -> str:
    return f"{state.get('value')}{', the default' if state.get('globalDefault') else ''}"


def _service(state: Object) -> str:
    spec = _map(state.get("spec"))
    ports = [str(_map(port).get("port")) for port in _list(spec.get("ports"))]
    return f"{spec.get('type', 'ClusterIP')} {'on ' + _words(ports) if ports else ''}".strip()


def _api_service(state: Object) -> str:
    service = _map(_map(state.get("spec")).get("service"))
    return f"served by {service.get('namespace')}/{service.get('name')}" if service else "served locally"


def _definition(state: Object) -> str:
    spec = _map(state.get("spec"))
    return _words([str(_map(version).get("name")) for version in _list(spec.get("versions"))])


_BY_KIND: dict[str, Callable[[Object], str]] = {
    "MutatingWebhookConfiguration": _webhook,
    "ValidatingWebhookConfiguration": _webhook,
    "Deployment": _workload,
    "StatefulSet": _workload,
    "DaemonSet": _workload,
    "CronJob": _workload,
    "Job": _workload,
    "NetworkPolicy": _network_policy,
    "Role": _role,
    "ClusterRole": _role,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "HorizontalPodAutoscaler": _autoscaler,
    "ResourceQuota": _quota,
    "PodDisruptionBudget": _budget,
    "ConfigMap": _keys,
    "Secret": _keys,
    "PriorityClass": _priority,
    "Service": _service,
    "APIService": _api_service,
    "CustomResourceDefinition": _definition,
}
