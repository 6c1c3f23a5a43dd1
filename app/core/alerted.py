"""What an alert is about, by its labels: they also say which exporter was asked, and that is nobody's fault.

An exporter tells of others. A Prometheus adds the labels of its target (pod, container, service, namespace, job,
instance, endpoint) to what it tells, where it has no such label of its own: of a Deployment that lacks replicas, say,
the pod and the service are kube-state-metrics' own, and only the namespace is the Deployment's; of a node the
namespace is kube-state-metrics', too (honor_labels, as kube-prometheus and the charts set it:
https://prometheus.io/docs/prometheus/latest/configuration/configuration/#scrape_config). Without honor_labels what the
exporter says is called ``exported_…``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

RUNBOOK = "runbook_url"
"""The annotation with the address of what to do, as kubernetes-mixin and Grafana have it."""
WEB = ("https://", "http://")
"""How an address begins that a link may lead to."""
WORKLOADS = ("deployment", "statefulset", "daemonset", "cronjob", "job_name", "replicaset")
"""Labels that name what owns pods (kube-state-metrics)."""
NODE_EXPORTER = "node-exporter"
EXPORTERS = ("kube-state-metrics", NODE_EXPORTER, "kubelet")
"""Whose job or service is called so tells of others. cAdvisor is asked at the kubelet."""
_TARGET = frozenset({"namespace", "pod", "container", "service", "node"})
_OF_SCRAPES = ("instance", "endpoint")
"""One of them is left, unless a rule has added up its series and chosen what labels they keep."""
_PROXY = "kube-rbac-proxy"
"""What stands before an exporter in its pod, in kube-prometheus, and is the container that is asked."""
_NAMESPACED = frozenset(WORKLOADS) | {
    *("pod", "container", "service", "persistentvolumeclaim", "horizontalpodautoscaler", "hpa", "poddisruptionbudget"),
    *("resourcequota", "ingress", "configmap", "secret"),
}
"""Labels that name something in a namespace: beside one of them that is its own."""
_EVALUATED_BY = frozenset({"prometheus", "prometheus_replica"})
"""Which Prometheus evaluated it, as the operator labels what it sends."""
_EXPORTED = "exported_"

TRUNCATED, NOT_UNDERSTOOD, TIME = "truncated", "not understood", "time"
"""Why alerts are lost, in a word."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of a payload is not taken, in words: ``many`` alerts, lost for ``reason``; "" where none is lost by it."""

    why: str
    reason: str = NOT_UNDERSTOOD
    many: int = 1


def about(labels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The labels that say what an alert is about, without those of the exporter that told it."""
    told = {name: value for name, value in labels if name not in _EVALUATED_BY}
    exported = {name.removeprefix(_EXPORTED): value for name, value in told.items() if name.startswith(_EXPORTED)}
    if exported.keys() & _TARGET:
        return {name: value for name, value in told.items() if name not in _TARGET} | exported
    if not told.keys() & set(_OF_SCRAPES):
        return told
    exporter = _exporter(told)
    if exporter is None:
        return told
    found = {
        name: value
        for name, value in told.items()
        if name not in ("job", "service", "pod", "container") or not (exporter in value or value.startswith(_PROXY))
    }
    if not found.keys() & _NAMESPACED:
        found.pop("namespace", None)
    return found


def _exporter(told: Mapping[str, str]) -> str | None:
    asked = f"{told.get('job', '')} {told.get('service', '')}"
    return next((one for one in EXPORTERS if one in asked), None)


def on_node(labels: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """Namespace and name of the pod that told of its node, which is where it runs; None where none did, or is named."""
    told = dict(labels)
    if _exporter(told) != NODE_EXPORTER or "pod" not in told or "namespace" not in told:
        return None
    return told["namespace"], told["pod"]


def told_in(labels: Iterable[tuple[str, str]]) -> str | None:
    """The namespace of who told of another, as the controller of Ingresses of what it leads to; None where none did."""
    told = dict(labels)
    return told.get("namespace") if f"{_EXPORTED}namespace" in told else None


def text_of(labels: Iterable[tuple[str, str]]) -> str:
    """The values of those labels, in one text."""
    return " ".join(about(labels).values())
