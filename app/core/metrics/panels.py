"""What the control-plane page shows: its panels, in the order in which one looks when something is wrong.

Names and labels of metrics are those of Kubernetes 1.27 to 1.36
(https://kubernetes.io/docs/reference/instrumentation/metrics/), of etcd 3.5 and 3.6 (https://etcd.io/docs/v3.6/metrics/),
of controller-runtime (pkg/internal/controller/metrics), client-go and client_golang's process collector, of CoreDNS
(https://coredns.io/plugins/metrics), Typha and Felix (https://docs.tigera.io/calico/latest/reference). Where a name was
given up for another, both stand here, the newer one first.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.matching import parse
from app.core.metrics.callers import CallsQuery
from app.core.metrics.measures import Measure, SeriesQuery

ENDS = "verb!=WATCH|CONNECT"
"""Requests that end by themselves: how long a watch lasts says nothing about the server."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph: what it is called, in which unit, what is asked for it."""

    key: str
    title: str
    unit: str
    query: SeriesQuery | CallsQuery


@dataclass(frozen=True, slots=True)
class Group:
    """Panels that answer one question."""

    key: str
    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, *by: str, where: str = "", most: int = 6) -> SeriesQuery:
    return SeriesQuery((metric,), Measure.RATE, by, parse(where), most)


def _level(metric: str, *by: str, where: str = "", most: int = 6) -> SeriesQuery:
    return SeriesQuery((metric,), Measure.LEVEL, by, parse(where), most)


def _slowest(*metrics: str, by: str = "", where: str = "", most: int = 6) -> SeriesQuery:
    """The 99th percentile: what one request of a hundred waits for, or longer."""
    return SeriesQuery(metrics, Measure.QUANTILE, (by,) if by else (), parse(where), most)


def _same(*metrics: str, by: tuple[str, ...] = (), where: str = "", most: int = 6) -> SeriesQuery:
    """A gauge that every replica tells alike: three API servers do not have three times the pods."""
    return SeriesQuery(metrics, Measure.HIGHEST, by, parse(where), most)


def _churn(resource: str) -> SeriesQuery:
    """How many come and go: what was created and deleted of a kind, one by one."""
    return _rate("apiserver_request_total", "verb", where=f"resource={resource},subresource=,verb=POST|DELETE,code=2*")


GROUPS = (
    Group(
        "serving",
        "Is it serving?",
        (
            Panel("requests", "Requests by verb", "/s", _rate("apiserver_request_total", "verb", where=ENDS, most=8)),
            Panel("codes", "Answers by code", "/s", _rate("apiserver_request_total", "code", where=ENDS, most=8)),
            Panel(
                "errors",
                "Server errors",
                "/s",
                _rate("apiserver_request_total", "verb", "resource", "code", where="code=5*"),
            ),
            Panel(
                "latency",
                "Latency by verb, p99",
                "s",
                _slowest("apiserver_request_duration_seconds", by="verb", where=ENDS),
            ),
            Panel(
                "webhooks",
                "Admission webhooks, p99",
                "s",
                _slowest("apiserver_admission_webhook_admission_duration_seconds", by="name"),
            ),
            Panel(
                "rejections",
                "Rejected by webhooks",
                "/s",
                _rate("apiserver_admission_webhook_rejection_count", "name", "error_type"),
            ),
        ),
    ),
    Group(
        "overload",
        "Is it overloaded?",
        (
            Panel("inflight", "In flight", "", _level("apiserver_current_inflight_requests", "request_kind")),
            Panel(
                "executing",
                "Executing by priority level",
                "",
                _level("apiserver_flowcontrol_current_executing_requests", "priority_level"),
            ),
            Panel(
                "queued",
                "Waiting by priority level",
                "",
                _level("apiserver_flowcontrol_current_inqueue_requests", "priority_level"),
            ),
            Panel(
                "rejected",
                "Rejected by priority level",
                "/s",
                _rate("apiserver_flowcontrol_rejected_requests_total", "priority_level", "reason"),
            ),
            Panel(
                "throttled",
                "429 by resource",
                "/s",
                _rate("apiserver_request_total", "verb", "resource", where="code=429"),
            ),
            Panel(
                "wait",
                "Wait in queue, p99",
                "s",
                _slowest("apiserver_flowcontrol_request_wait_duration_seconds", by="priority_level"),
            ),
        ),
    ),
    Group(
        "load",
        "Who loads it?",
        (
            Panel(
                "callers", "Top callers, from audit", "/s", CallsQuery(by=("user",), where=parse("verb!=watch"), most=8)
            ),
            Panel("listers", "LIST by caller, from audit", "/s", CallsQuery(("user", "resource"), parse("verb=list"))),
            Panel("lists", "LIST by resource", "/s", _rate("apiserver_request_total", "resource", where="verb=LIST")),
            Panel(
                "watches", "Open watches", "", _level("apiserver_longrunning_requests", "resource", where="verb=WATCH")
            ),
            Panel("events", "Watch events", "/s", _rate("apiserver_watch_events_total", "resource", "kind")),
            Panel(
                "gone",
                "410 Gone by resource",
                "/s",
                _rate("apiserver_request_total", "verb", "resource", where="code=410"),
            ),
            Panel(
                "ended", "Watches ended by the server", "/s", _rate("apiserver_terminated_watchers_total", "resource")
            ),
            Panel("audit", "Audit events lost", "/s", _rate("apiserver_audit_error_total", "plugin")),
        ),
    ),
    Group(
        "store",
        "Its store",
        (
            Panel("etcd", "etcd latency, p99", "s", _slowest("etcd_request_duration_seconds", by="operation")),
            Panel("fsync", "etcd WAL fsync, p99", "s", _slowest("etcd_disk_wal_fsync_duration_seconds", by="instance")),
            Panel(
                "commit", "etcd commit, p99", "s", _slowest("etcd_disk_backend_commit_duration_seconds", by="instance")
            ),
            Panel(
                "size",
                "Database size",
                "B",
                _same(
                    "apiserver_storage_size_bytes",
                    "apiserver_storage_db_total_size_in_bytes",
                    "etcd_mvcc_db_total_size_in_bytes",
                ),
            ),
            Panel(
                "leader",
                "etcd leader changes",
                "",
                SeriesQuery(("etcd_server_leader_changes_seen_total",), Measure.CHANGES, ("instance",)),
            ),
        ),
    ),
    Group(
        "controllers",
        "What works through it",
        (
            Panel("depth", "Queue depth", "", _level("workqueue_depth", "name")),
            Panel("adds", "Queue adds", "/s", _rate("workqueue_adds_total", "name")),
            Panel("retries", "Retries", "/s", _rate("workqueue_retries_total", "name")),
            Panel("work", "Work on an item, p99", "s", _slowest("workqueue_work_duration_seconds", by="name")),
            Panel(
                "reconcile",
                "Reconcile time, p99",
                "s",
                _slowest("controller_runtime_reconcile_time_seconds", by="controller"),
            ),
            Panel(
                "failed",
                "Reconciles that failed",
                "/s",
                _rate("controller_runtime_reconcile_errors_total", "controller"),
            ),
            Panel(
                "refused",
                "What clients were refused",
                "/s",
                _rate("rest_client_requests_total", "job", "code", where="code!=2*|3*|404|409"),
            ),
            Panel(
                "throttling",
                "Clients that throttle themselves, p99",
                "s",
                _slowest("rest_client_rate_limiter_duration_seconds", by="job"),
            ),
            Panel("pending", "Pods to be scheduled", "", _level("scheduler_pending_pods", "queue")),
            Panel(
                "scheduling",
                "Scheduling, p99",
                "s",
                _slowest("scheduler_scheduling_attempt_duration_seconds", by="result"),
            ),
            Panel("attempts", "Scheduling attempts", "/s", _rate("scheduler_schedule_attempts_total", "result")),
        ),
    ),
    Group(
        "network",
        "Names and network",
        (
            Panel("dns", "DNS answers by code", "/s", _rate("coredns_dns_responses_total", "rcode")),
            Panel("dnslatency", "DNS, p99", "s", _slowest("coredns_dns_request_duration_seconds")),
            Panel("resolvers", "DNS behind it, p99", "s", _slowest("coredns_proxy_request_duration_seconds", by="to")),
            Panel("typha", "Typha's connections", "", _level("typha_connections_active", "syncer")),
            Panel("dropped", "Connections that Typha dropped", "/s", _rate("typha_connections_dropped")),
            Panel("ping", "Typha's ping", "s", SeriesQuery(("typha_ping_latency",), Measure.MEAN)),
            Panel("felix", "Felix: updates that failed", "/s", _rate("felix_int_dataplane_failures")),
            Panel(
                "dataplane",
                "Felix: time to apply an update",
                "s",
                SeriesQuery(("felix_int_dataplane_apply_time_seconds",), Measure.MEAN),
            ),
        ),
    ),
    Group(
        "processes",
        "Its processes",
        (
            Panel(
                "restarts",
                "Restarts",
                "",
                SeriesQuery(("process_start_time_seconds",), Measure.CHANGES, ("job", "instance")),
            ),
            Panel("memory", "Memory", "B", _level("process_resident_memory_bytes", "job", "instance", most=8)),
            Panel("cpu", "CPU", "cores", _rate("process_cpu_seconds_total", "job", "instance", most=8)),
            Panel("goroutines", "Goroutines", "", _level("go_goroutines", "job", "instance", most=8)),
        ),
    ),
    Group(
        "size",
        "Its size",
        (
            Panel(
                "nodes",
                "Nodes",
                "",
                _same("apiserver_resource_objects", "apiserver_storage_objects", where="resource=nodes"),
            ),
            Panel(
                "pods",
                "Pods",
                "",
                _same("apiserver_resource_objects", "apiserver_storage_objects", where="resource=pods"),
            ),
            Panel(
                "objects",
                "Most numerous objects",
                "",
                _same(
                    "apiserver_resource_objects", "apiserver_storage_objects", by=("resource",), where="resource!=pods"
                ),
            ),
            Panel("nodechurn", "Nodes created and deleted", "/s", _churn("nodes")),
            Panel("churn", "Pods created and deleted", "/s", _churn("pods")),
        ),
    ),
)

PANELS = {panel.key: panel for group in GROUPS for panel in group.panels}
METRICS = frozenset(
    name for panel in PANELS.values() if isinstance(panel.query, SeriesQuery) for name in panel.query.names
)
"""Names of the series that the page needs; of a histogram its buckets, sum and count."""
