"""Who counts the requests that apps serve: the names under which apps, meshes and ingress controllers tell of them.

By convention of client libraries and of OpenTelemetry's semantic conventions for HTTP and RPC servers
(https://opentelemetry.io/docs/specs/semconv/http/http-metrics/), of Micrometer, of go-grpc-prometheus, of Istio's
standard metrics (https://istio.io/latest/docs/reference/config/metrics/), of Linkerd's proxy and of ingress-nginx
(https://kubernetes.github.io/ingress-nginx/user-guide/monitoring/). What else an app may count is its own affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from app.core.entities import Entity, workload, workload_of_pod

Labels = Mapping[str, str]

REQUESTS: dict[str, tuple[str, ...]] = {
    "http_requests_total": ("code", "status", "status_code"),
    "http_request_duration_seconds_count": ("code", "status", "status_code"),
    "http_server_requests_seconds_count": ("status",),
    "http_server_request_duration_seconds_count": ("http_response_status_code",),
    "http_server_duration_milliseconds_count": ("http_status_code",),
    "grpc_server_handled_total": ("grpc_code",),
    "rpc_server_duration_milliseconds_count": ("rpc_grpc_status_code",),
    "istio_requests_total": ("response_code",),
    "response_total": ("status_code",),
    "nginx_ingress_controller_requests": ("status",),
}
"""Counters of requests, with the labels that may say how they ended."""
DURATIONS: dict[str, float] = {
    "http_request_duration_seconds": 1.0,
    "http_server_requests_seconds": 1.0,
    "http_server_request_duration_seconds": 1.0,
    "http_server_duration_milliseconds": 1e-3,
    "grpc_server_handling_seconds": 1.0,
    "rpc_server_duration_milliseconds": 1e-3,
    "istio_request_duration_milliseconds": 1e-3,
    "nginx_ingress_controller_response_duration_seconds": 1.0,
}
"""Histograms or summaries of how long an answer took, with their unit in seconds."""
FAILS, REFUSES, SLOW = "RequestsFail", "RequestsRefused", "RequestsSlow"
"""What is said of a workload that serves: as reasons are."""
ASKED = "asked"
"""Among a signal's facts: how many times as many requests came as it began."""
SERVED = frozenset(REQUESTS) | {f"{name}_{part}" for name in DURATIONS for part in ("sum", "count")}
"""The names of all series that tell of requests served."""
MOST_SERVED = 1_000
"""Series of requests that are read to rank: those of two hours take some 30 ms (docs/performance.md)."""
FAMILIES_SERVED = frozenset(DURATIONS) | {name.removesuffix("_total") for name in REQUESTS}
"""What # TYPE calls them (OpenMetrics)."""
_OF = (
    *("pod", "exported_pod", "service", "exported_service", "ingress"),
    *("destination_workload", "reporter", "deployment", "direction"),
)
NAMESPACES = ("namespace", "exported_namespace", "destination_workload_namespace")
"""Labels that may name whose namespace it is."""
TOLD_APART = tuple(sorted({*NAMESPACES, *_OF, *(label for labels in REQUESTS.values() for label in labels)}))
"""Labels that are looked at. By all others, as paths and methods, which are many, series may be added up."""

_GRPC_FAILS = {
    **dict.fromkeys(("Unknown", "2"), "Unknown"),
    **dict.fromkeys(("DeadlineExceeded", "4"), "DeadlineExceeded"),
    **dict.fromkeys(("Unimplemented", "12"), "Unimplemented"),
    **dict.fromkeys(("Internal", "13"), "Internal"),
    **dict.fromkeys(("Unavailable", "14"), "Unavailable"),
    **dict.fromkeys(("DataLoss", "15"), "DataLoss"),
}
"""Codes of gRPC for which the server is to blame, as OpenTelemetry has it
(https://opentelemetry.io/docs/specs/semconv/rpc/grpc/)."""


class Outcome(Enum):
    """How a request ended: it was answered, refused (HTTP 4xx but 404: many look for what is not there), or failed."""

    ANSWERED = "answered"
    REFUSED = "refused"
    FAILED = "failed"


def outcome(name: str, labels: Labels) -> tuple[Outcome, str]:
    """How the requests of a series of REQUESTS ended, and the code that says so."""
    code = next((labels[label] for label in REQUESTS[name] if labels.get(label)), "")
    if "grpc" in name or name.startswith("rpc_"):
        return (Outcome.FAILED, _GRPC_FAILS[code]) if code in _GRPC_FAILS else (Outcome.ANSWERED, code)
    if code.startswith("5"):
        return Outcome.FAILED, code
    return Outcome.REFUSED if code.startswith("4") and code != "404" else Outcome.ANSWERED, code


def is_server(labels: Labels) -> bool:
    """Whether a series is told by the side that serves: proxies of a mesh tell both, and each request once a side."""
    return labels.get("reporter") != "source" and labels.get("direction") != "outbound"


def is_door(name: str) -> bool:
    """Whether an ingress controller tells it: of what it answers for others, be it itself or one behind it."""
    return name.startswith("nginx_ingress_controller_")


def pod(name: str, labels: Labels) -> str:
    """The pod that served what a series counts; "" where it does not say. An ingress controller's is its own."""
    if is_door(name):
        return ""
    return labels.get("exported_pod") or labels.get("pod", "")


def server(name: str, labels: Labels) -> Entity | None:
    """Who serves what a series counts: a workload or, where it names no more, ("service", namespace, name)."""
    namespace = labels.get("exported_namespace") or labels.get("namespace", "")
    if told := labels.get("destination_workload"):
        return workload(labels.get("destination_workload_namespace", ""), told)
    if told := labels.get("deployment"):
        return workload(namespace, told)
    if told := pod(name, labels):
        return workload(namespace, workload_of_pod(told))
    service = labels.get("exported_service") or labels.get("service", "")
    return ("service", namespace, service) if namespace and service else None
