"""The control-plane lines that are watched: what each measures, how it splits, and what a rise in it is about.

Metric names: https://kubernetes.io/docs/reference/instrumentation/metrics/ and client_golang's process collector;
https://coredns.io/plugins/metrics , https://docs.tigera.io/calico/latest/reference/felix/prometheus .
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.core.entities import CLUSTER, Entity

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """One line worth watching. ``by`` are the labels that split it; ``floor`` is the smallest rise that matters.

    ``about`` turns the split's labels into what the rise is about. ``keep`` chooses among the series.
    """

    title: str
    unit: str
    metrics: tuple[str, ...]
    measure: str  # rate, level, mean (of a _sum by its _count), restart
    floor: float
    by: tuple[str, ...] = ()
    keep: Callable[[Labels], bool] = lambda _labels: True
    about: Callable[[Labels], dict[Entity, float]] = lambda _labels: {CLUSTER: 0.4}
    weight: float = 0.5


VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "APPLY": "patch",
    "DELETE": "delete",
    "LIST": "list",
    "GET": "get",
    "WATCH": "watch",
    "DELETECOLLECTION": "deletecollection",
}


def _rejected(labels: Labels) -> dict[Entity, float]:
    """Of whose FlowSchema requests were rejected."""
    return {("object", "FlowSchema", "", labels.get("flow_schema", "")): 0.9, ("throttle",): 0.6, CLUSTER: 0.4}


def _short(labels: Labels) -> bool:
    """Requests that end by themselves: a watch's duration says nothing about the server."""
    return labels.get("verb") not in ("WATCH", "CONNECT")


def _succeeded(labels: Labels) -> bool:
    return _short(labels) and labels.get("code", "").startswith("2")


def _refused(labels: Labels) -> bool:
    """404 and 409 are part of normal work."""
    return labels.get("code", "").startswith("4") and labels.get("code") not in ("404", "409")


def _broken(labels: Labels) -> bool:
    return labels.get("code", "").startswith("5")


def _calls(labels: Labels) -> dict[Entity, float]:
    return {
        ("api", labels.get("group", ""), labels.get("resource", ""), VERBS.get(labels.get("verb", ""), "*")): 0.9,
        CLUSTER: 0.3,
    }


def _failing(labels: Labels) -> dict[Entity, float]:
    about = _calls(labels)
    code = labels.get("code", "")
    if code == "429":
        about[("throttle",)] = 0.8
    if code.startswith("5"):
        about[("admission", "*")] = 0.4
    return about


def _watched(labels: Labels) -> dict[Entity, float]:
    resource = labels.get("resource", "") or labels.get("kind", "").lower()
    return {("api", labels.get("group", ""), resource, "*"): 0.5, CLUSTER: 0.3}


def _queue(labels: Labels) -> dict[Entity, float]:
    return {("queue", labels.get("name", "")): 0.8, CLUSTER: 0.2}


FAMILIES = (
    Family(
        "Requests",
        "/s",
        ("apiserver_request_total",),
        "rate",
        1.0,
        ("verb", "group", "resource", "subresource"),
        keep=_succeeded,
        about=_calls,
        weight=0.9,
    ),
    Family(
        "Client errors",
        "/s",
        ("apiserver_request_total",),
        "rate",
        0.2,
        ("verb", "group", "resource", "subresource", "code"),
        keep=_refused,
        about=_failing,
        weight=0.9,
    ),
    Family(
        "Server errors",
        "/s",
        ("apiserver_request_total",),
        "rate",
        0.1,
        ("verb", "group", "resource", "subresource", "code"),
        keep=_broken,
        about=_failing,
        weight=0.9,
    ),
    Family("Latency", "s", ("apiserver_request_duration_seconds",), "mean", 0.02, ("verb",), keep=_short),
    Family(
        "In flight", "", ("apiserver_current_inflight_requests", "apiserver_current_inqueue_requests"), "level", 5.0
    ),
    Family(
        "Rejected",
        "/s",
        ("apiserver_flowcontrol_rejected_requests_total",),
        "rate",
        0.1,
        ("flow_schema",),
        about=_rejected,
    ),
    Family(
        "Open watches",
        "",
        ("apiserver_longrunning_requests",),
        "level",
        10.0,
        ("group", "resource"),
        keep=lambda labels: labels.get("verb") == "WATCH",
        about=lambda labels: _calls(labels | {"verb": "WATCH"}),
    ),
    Family(
        "Watches ended",  # of clients that could not follow: a fleet is a few within seconds
        "/s",
        ("apiserver_terminated_watchers_total",),
        "rate",
        0.5,
    ),
    Family("Initial events", "/s", ("apiserver_init_events_total",), "rate", 20.0),
    Family(
        "Watch events",
        "/s",
        ("apiserver_watch_events_total",),
        "rate",
        5.0,
        ("group", "kind", "resource"),
        about=_watched,
    ),
    Family(
        "Admission webhooks",
        "/s",
        ("apiserver_admission_webhook_rejection_count", "apiserver_admission_webhook_fail_open_count"),
        "rate",
        0.05,
        ("name",),
        about=lambda s: {("named", s.get("name", "")): 1.0, ("admission", "*"): 0.5},
        weight=0.9,
    ),
    Family(
        "Webhook latency",
        "s",
        ("apiserver_admission_webhook_admission_duration_seconds",),
        "mean",
        0.1,
        ("name",),
        about=lambda s: {("named", s.get("name", "")): 1.0},
        weight=0.9,
    ),
    Family("etcd latency", "s", ("etcd_request_duration_seconds",), "mean", 0.01),
    Family("Queue depth", "", ("workqueue_depth",), "level", 10.0, ("name",), about=_queue),
    Family("Retries", "/s", ("workqueue_retries_total",), "rate", 0.5, ("name",), about=_queue),
    Family("Queue adds", "/s", ("workqueue_adds_total",), "rate", 5.0, ("name",), about=_queue, weight=0.3),
    Family(
        "Failed reconciles",
        "/s",
        ("controller_runtime_reconcile_errors_total",),
        "rate",
        0.1,
        ("controller",),
        about=lambda s: {("queue", s.get("controller", "")): 0.8, CLUSTER: 0.2},
    ),
    Family(
        "DNS failures",
        "/s",
        ("coredns_dns_responses_total",),
        "rate",
        0.5,
        ("rcode",),
        keep=lambda labels: labels.get("rcode") in ("SERVFAIL", "REFUSED"),
        about=lambda _s: {("agent", "dns"): 0.8, CLUSTER: 0.3},
        weight=0.8,
    ),
    Family(
        "Network updates failed",
        "/s",
        ("felix_int_dataplane_failures",),
        "rate",
        0.05,
        about=lambda _s: {("agent", "cni"): 0.8, CLUSTER: 0.3},
    ),
    Family("Memory", "B", ("process_resident_memory_bytes",), "level", 50e6, ("job", "instance")),
    Family("CPU", "cores", ("process_cpu_seconds_total",), "rate", 0.2, ("job", "instance")),
    Family("Goroutines", "", ("go_goroutines",), "level", 500.0, ("job", "instance"), weight=0.3),
    Family(
        "Pending pods",
        "",
        ("scheduler_pending_pods",),
        "level",
        3.0,
        ("queue",),
        about=lambda _s: {("scheduling",): 0.8},
    ),
)
