"""A Kubernetes object -> the desired state worth comparing.

A denylist, not an allowlist: a ServiceAccount's annotations, a ConfigMap's data and a role's rules have no ``spec``.
Quantities are compared in one form (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from app.core.model import Json, Object, ObjectState

_ROLLOUT = ("argoproj.io", "Rollout")
_TOP = frozenset({"status", "apiVersion", "kind"})
_METADATA = frozenset(
    """managedFields resourceVersion generation uid creationTimestamp selfLink deletionTimestamp
    deletionGracePeriodSeconds""".split()  # noqa: SIM905 - a list of words reads better as words
)
_OWN_FINALIZERS = frozenset(
    {"foregroundDeletion", "orphan", "customresourcecleanup.apiextensions.k8s.io", "finalizers.fluxcd.io"}
)
"""What nobody decides on: the API server puts them to what is being deleted, and Flux one to each of its objects."""
_ANNOTATIONS = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision",
        "deployment.kubernetes.io/revision-history",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deprecated.daemonset.template.generation",
        "rollout.argoproj.io/revision",
        "rollout.argoproj.io/workload-generation",
        "control-plane.alpha.kubernetes.io/leader",
        "endpoints.kubernetes.io/last-change-trigger-time",
        "node.alpha.kubernetes.io/ttl",
        "volumes.kubernetes.io/controller-managed-attach-detach",
        "csi.volume.kubernetes.io/nodeid",
        "batch.kubernetes.io/job-tracking",
        "batch.kubernetes.io/cronjob-scheduled-timestamp",
        "meta.helm.sh/release-revision",
        "autoscaling.alpha.kubernetes.io/conditions",
        "autoscaling.alpha.kubernetes.io/current-metrics",
        "volume.kubernetes.io/selected-node",
        "volume.kubernetes.io/storage-resizer",
        "argocd.argoproj.io/refresh",
        "argocd.argoproj.io/refresh-timestamp",
        "argocd.argoproj.io/hydrate",
        "argocd.argoproj.io/hydrate-timestamp",
        "argocd.argoproj.io/application-set-refresh",
        "reconcile.fluxcd.io/requestedAt",
    }
)
_ANNOTATION_PREFIXES = ("autoscaling.alpha.kubernetes.io/", "pv.kubernetes.io/")
_LABELS = frozenset({"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "pod-template-hash"})
_LABELS |= {"batch.kubernetes.io/job-name", "controller-revision-hash", "pod-template-generation"}
_LABELS |= {"rollouts-pod-template-hash"}
TYPED = frozenset(
    """apps batch autoscaling policy admissionregistration.k8s.io apiregistration.k8s.io certificates.k8s.io
    flowcontrol.apiserver.k8s.io networking.k8s.io node.k8s.io rbac.authorization.k8s.io resource.k8s.io
    scheduling.k8s.io storage.k8s.io""".split()  # noqa: SIM905
) | {""}
"""API groups whose fields have types that we know. What a custom resource holds is whatever its author says: the text
"3.10" is a version there, an empty list may differ from none. So is a schema in a CustomResourceDefinition."""
_QUANTITIES = {
    "resources": ("requests", "limits"),  # of containers and volume claims
    "spec": ("overhead", "hard", "capacity"),  # of pods, ResourceQuotas and PersistentVolumes
    "overhead": ("podFixed",),  # of RuntimeClasses
    "limits": ("min", "max", "default", "defaultRequest"),  # of LimitRanges
}
"""Maps of quantities, by the field they stand in."""
_LONE_QUANTITIES = {"emptyDir": ("sizeLimit",), "resourceFieldRef": ("divisor",), "target": ("averageValue", "value")}
_QUANTITY = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?\Z")
_SCALE = {
    "": Decimal(1),
    **{
        suffix: Decimal(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{suffix + "i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
_CONDITION_TAINT = re.compile(
    r"node\.kubernetes\.io/(?:not-ready|unreachable|\w+-pressure|network-unavailable|unschedulable|out-of-service)"
    r"|node\.cloudprovider\.kubernetes\.io/uninitialized"
)


def normalise(obj: Object, api_group: str, *, kind: str) -> Object:
    """The desired state: without status, bookkeeping and server-set metadata, in one spelling. Never alters ``obj``.

    ``obj`` may be a part of an object, or a patch.
    """
    out: Object = {}
    typed = api_group in TYPED
    for key, value in obj.items():
        if key == "metadata" and isinstance(value, dict):
            out[key] = _metadata(value)
        elif key not in _TOP and value is not None and not (typed and value == []):
            out[key] = _typed(value, key) if typed else _value(value)
    if kind == "Node":
        _node(obj, out)
    if kind == "Application" and api_group == "argoproj.io":
        _application(out)
    if (api_group, kind) == _ROLLOUT:
        spec = out.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("template"), dict):
            spec["template"] = pod_template(spec["template"])
    return out


def as_kept_now(known: ObjectState) -> Object | None:
    """A state that an earlier version of us may have stored: of Rollouts of Argo's it kept what this one passes over,
    which is no change."""
    kind = known.resource.api_group, known.resource.kind
    is_another = kind == _ROLLOUT and known.state is not None
    return normalise(known.state or {}, kind[0], kind=kind[1]) if is_another else known.state


def pod_template(template: Json) -> Json:
    """The pod template of a Rollout of Argo's, of types that we know though it stands in a custom resource.

    Its controller writes it anew after each edit, as Go has it, with ``resources: {}`` in each container that has none.
    """
    return _without_nothing(_typed(template, "template"))


def _without_nothing(value: Json) -> Json:
    if isinstance(value, list):
        return [_without_nothing(item) for item in value]
    if isinstance(value, dict):
        return {k: _without_nothing(v) for k, v in value.items() if k not in ("resources", "metadata") or v != {}}
    return value


def _node(obj: Object, out: Object) -> None:
    """Nodes: the kubelet's version is worth telling; taints that mirror conditions are symptoms, not decisions."""
    status = obj.get("status")
    facts = status.get("nodeInfo") if isinstance(status, dict) else None
    version = facts.get("kubeletVersion") if isinstance(facts, dict) else None
    if version:
        out["status"] = {"nodeInfo": {"kubeletVersion": version}}
    spec = out.get("spec")
    taints = spec.get("taints") if isinstance(spec, dict) else None
    if isinstance(spec, dict) and isinstance(taints, list):
        kept = [t for t in taints if not (isinstance(t, dict) and _CONDITION_TAINT.match(str(t.get("key"))))]
        spec["taints"] = kept
        if not kept:
            del spec["taints"]


def _application(out: Object) -> None:
    """Argo CD's applications: ``operation`` asks for a sync, and goes with its end. Of it counts to what, and for whom
    (https://github.com/argoproj/argo-cd/blob/master/pkg/apis/application/v1alpha1/types.go)."""
    asked = out.get("operation")
    if not isinstance(asked, dict):
        return
    kept: Object = {}
    sync, who = asked.get("sync"), asked.get("initiatedBy")
    if isinstance(sync, dict):
        kept["sync"] = {field: sync[field] for field in ("revision", "revisions", "dryRun") if field in sync}
    if isinstance(who, dict):
        kept["initiatedBy"] = who
    out["operation"] = kept


def _metadata(metadata: Object) -> Object:
    out: Object = {}
    for key, value in metadata.items():
        if key in _METADATA or value is None:
            continue
        if key == "annotations" and isinstance(value, dict):
            kept: Json = {
                k: v for k, v in value.items() if k not in _ANNOTATIONS and not k.startswith(_ANNOTATION_PREFIXES)
            }
        elif key == "labels" and isinstance(value, dict):
            kept = {k: v for k, v in value.items() if k not in _LABELS}
        elif key == "finalizers" and isinstance(value, list):
            kept = [name for name in value if name not in _OWN_FINALIZERS]
        else:
            kept = value
        if kept not in ({}, [], ""):
            out[key] = kept
    return out


def _value(value: Json) -> Json:
    """What nobody knows the types of: without nulls, and without the bookkeeping of the objects that it embeds."""
    if isinstance(value, dict):
        return {
            k: _metadata(v) if k == "metadata" and isinstance(v, dict) else _value(v)
            for k, v in value.items()
            if v is not None
        }
    if isinstance(value, list):
        return [_value(item) if isinstance(item, dict | list) else item for item in value]
    return value


def _typed(value: Json, key: str) -> Json:
    """A value under ``key``: an empty list is as good as none, and quantities are spelled alike."""
    if isinstance(value, dict):
        maps, lone = _QUANTITIES.get(key, ()), _LONE_QUANTITIES.get(key, ())
        out: Object = {}
        for k, v in value.items():
            if isinstance(v, dict):
                if k == "metadata":
                    out[k] = _metadata(v)
                elif k in maps:
                    out[k] = {name: canonical_quantity(amount) for name, amount in v.items()}
                else:
                    out[k] = _typed(v, k)
            elif isinstance(v, list):
                if v:
                    out[k] = _typed(v, k)
            elif v is not None:
                out[k] = canonical_quantity(v) if k in lone else v
        return out
    if isinstance(value, list):
        return [_typed(item, key) for item in value]
    return value


def canonical_quantity(value: Json) -> Json:
    """One spelling for equal amounts ("0.5" → "500m", "1073741824" → "1Gi"); what is no quantity is left as it is."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    return _canonical(str(value), value)


def amount_of(text: str) -> Decimal | None:
    """A quantity as a number ("500m" is 0.5); None for what is no quantity."""
    match = _QUANTITY.match(text) if len(text) <= 32 else None
    if not match:
        return None
    suffix = match["suffix"] or ""
    return Decimal(match["number"]) * (_SCALE[suffix] if suffix in _SCALE else Decimal(10) ** int(suffix[1:]))


@lru_cache(maxsize=4096)
def _canonical(text: str, value: str | float) -> Json:
    amount = amount_of(text)
    if amount is None:
        return value
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi"):  # smaller ones would make a count of 1024 pods "1Ki"
        if amount and amount % _SCALE[unit] == 0:
            return f"{amount / _SCALE[unit]:f}"[:32].removesuffix(".0") + unit
    if amount == amount.to_integral_value():
        return f"{amount.to_integral_value():f}"
    milli = amount * 1000
    return f"{milli:f}".rstrip("0").rstrip(".") + "m"
