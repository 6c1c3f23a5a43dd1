"""Alerts -> incidents: bundled, resolved and reopened; with the scope that their labels tell.

Alertmanager's label names are those of the Prometheus ecosystem (kube-state-metrics and the kubernetes-mixin):
namespace, pod, deployment, statefulset, daemonset, job_name, cronjob, container, node, service, job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b

from app.core.entities import workload_of_pod
from app.core.model import Incident, Scope, Symptom

JOINS_WITHIN = timedelta(minutes=30)
"""An alert of the same cluster that starts this close to an open incident's alerts belongs to it."""

LOOKS_BACK = timedelta(hours=24)
"""How far before an alert a change may lie: a quarter of incidents are noticed more than 88 minutes after."""
LOOKS_AHEAD = timedelta(hours=1)
"""What is recorded of later times tells nothing more of what began an incident."""

SEVERITIES = ("critical", "error", "warning", "info")
CONTROL_PLANE = re.compile(
    r"api-?server|kubeapi|etcd|kube-?scheduler|kube-?controller-?manager|admission|webhook|control.?plane",
    re.IGNORECASE,
)
WORKLOAD_LABELS = ("deployment", "statefulset", "daemonset", "cronjob", "job_name", "replicaset")
_NO_NAMESPACE_JOBS = frozenset({"kube-state-metrics", "node-exporter", "kubelet", "cadvisor"})


def bundle(alerts: Iterable[Symptom], open_incidents: Iterable[Incident], *, cluster: str) -> list[Incident]:
    """The incidents that these alerts open, extend or resolve. Alerts seen before change nothing."""
    incidents = {incident.id: incident for incident in open_incidents}
    touched: dict[str, Incident] = {}
    for alert in sorted(alerts, key=lambda a: (a.at, a.fingerprint)):
        home = next((i for i in incidents.values() if _belongs(alert, i)), None)
        if home is None:
            home = _opened(alert, cluster)
        incident = _with(home, alert)
        incidents[incident.id] = touched[incident.id] = incident
    return list(touched.values())


def _belongs(alert: Symptom, incident: Incident) -> bool:
    if any(a.fingerprint == alert.fingerprint and a.at == alert.at for a in incident.alerts):
        return True
    return incident.status != "resolved" and any(abs(alert.at - a.at) <= JOINS_WITHIN for a in incident.alerts)


def _opened(alert: Symptom, cluster: str) -> Incident:
    digest = blake2b(f"{cluster}\0{alert.fingerprint}\0{alert.at.isoformat()}".encode(), digest_size=6)
    return Incident(id=digest.hexdigest(), cluster=cluster, title="", status="open", severity="", started_at=alert.at)


def _with(incident: Incident, alert: Symptom) -> Incident:
    others = [a for a in incident.alerts if (a.fingerprint, a.at) != (alert.fingerprint, alert.at)]
    alerts = tuple(sorted([*others, alert], key=lambda a: (a.at, a.fingerprint)))
    ended = [a.ended_at for a in alerts if a.ended_at]
    resolved = len(ended) == len(alerts)
    return replace(
        incident,
        alerts=alerts,
        title=title(alerts),
        severity=min((a.severity for a in alerts), key=_severity_rank),
        started_at=alerts[0].at,
        status="resolved" if resolved else "open",
        resolved_at=max(ended) if resolved else None,
        scope=scope(alerts),
    )


def _severity_rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def title(alerts: Iterable[Symptom]) -> str:
    """The alerts' names in words, the worst first, at most three."""
    ordered = sorted(alerts, key=lambda a: (_severity_rank(a.severity), a.at))
    names = list(dict.fromkeys(_words(a.reason) for a in ordered))
    if not names:
        return "Incident"
    first = names[0]
    rest = [name[:1].lower() + name[1:] if not name[:2].isupper() else name for name in names[1:3]]
    return " and ".join([first, *rest]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _words(name: str) -> str:
    """TyphaPingLatencyHigh -> Typha ping latency high; KubeAPIDown -> Kube API down."""
    parts = re.findall(r"[A-Z]{2,}(?=[A-Z][a-z]|\b|_|\d)|[A-Z]?[a-z]+|[A-Z]+|\d+", name)
    if not parts:
        return name
    words = [part if part.isupper() and len(part) > 1 else part.lower() for part in parts]
    words[0] = words[0][:1].upper() + words[0][1:]
    return " ".join(words)


def scope(alerts: Iterable[Symptom]) -> Scope:
    """What the labels say the incident is about. Nothing said is an empty scope: then measurements decide."""
    namespaces: dict[str, None] = {}
    workloads: dict[str, None] = {}
    nodes: dict[str, None] = {}
    control_plane = False
    for alert in alerts:
        labels = dict(alert.labels)
        namespace = labels.get("namespace") or labels.get("exported_namespace")
        if namespace and labels.get("job") not in _NO_NAMESPACE_JOBS | {"apiserver"}:
            namespaces[namespace] = None
        named = [labels[name] for name in WORKLOAD_LABELS if labels.get(name)]
        if labels.get("pod"):
            named.append(workload_of_pod(labels["pod"]))
        if labels.get("container"):
            named.append(labels["container"])
        if labels.get("service") and namespace:
            named.append(labels["service"])
        for name in named:
            workloads[f"{namespace or ''}/{name}"] = None
        if labels.get("node"):
            nodes[labels["node"]] = None
        said = f"{alert.reason} {labels.get('job', '')} {labels.get('component', '')}"
        if CONTROL_PLANE.search(said):
            control_plane = True
    return Scope(tuple(namespaces), tuple(workloads), tuple(nodes), control_plane)
