"""Who calls whom, as the proxies of service meshes count it: the labels of their counters -> edges.

Istio's standard metrics name both sides (https://istio.io/latest/docs/reference/config/metrics/). Linkerd's proxy names
whom it calls (https://linkerd.io/2/reference/proxy-metrics/), and whose it is a Prometheus adds when it scrapes it
(https://linkerd.io/2/tasks/external-prometheus/).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from app.core.model import CallEdge, MetricSeries
from app.core.objects.dependencies import Named

SERVICE, WORKLOAD = "Service", "Workload"
MOST_EDGES = 20_000
"""Of one cluster, so many are kept: those that were seen last."""
_WORKLOADS = ("deployment", "statefulset", "daemonset", "replicaset", "replicationcontroller", "k8s_job")
"""Linkerd's labels for what owns a pod; with dst_ before them they are of the pod that is called."""
_ISTIO = (
    *("source_workload", "source_workload_namespace", "destination_workload", "destination_workload_namespace"),
    *("destination_service_name", "destination_service_namespace"),
)
_LINKERD = ("namespace", "dst_namespace", "dst_service", *_WORKLOADS, *(f"dst_{kind}" for kind in _WORKLOADS))
COUNTERS: dict[str, tuple[tuple[str, ...], str]] = {
    "istio_requests_total": (_ISTIO, 'reporter=~"source|waypoint"'),
    "istio_tcp_connections_opened_total": (_ISTIO, 'reporter=~"source|waypoint"'),
    "request_total": (_LINKERD, 'direction="outbound",dst_namespace!=""'),
}
"""By counter: the labels that say who calls whom, and what chooses those told by the side that calls. The other side
tells the same once more, and of callers without a proxy it knows no name."""
FAMILIES = frozenset(COUNTERS) | {name.removesuffix("_total") for name in COUNTERS}
"""What # TYPE calls them, too (OpenMetrics)."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
"""A Service's or a namespace's. A host of the world outside has dots; "PassthroughCluster" stands for nobody known."""
_WORKLOAD_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_UNKNOWN = "unknown"
"""What Istio says for what it does not know."""


def called(name: str, labels: Mapping[str, str]) -> Iterator[tuple[Named, str, Named]]:
    """(caller, Service or Workload, callee) of a series of COUNTERS; nothing where it does not name both."""
    linkerd = name == "request_total"
    if not _is_callers(labels, linkerd=linkerd):
        return
    if linkerd:
        caller = _named(labels.get("namespace"), _first(labels, ""), _WORKLOAD_NAME)
        there = labels.get("dst_namespace")
        callee = _named(there, _first(labels, "dst_"), _WORKLOAD_NAME)
        service = _named(there, labels.get("dst_service"), _NAME)
    else:
        caller = _named(labels.get("source_workload_namespace"), labels.get("source_workload"), _WORKLOAD_NAME)
        there = labels.get("destination_workload_namespace")
        callee = _named(there, labels.get("destination_workload"), _WORKLOAD_NAME)
        home = labels.get("destination_service_namespace") or there
        service = _named(home, labels.get("destination_service_name"), _NAME)
    if caller and service:
        yield caller, SERVICE, service
    if caller and callee and callee != caller:
        yield caller, WORKLOAD, callee


def edges(series: Iterable[MetricSeries]) -> list[CallEdge]:
    """What the series of COUNTERS among these say, from the first time at which something was counted to the last."""
    found: dict[tuple[Named, str, Named], CallEdge] = {}
    for one in series:
        if one.name not in COUNTERS:
            continue
        times = [at for at, value in zip(one.times, one.values, strict=True) if value > 0]  # not where it has ended
        if not times:
            continue
        first, last = datetime.fromtimestamp(times[0], UTC), datetime.fromtimestamp(times[-1], UTC)
        for key in called(one.name, dict(one.labels)):
            known = found.get(key)
            if known:
                first, last = min(first, known.first_seen), max(last, known.last_seen)
            found[key] = CallEdge(*key, first, last)
    return list(found.values())


def _is_callers(labels: Mapping[str, str], *, linkerd: bool) -> bool:
    """Whether the side that calls tells it: as the matchers of COUNTERS choose."""
    if linkerd:
        return labels.get("direction", "outbound") == "outbound"
    return labels.get("reporter", "source") in ("source", "waypoint")


def _first(labels: Mapping[str, str], prefix: str) -> str | None:
    return next((labels[prefix + kind] for kind in _WORKLOADS if labels.get(prefix + kind)), None)


def _named(namespace: str | None, name: str | None, form: re.Pattern[str]) -> Named | None:
    if not namespace or not name or _UNKNOWN in (namespace, name):
        return None
    return (namespace, name) if _NAME.fullmatch(namespace) and form.fullmatch(name) else None
